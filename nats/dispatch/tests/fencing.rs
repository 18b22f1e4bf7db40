//! The example of nats/docs/fencing.md: the process is stopped at the two moments that matter, for longer than its lease.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use async_nats::jetstream;
use keyqueue_nats::{Config, Fence, Producer, create};
use rustix::process::{Pid, Signal, kill_process};
use servers::nats::Server;
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

const KEY: &str = "host-17";

/// A process of the example.
struct Replica {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Replica {
    fn start(
        server: &Server,
        config: &NamedTempFile,
        name: &str,
        times: [&str; 2],
    ) -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fencing"))
            .args(["--servers", &server.url(), "--name", name])
            .args(["--work", times[0], "--way", times[1], "--config"])
            .arg(config.path())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().context("its output")?;
        Ok(Replica {
            child,
            lines: BufReader::new(output).lines(),
        })
    }

    /// Waits for a line about the key that begins with one of these words, and returns the word and the fence.
    async fn says(&mut self, words: &[&str]) -> Result<(String, Fence)> {
        let patience = Duration::from_secs(60);
        loop {
            let line = timeout(patience, self.lines.next_line()).await??;
            let line = line.context("it runs")?.replace(',', "");
            println!("{line}");
            let mut parts = line.split(' ');
            let (word, _key, fence) = (parts.next(), parts.next(), parts.next());
            if let Some(word) = word.filter(|word| words.contains(word)) {
                return Ok((word.to_owned(), fence.context("a fence")?.parse()?));
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().context("it runs")?;
        let pid = Pid::from_raw(i32::try_from(id)?).context("a process")?;
        Ok(kill_process(pid, signal)?)
    }
}

/// Stops the replica a when it says this, until b has written, and returns what a says then. In the end, the resource has what b
/// has written.
async fn stopped_when(says: &str) -> Result<Option<String>> {
    let Some(server) = Server::start().await else {
        return Ok(None);
    };
    let config = Config {
        partitions: 1,
        lease: Duration::from_secs(2),
        ..Config::default()
    };
    let file = NamedTempFile::new()?;
    serde_json::to_writer(&file, &config)?;
    let client = server.client().await;
    create(&client, &config).await?;
    let producer = Producer::new(client.clone(), &config)?;
    producer.add(KEY, "first").await?;

    let mut a = Replica::start(&server, &file, "a", ["500", "500"])?;
    let (_, old) = a.says(&[says]).await?;
    a.signal(Signal::STOP)?;
    producer.add(KEY, "second").await?;
    let mut b = Replica::start(&server, &file, "b", ["0", "0"])?;
    let (_, new) = b.says(&["stored"]).await?;
    assert!(new > old, "{new} after {old}");
    a.signal(Signal::CONT)?;
    let (said, fence) = a.says(&["leaves", "stored", "refused"]).await?;
    assert_eq!(fence, old);

    let states = jetstream::new(client).get_key_value("states").await?;
    let record = states.get(KEY).await?.context("a state")?;
    assert_eq!(record, format!("{new} second"));
    Ok(Some(said))
}

/// N9: between its check and its write. Only the resource can refuse that.
#[tokio::test]
async fn a_late_write_is_refused_by_the_resource() -> Result<()> {
    if let Some(said) = stopped_when("writes").await? {
        assert_eq!(said, "refused");
    }
    Ok(())
}

/// N9: while it works. The check spares the write.
#[tokio::test]
async fn a_replica_that_was_stopped_while_it_worked_does_not_write() -> Result<()> {
    if let Some(said) = stopped_when("begins").await? {
        assert_eq!(said, "leaves");
    }
    Ok(())
}
