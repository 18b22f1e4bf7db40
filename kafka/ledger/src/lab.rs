//! Brokers, topics, members and a witness, for the tests and for `run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use crate::producer::Producing;
use crate::witness::{Seen, Witness};

/// How long anything may take to come to an end.
const PATIENCE: Duration = Duration::from_secs(120);

/// A dead letter: account, number, headers.
pub type Letter = (String, u64, BTreeMap<String, String>);

/// A group with a topic of its own.
#[derive(Debug)]
pub struct Lab {
    /// The program `ledger`.
    program: PathBuf,
    pub servers: String,
    pub topic: String,
    pub group: String,
    pub witness: Witness,
    pub producing: Producing,
    /// Further options of the members that are started from now on.
    pub options: Vec<String>,
    members: BTreeMap<String, Child>,
}

impl Lab {
    /// Creates the topic.
    pub fn new(program: &Path, servers: &str, name: &str, partitions: i32) -> Result<Self> {
        let lab = Lab {
            program: program.to_owned(),
            servers: servers.to_owned(),
            topic: name.to_owned(),
            group: format!("{name}-group"),
            witness: Witness::start()?,
            producing: Producing::new(servers, name)?,
            options: Vec::new(),
            members: BTreeMap::new(),
        };
        lab.create(name, partitions, &[])?;
        Ok(lab)
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.client().create()?)
    }

    fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.servers);
        client
    }

    /// Creates a topic with these settings.
    pub fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) -> Result<()> {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
        let admin = self.admin()?;
        for result in Runtime::new()?.block_on(admin.create_topics([&new], &options))? {
            result.map_err(|(topic, error)| anyhow::anyhow!("{topic}: {error}"))?;
        }
        Ok(())
    }

    /// Deletes a topic.
    pub fn delete(&self, topic: &str) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
        Runtime::new()?.block_on(self.admin()?.delete_topics(&[topic], &options))?;
        Ok(())
    }

    /// Deletes the records of the first partition below an offset.
    pub fn truncate(&self, below: i64) -> Result<()> {
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(&self.topic, 0, Offset::Offset(below))?;
        Runtime::new()?.block_on(self.admin()?.delete_records(&offsets, &AdminOptions::new()))?;
        Ok(())
    }

    /// Goes on with another topic, with these settings.
    pub fn change_topic(&mut self, topic: &str, settings: &[(&str, &str)]) -> Result<()> {
        self.create(topic, 1, settings)?;
        self.topic = topic.to_owned();
        self.producing = Producing::new(&self.servers, topic)?;
        Ok(())
    }

    /// How many records the log of the first partition has, which are fewer than its offsets if it was compacted.
    pub fn records(&self) -> Result<u64> {
        let consumer: BaseConsumer = self.client().set("group.id", "counts").create()?;
        let (_, end) = consumer.fetch_watermarks(&self.topic, 0, PATIENCE)?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&self.topic, 0, Offset::Beginning)?;
        consumer.assign(&from)?;
        for count in 1.. {
            let message = consumer.poll(PATIENCE).context("a record")??;
            if message.offset() + 1 >= end {
                return Ok(count);
            }
        }
        Ok(0)
    }

    /// Starts a member.
    pub fn join(&mut self, name: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command
            .args(["member", "--servers", &self.servers, "--group", &self.group])
            .args(["--topics", &self.topic, "--name", name])
            .args(["--witness", &self.witness.address().to_string()])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        self.members.insert(name.to_owned(), command.spawn()?);
        Ok(())
    }

    fn id(&self, name: &str) -> Result<u32> {
        Ok(self.members.get(name).context("no such member")?.id())
    }

    /// The most memory that a member has had, in MiB.
    pub fn memory(&self, name: &str) -> Result<u64> {
        let peak = self.status(name, "VmHWM:")?;
        let kib = peak.strip_suffix(" kB").context("a number of kB")?;
        Ok(kib.parse::<u64>()? / 1024)
    }

    /// What the system says of a member's process.
    fn status(&self, name: &str, line: &str) -> Result<String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id(name)?))?;
        let found = status.lines().find_map(|it| it.strip_prefix(line));
        Ok(found.context("no such line")?.trim().to_owned())
    }

    fn has_ended(&self, name: &str) -> Result<bool> {
        Ok(self.status(name, "State:")?.starts_with('Z'))
    }

    /// Whether a member waits for SIGTERM already, or has ended.
    fn handles_term(&self, name: &str) -> Result<bool> {
        let caught = u64::from_str_radix(&self.status(name, "SigCgt:")?, 16)?;
        Ok(self.has_ended(name)? || caught & (1 << (Signal::TERM.as_raw() - 1)) != 0)
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let id = self.id(name)?;
        let pid = Pid::from_raw(i32::try_from(id)?).context("a process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// SIGKILL.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.signal(name, Signal::KILL)?;
        self.members.remove(name).context("a member")?.wait()?;
        Ok(())
    }

    /// SIGTERM. Waits for the end of the member, and returns what it says.
    pub fn end(&mut self, name: &str) -> Result<String> {
        let limit = Duration::from_secs(60);
        let end = Instant::now() + limit * rig::patience();
        // One that has just been started would be killed by it.
        while !self.handles_term(name)? {
            ensure!(Instant::now() < end, "{name} does not begin");
            sleep(Duration::from_millis(5));
        }
        self.signal(name, Signal::TERM)?;
        self.ended(name, limit)
    }

    /// Waits until a member has ended by itself or is told to, and returns what it says.
    pub fn ended(&mut self, name: &str, limit: Duration) -> Result<String> {
        let mut member = self.members.remove(name).context("a member")?;
        let end = Instant::now() + limit * rig::patience();
        while member.try_wait()?.is_none() {
            if Instant::now() >= end {
                member.kill()?;
                bail!("{name} does not end");
            }
            sleep(Duration::from_millis(20));
        }
        let output = member.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            output.status.success(),
            "{name} ended with {}: {said}",
            output.status
        );
        Ok(said)
    }

    pub fn stop(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::STOP)
    }

    pub fn go_on(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::CONT)
    }

    pub fn members(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }

    /// Waits until so many postings have succeeded.
    pub fn finished(&self, count: u64) -> Result<()> {
        self.until("postings", |lab| lab.witness.finished() >= count)
    }

    pub fn all(&self) -> u64 {
        self.producing.produced.values().sum()
    }

    /// Waits for a condition, as long as something happens.
    pub fn until(&self, what: &str, condition: impl Fn(&Lab) -> bool) -> Result<()> {
        let (mut begun, mut end) = (0, Instant::now());
        loop {
            if condition(self) {
                return Ok(());
            }
            let now = self.witness.seen().begun;
            if now != begun {
                (begun, end) = (now, Instant::now() + PATIENCE * rig::patience());
            }
            ensure!(
                begun == 0 || Instant::now() < end,
                "{what}: nothing happens; {} of {} finished, {}",
                self.witness.finished(),
                self.all(),
                self.witness.seen()
            );
            if begun == 0 && end.elapsed() > PATIENCE * rig::patience() {
                bail!("{what}: nothing has begun");
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all postings have succeeded, and judges. The members go on: one that has ended by itself is a violation.
    pub fn judge(&self) -> Result<Seen> {
        self.finished(self.all())?;
        let mut seen = self.witness.judge(&self.producing.produced);
        for name in self.members.keys() {
            if self.has_ended(name)? {
                seen.violations.push(format!("{name} by itself: ENDED"));
            }
        }
        Ok(seen)
    }

    /// Waits until the group has committed the end of each partition. By then the newest posting of each account has to be the last one that was handled.
    pub fn committed(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            // A broker that has just started may refuse.
            let left = self.lag();
            if let Ok(0) = left {
                let old = self.witness.old(&self.producing.produced);
                ensure!(old.is_empty(), "older postings came last: {old:?}");
                return Ok(());
            }
            ensure!(Instant::now() < end, "a lag of {left:?} stays");
            sleep(Duration::from_millis(100));
        }
    }

    /// How many offsets the group has not committed.
    pub fn lag(&self) -> Result<i64> {
        let consumer: BaseConsumer = self.client().set("group.id", &self.group).create()?;
        let mut lag = 0;
        for (partition, committed, _) in self.stored()? {
            let (low, high) = consumer.fetch_watermarks(&self.topic, partition, PATIENCE)?;
            lag += high - committed.unwrap_or(low);
        }
        Ok(lag)
    }

    /// The partitions, with the offset that is committed and its metadata.
    pub fn stored(&self) -> Result<Vec<(i32, Option<i64>, String)>> {
        let consumer: BaseConsumer = self.client().set("group.id", &self.group).create()?;
        let metadata = consumer.fetch_metadata(Some(&self.topic), PATIENCE)?;
        let mut list = TopicPartitionList::new();
        for partition in metadata.topics()[0].partitions() {
            list.add_partition(&self.topic, partition.id());
        }
        let list = consumer.committed_offsets(list, PATIENCE)?;
        let offset = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            let offset = match element.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            };
            (element.partition(), offset, element.metadata().to_owned())
        };
        Ok(list.elements().iter().map(offset).collect())
    }

    /// Commits an offset with metadata, as another program.
    pub fn store(&self, partition: i32, offset: i64, metadata: &str) -> Result<()> {
        let consumer: BaseConsumer = self.client().set("group.id", &self.group).create()?;
        let mut list = TopicPartitionList::new();
        let mut element = list.add_partition(&self.topic, partition);
        element.set_offset(Offset::Offset(offset))?;
        element.set_metadata(metadata);
        Ok(consumer.commit(&list, rdkafka::consumer::CommitMode::Sync)?)
    }

    /// The dead letters: account, number, headers. The witness counts them.
    pub fn dead_letters(&self, topic: &str, count: usize) -> Result<Vec<Letter>> {
        use rdkafka::message::Headers;
        let consumer: BaseConsumer = self
            .client()
            .set("group.id", format!("{topic}-reader"))
            .set("auto.offset.reset", "earliest")
            .create()?;
        consumer.subscribe(&[topic])?;
        let (mut letters, end) = (Vec::new(), Instant::now() + PATIENCE);
        while letters.len() < count {
            ensure!(
                Instant::now() < end,
                "{} of {count} dead letters",
                letters.len()
            );
            let Some(message) = consumer.poll(Duration::from_millis(200)) else {
                continue;
            };
            let message = message?;
            let account = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
            let payload =
                String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
            let number = payload.split(' ').next().unwrap_or_default().parse()?;
            let headers = message.headers().into_iter().flat_map(Headers::iter);
            let text = |value: Option<&[u8]>| {
                String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
            };
            let headers = headers
                .map(|header| (header.key.to_owned(), text(header.value)))
                .collect();
            self.witness.dead_letter(&account, number);
            letters.push((account, number, headers));
        }
        Ok(letters)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for member in self.members.values_mut() {
            _ = member.kill();
            _ = member.wait();
        }
    }
}
