//! A fleet on one machine: servers, receiver, producer and replicas, each a process of its own, which can be
//! killed, stopped and cut off.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_nats::jetstream;
use futures_util::TryStreamExt;
use futures_util::future::join_all;
use keyqueue_nats::{Config, create, dead_letter};
use rustix::process::{Pid, Signal, kill_process};
use servers::nats::{Servers, messages_of, streams_of};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::beginnings::{self, Beginning};
use crate::check::{self, Dead, Disturbed, Evidence, Verdict};
use crate::clock;
use crate::receiver::{Behaviour, Report};

/// How long anything may take to come to an end.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct Lab {
    directory: TempDir,
    /// The program `dispatch`.
    program: PathBuf,
    pub servers: Servers,
    pub config: Config,
    /// Further options of the replicas and producers that are started from now on.
    pub replica_options: Vec<&'static str>,
    pub producer_options: Vec<&'static str>,
    receiver: Child,
    address: String,
    replicas: BTreeMap<String, Child>,
    disturbed: Disturbed,
}

impl Lab {
    /// Prepares servers, and starts the receiver. `None`: there is no nats-server.
    pub async fn new(program: &Path, config: Config, behaviour: &Behaviour) -> Result<Option<Lab>> {
        let directory = tempfile::tempdir()?;
        let Some(servers) = Servers::prepare(directory.path(), config.replicas)? else {
            return Ok(None);
        };
        fs::write(
            directory.path().join("config.json"),
            serde_json::to_string(&config)?,
        )?;
        let mut receiver = Command::new(program)
            .args(["receiver", "--work", &behaviour.work.to_string()])
            .args([
                "--fail",
                &behaviour.fail.to_string(),
                "--poison",
                &behaviour.poison,
            ])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = receiver.stdout.take().context("its output")?;
        let address = BufReader::new(output)
            .lines()
            .next_line()
            .await?
            .context("its address")?;
        Ok(Some(Lab {
            directory,
            program: program.to_owned(),
            servers,
            config,
            replica_options: Vec::new(),
            producer_options: Vec::new(),
            receiver,
            address,
            replicas: BTreeMap::new(),
            disturbed: Disturbed::new(),
        }))
    }

