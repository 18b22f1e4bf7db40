//! Real brokers of Apache Kafka on this machine: one, or a cluster of three.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::Supervised;

/// As in `kafka/broker.sh`.
const JARS: &str = "kafka-4.2.2";
/// What a broker logs when it serves.
const STARTED: &str = "Kafka Server started";
/// Where a broker logs, and what.
const LOG: &str = "\
status = error
appender.c.type = Console
appender.c.name = C
appender.c.layout.type = PatternLayout
appender.c.layout.pattern = %d %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.c.ref = C
logger.s.name = kafka.server.KafkaRaftServer
logger.s.level = INFO
";

/// Brokers with their logs in a temporary directory. Dropping them, or the end of this process, kills them.
#[derive(Debug)]
pub struct Brokers {
    jars: PathBuf,
    ports: Vec<u16>,
    processes: Vec<Option<Supervised>>,
    directory: PathBuf,
    /// Removes the directory at the end, after the brokers.
    _janitor: Supervised,
}

/// A folder of jars that `kafka/broker.sh` has installed.
pub fn jars(name: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let jars = cache.join("keyqueue/jars").join(name);
    jars.join("complete").is_file().then_some(jars)
}

impl Brokers {
    /// Starts `count` brokers, 1 or 3, and waits until they serve. `None`: there are no jars, or no java.
    pub fn start(count: usize) -> Result<Option<Self>> {
        let has_java = || Command::new("java").arg("-version").output().is_ok();
        let Some(jars) = jars(JARS).filter(|_| has_java()) else {
            rig::skipped("there is no broker; kafka/broker.sh installs it");
            return Ok(None);
        };
        let directory = tempfile::Builder::new().prefix("kafka-").tempdir()?.keep();
        let log = directory.join("janitor.log");
        let janitor = Supervised::start(Path::new("sleep"), &["infinity"], &log, Some(&directory))?;
        let ports = rig::free_ports::<6>()?;
        let (clients, controllers) = (&ports[..count], &ports[count..2 * count]);
        fs::write(directory.join("log4j2.properties"), LOG)?;
        let voter = |(index, port): (usize, &u16)| format!("{}@127.0.0.1:{port}", index + 1);
        let voters: Vec<_> = controllers.iter().enumerate().map(voter).collect();
        for index in 0..count {
            let own = directory.join(format!("broker-{index}"));
            fs::create_dir_all(&own)?;
            let (port, controller) = (clients[index], controllers[index]);
            let replicas = count.min(3);
            let in_sync = replicas.min(2);
            let settings = format!(
                "process.roles=broker,controller
node.id={}
controller.quorum.voters={}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={}
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=1
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
share.coordinator.state.topic.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.min.isr={in_sync}
default.replication.factor={replicas}
min.insync.replicas={in_sync}
group.initial.rebalance.delay.ms=0
group.consumer.min.session.timeout.ms=3000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=1000
group.consumer.heartbeat.interval.ms=1000
log.cleaner.backoff.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
log.initial.task.delay.ms=500
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
background.threads=2
",
                index + 1,
                voters.join(","),
                own.join("data").display(),
            );
            fs::write(own.join("server.properties"), settings)?;
        }
        let mut brokers = Brokers {
            jars,
            ports: clients.to_vec(),
            processes: (0..count).map(|_| None).collect(),
            directory,
            _janitor: janitor,
        };
        for index in 0..count {
            brokers.format(index)?;
        }
        brokers.revive()?;
        Ok(Some(brokers))
    }

    /// The addresses for clients.
    pub fn servers(&self) -> String {
        let address = |port: &u16| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Kills one (SIGKILL). Its log stays.
    pub fn kill(&mut self, index: usize) {
        self.processes[index] = None;
    }

    /// Starts those that do not run, and waits until they serve.
    pub fn revive(&mut self) -> Result<()> {
        let mut started = Vec::new();
        for index in 0..self.processes.len() {
            if self.processes[index].is_none() {
                let own = self.own(index);
                let log = own.join("log");
                _ = fs::remove_file(&log);
                let mut arguments = self.java(if self.ports.len() > 1 { "400m" } else { "640m" });
                arguments.extend([
                    "kafka.Kafka".into(),
                    own.join("server.properties").display().to_string(),
                ]);
                let process = Supervised::start(Path::new("java"), &arguments, &log, None);
                self.processes[index] = Some(process.context("a broker starts")?);
                started.push(log);
            }
        }
        let end = Instant::now() + Duration::from_secs(120) * rig::patience();
        for log in started {
            let text = || fs::read_to_string(&log).unwrap_or_default();
            while !text().contains(STARTED) {
                ensure!(Instant::now() < end, "a broker does not start: {}", text());
                sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// The first segment of a partition, such as `topic-0`, for a test that cuts it while its broker does not run.
    pub fn segment(&self, index: usize, partition: &str) -> PathBuf {
        let partitions = self.own(index).join("data");
        partitions.join(partition).join("00000000000000000000.log")
    }

    /// The log of a broker, for a test that fails.
    pub fn log(&self, index: usize) -> String {
        fs::read_to_string(self.own(index).join("log")).unwrap_or_default()
    }

    fn own(&self, index: usize) -> PathBuf {
        self.directory.join(format!("broker-{index}"))
    }

    fn format(&self, index: usize) -> Result<()> {
        let settings = self
            .own(index)
            .join("server.properties")
            .display()
            .to_string();
        let mut arguments = self.java("200m");
        arguments.extend(
            [
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "a2V5cXVldWUta2Fma2EtMQ",
                "-c",
            ]
            .map(Into::into),
        );
        let formatted = Command::new("java")
            .args(arguments)
            .arg(settings)
            .output()?;
        ensure!(
            formatted.status.success(),
            "{}{}",
            String::from_utf8_lossy(&formatted.stdout),
            String::from_utf8_lossy(&formatted.stderr)
        );
        Ok(())
    }

    fn java(&self, heap: &str) -> Vec<String> {
        vec![
            format!("-Xmx{heap}"),
            "-XX:+UseSerialGC".into(),
            "-XX:TieredStopAtLevel=1".into(),
            "-XX:-UsePerfData".into(),
            format!(
                "-Dlog4j2.configurationFile={}",
                self.directory.join("log4j2.properties").display()
            ),
            "-cp".into(),
            format!("{}/*", self.jars.display()),
        ]
    }
}