    /// Starts the servers, and creates stream and bucket.
    pub async fn start(&mut self) -> Result<()> {
        self.servers.start()?;
        let client = timeout(PATIENCE, self.servers.ready()).await??;
        // A cluster may take some time to elect.
        let end = Instant::now() + PATIENCE;
        while let Err(error) = create(&client, &self.config).await {
            ensure!(Instant::now() < end, "{error}");
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    fn command(&self, name: &str, servers: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([name, "--servers", servers, "--config"])
            .arg(self.directory.path().join("config.json"))
            .kill_on_drop(true);
        command
    }

    /// Starts a replica, on these servers or on all.
    pub fn join(&mut self, name: &str, servers: Option<&str>) -> Result<()> {
        let all = self.servers.addresses();
        let child = self
            .command("replica", servers.unwrap_or(&all))
            .args(["--name", name, "--receiver", &self.address, "--log"])
            .arg(self.directory.path().join(format!("{name}.begun")))
            .args(&self.replica_options)
            .spawn()?;
        self.replicas.insert(name.to_owned(), child);
        Ok(())
    }

    /// Starts a producer.
    pub fn produce(&self, messages: usize, endpoints: usize, seconds: u64) -> Result<Child> {
        let child = self
            .command("producer", &self.servers.addresses())
            .args([
                "--messages",
                &messages.to_string(),
                "--endpoints",
                &endpoints.to_string(),
            ])
            .args(["--seconds", &seconds.to_string(), "--log"])
            .arg(self.directory.path().join("stored"))
            .args(&self.producer_options)
            .stdout(Stdio::null())
            .spawn()?;
        Ok(child)
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let id = self.replicas[name].id().context("it runs")?;
        let pid = Pid::from_raw(i32::try_from(id)?).context("a process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// SIGKILL.
    pub async fn kill(&mut self, name: &str) -> Result<()> {
        self.signal(name, Signal::KILL)?;
        self.disturbed.insert(name.to_owned(), clock::now());
        if let Some(mut child) = self.replicas.remove(name) {
            child.wait().await?;
        }
        Ok(())
    }

    /// SIGSTOP for this long.
    pub async fn pause(&mut self, name: &str, pause: Duration) -> Result<()> {
        self.signal(name, Signal::STOP)?;
        self.disturbed.insert(name.to_owned(), clock::now());
        sleep(pause).await;
        self.signal(name, Signal::CONT)
    }

    /// SIGTERM. Waits until the replica has ended, and returns whether it succeeded.
    pub async fn terminate(&mut self, name: &str) -> Result<bool> {
        self.signal(name, Signal::TERM)?;
        let mut child = self.replicas.remove(name).context("a replica")?;
        Ok(timeout(PATIENCE, child.wait()).await??.success())
    }

    /// Starts a replica, of another name, for each that has ended. Returns how many.
    pub fn revive(&mut self) -> Result<usize> {
        let mut ended = Vec::new();
        for (name, child) in &mut self.replicas {
            if child.try_wait()?.is_some() {
                ended.push(name.clone());
            }
        }
        for name in &ended {
            self.disturbed.insert(name.clone(), clock::now());
            self.replicas.remove(name);
            self.join(&format!("{name}x"), None)?;
        }
        Ok(ended.len())
    }

    /// The most memory that a replica has had until now, in bytes.
    pub fn peak_memory(&self, name: &str) -> Result<u64> {
        let id = self.replicas[name].id().context("it runs")?;
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.context("a line")?.trim().trim_end_matches(" kB");
        Ok(1024 * kilobytes.parse::<u64>()?)
    }

    /// The names of the replicas that run.
    pub fn running(&self) -> Vec<String> {
        self.replicas.keys().cloned().collect()
    }

    /// What the receiver has seen until now.
    pub async fn report(&self) -> Result<Report> {
        check::fetch(&self.address).await
    }

    /// The number of messages in the streams.
    pub async fn left(&self) -> Result<u64> {
        let context = jetstream::new(self.servers.ready().await?);
        messages_of(&context, &self.config.stream).await
    }

    /// The names of the streams.
    pub async fn streams(&self) -> Result<Vec<String>> {
        let context = jetstream::new(self.servers.ready().await?);
        streams_of(&context, &self.config.stream).await
    }

    /// Asks the leaders of all streams to step down. Returns how many did.
    pub async fn streams_step_down(&self) -> Result<usize> {
        let subject = |name| format!("$JS.API.STREAM.LEADER.STEPDOWN.{name}");
        let subjects = self.streams().await?.into_iter().map(subject).collect();
        self.ask(subjects).await
    }

    /// Asks the leaders of all consumers to step down. Returns how many did.
    pub async fn consumers_step_down(&self) -> Result<usize> {
        let context = jetstream::new(self.servers.ready().await?);
        let mut subjects = Vec::new();
        for name in self.streams().await? {
            let stream = context.get_stream(&name).await?;
            let consumers: Vec<String> = stream.consumer_names().try_collect().await?;
            let subject = |consumer| format!("$JS.API.CONSUMER.LEADER.STEPDOWN.{name}.{consumer}");
            subjects.extend(consumers.into_iter().map(subject));
        }
        self.ask(subjects).await
    }

    /// Deletes all consumers of the streams.
    pub async fn delete_consumers(&self) -> Result<()> {
        let context = jetstream::new(self.servers.ready().await?);
        for name in self.streams().await? {
            let stream = context.get_stream(&name).await?;
            let consumers: Vec<String> = stream.consumer_names().try_collect().await?;
            for consumer in consumers {
                stream.delete_consumer(&consumer).await?;
            }
        }
        Ok(())
    }

    /// Whether a replica has begun a delivery.
    pub fn has_begun(&self, name: &str) -> bool {
        let log = fs::metadata(self.directory.path().join(format!("{name}.begun")));
        log.is_ok_and(|log| log.len() > 0)
    }

    /// When each partition's deliveries have begun, on the machine's clock.
    pub fn beginnings(&self) -> Result<BTreeMap<u64, Vec<u64>>> {
        let mut begun = BTreeMap::<_, Vec<u64>>::new();
        for Beginning { at, partition, .. } in beginnings::read(self.directory.path())? {
            begun.entry(partition).or_default().push(at);
        }
        Ok(begun)
    }

    /// Sends empty requests at once, and returns to how many the server has replied with success.
    async fn ask(&self, subjects: Vec<String>) -> Result<usize> {
        let client = self.servers.ready().await?;
        let asked = subjects
            .into_iter()
            .map(|subject| client.request(subject, "".into()));
        let replies = join_all(asked).await.into_iter().flatten();
        let succeeded = replies.filter(|reply| {
            let text = String::from_utf8_lossy(&reply.payload);
            text.contains(r#""success":true"#)
        });
        Ok(succeeded.count())
    }

    /// The dead letters.
    pub async fn dead_letters(&self) -> Result<Dead> {
        let mut dead = Dead::new();
        if self.config.dead_letters.is_some() {
            let context = jetstream::new(self.servers.ready().await?);
            let stream = context
                .get_stream(format!("{}-dead", self.config.stream))
                .await?;
            for sequence in 1..=stream.cached_info().state.messages {
                let letter = stream.get_raw_message(sequence).await?;
                let header = |name| letter.headers.get(name).context("a header");
                let sequence = header(dead_letter::SEQUENCE)?.as_str().parse()?;
                let key = header(dead_letter::KEY)?.to_string();
                dead.entry(key).or_default().insert(sequence);
            }
        }
        Ok(dead)
    }

    /// Waits until the streams are empty, and judges.
    pub async fn check(&mut self) -> Result<Verdict> {
        self.check_within(PATIENCE).await
    }

    /// The same: that messages are left, and for this time no fewer, is a violation.
    pub async fn check_within(&mut self, limit: Duration) -> Result<Verdict> {
        let (mut least, mut end) = (None, Instant::now() + limit);
        let left = loop {
            let left = timeout(PATIENCE, self.left()).await;
            if let Ok(Ok(left)) = left
                && least.is_none_or(|least| left < least)
            {
                (least, end) = (Some(left), Instant::now() + limit);
            }
            if matches!(left, Ok(Ok(0))) || Instant::now() >= end {
                break left;
            }
            sleep(Duration::from_millis(100)).await;
        };
        let report = self.report().await?;
        ensure!(
            self.receiver.try_wait()?.is_none(),
            "the receiver has ended"
        );
        let mut verdict = Verdict::of(&Evidence {
            directory: self.directory.path(),
            report: &report,
            disturbed: &self.disturbed,
            dead: &self.dead_letters().await?,
            coalesce: self.config.coalesce,
        })?;
        if !matches!(left, Ok(Ok(0))) {
            let violation = format!("messages are left, for {limit:?} no fewer: {left:?}");
            verdict.violations.insert(0, violation);
        }
        for (name, child) in &mut self.replicas {
            if let Some(end) = child.try_wait()? {
                let violation = format!("the replica {name} has ended by itself, with {end}");
                verdict.violations.push(violation);
            }
        }
        Ok(verdict)
    }
}
