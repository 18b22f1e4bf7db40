//! A disk that is full, and is freed: what was confirmed is handled, what was refused is not, and no key ends with an older state.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::{self, Context, stream};
use keyqueue_nats::{Coalesce, Config, Error, Producer, create};
use servers::nats::{Server, Servers, messages_of};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use common::{DONE, Log, Replica, config, for_each_coalesce, logged, numbers};

const BALLAST: &str = "BALLAST";
const KEYS: usize = 50;

/// What became of the adds, by key. The payload is the number of the add.
#[derive(Default)]
struct Adds {
    confirmed: BTreeMap<String, BTreeSet<usize>>,
    /// Those that are not stored, as the error says.
    refused: BTreeSet<(String, usize)>,
    open: usize,
}

/// Adds the keys in turn until it is told to stop.
async fn add(producer: Producer, stop: Arc<AtomicBool>) -> Adds {
    let mut adds = Adds::default();
    let mut round = 0;
    while !stop.load(Relaxed) {
        let batch = (0..KEYS).map(|key| (key.to_string(), format!("{round:02000}")));
        for (key, stored) in producer.add_batch(batch).await.into_iter().enumerate() {
            let key = key.to_string();
            match stored {
                Ok(_) => drop(adds.confirmed.entry(key).or_default().insert(round)),
                Err(error) if error.to_string().contains("may be stored or not") => adds.open += 1,
                Err(Error::Refused { .. } | Error::Server { .. }) => {
                    adds.refused.insert((key, round));
                }
                Err(error) => panic!("{error}"),
            }
        }
        round += 1;
        sleep(Duration::from_millis(20)).await;
    }
    adds
}

/// Replicas that log, and producers that add, while the disk becomes full and is freed.
struct Bench {
    config: Config,
    context: Context,
    replica: Replica,
    log: Log,
    stop: Arc<AtomicBool>,
    adding: JoinHandle<Adds>,
}

impl Bench {
    async fn new(client: Client, coalesce: Coalesce) -> Bench {
        let config = Config {
            coalesce,
            ..config()
        };
        create(&client, &config).await.unwrap();
        let log = Log::default();
        // Slower than the adds: messages wait in the stream.
        let replica = logged(client.clone(), &config, "a", &log, async |_| {
            sleep(Duration::from_millis(5)).await;
            DONE
        })
        .await;
        let stop = Arc::new(AtomicBool::new(false));
        let producer = Producer::new(client.clone(), &config).unwrap();
        let producer = producer.patience(Duration::from_secs(2));
        let adding = tokio::spawn(add(producer, Arc::clone(&stop)));
        sleep(Duration::from_secs(1)).await;
        Bench {
            config,
            context: jetstream::new(client),
            replica,
            log,
            stop,
            adding,
        }
    }

    /// Goes on for a second, and judges when the streams are empty.
    async fn judge(self) {
        sleep(Duration::from_secs(1)).await;
        self.stop.store(true, Relaxed);
        let adds = self.adding.await.unwrap();
        let left = async || {
            messages_of(&self.context, &self.config.stream)
                .await
                .unwrap()
        };
        let end = Instant::now() + Duration::from_secs(20);
        while left().await > 0 && Instant::now() < end {
            sleep(Duration::from_millis(20)).await;
        }
        let handled = numbers(&self.log);
        let confirmed: usize = adds.confirmed.values().map(BTreeSet::len).sum();
        let coalesce = self.config.coalesce;
        let (refused, open) = (adds.refused.len(), adds.open);
        println!("{coalesce:?}: {confirmed} confirmed, {refused} refused, {open} open");
        assert!(refused + open > 0, "the disk was full");
        let mut wrong = Vec::new();
        let left = left().await;
        if left > 0 {
            wrong.push(format!("{left} messages are left"));
        }
        for (key, rounds) in &adds.confirmed {
            let handled = &handled[key];
            let last = *rounds.last().unwrap();
            let newest = handled.iter().max().copied();
            if newest < Some(last) {
                wrong.push(format!("{key}: {last} is lost, the newest was {newest:?}"));
            }
            if handled.last().copied() != newest {
                wrong.push(format!("{key}: the last is not the newest, {newest:?}"));
            }
            let falls = handled.windows(2).filter(|pair| pair[1] < pair[0]);
            wrong.extend(falls.map(|pair| format!("{key}: {} after {}", pair[1], pair[0])));
            let lost: Vec<_> = rounds
                .iter()
                .filter(|round| !handled.contains(round))
                .collect();
            if coalesce == Coalesce::Never && !lost.is_empty() {
                wrong.push(format!("{key}: {lost:?} are lost"));
            }
        }
        for (key, round) in &adds.refused {
            if handled.get(key).is_some_and(|all| all.contains(round)) {
                wrong.push(format!("{key}: {round} was refused, and handled"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{}: {:#?}",
            wrong.len(),
            &wrong[..wrong.len().min(10)]
        );
        self.replica.leave().await;
    }
}

/// The server's limit is reached by another stream.
async fn full_and_freed(coalesce: Coalesce) {
    let Some(server) = Server::start_with("max_file_store: 4000000").await else {
        return;
    };
    let bench = Bench::new(server.client().await, coalesce).await;
    let ballast = stream::Config {
        name: BALLAST.into(),
        subjects: vec![BALLAST.into()],
        ..Default::default()
    };
    let ballast = bench.context.create_stream(ballast).await.unwrap();
    let full = Instant::now() + bench.config.lease + Duration::from_secs(1);
    while Instant::now() < full {
        // Fills what acknowledgements free.
        let publishing = bench.context.publish(BALLAST, vec![0; 20_000].into());
        if publishing.await.unwrap().await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    }
    ballast.purge().await.unwrap();
    bench.judge().await;
}

for_each_coalesce!(full_and_freed);

/// A file system of a few megabytes.
struct Disk(TempDir);

impl Disk {
    /// `None`: this process may not mount one.
    fn mount() -> Option<Disk> {
        let directory = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(directory.path())
            .status();
        mount
            .is_ok_and(|status| status.success())
            .then_some(Disk(directory))
    }

    /// Writes a file until there is no room.
    fn fill(&self) {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.ballast())
            .unwrap();
        for size in [1 << 16, 1 << 10, 1] {
            while file.write(&vec![0; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.0.path().join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

/// The disk itself has no room, and the server, which may have given up its streams, is restarted when it has room again.
async fn without_room(coalesce: Coalesce) {
    let Some(disk) = Disk::mount() else {
        println!("not tested: this process may not mount a file system");
        return;
    };
    let Some(mut servers) = Servers::prepare(disk.0.path(), 1).unwrap() else {
        return;
    };
    servers.start().unwrap();
    let bench = Bench::new(servers.ready().await.unwrap(), coalesce).await;
    let full = Instant::now() + bench.config.lease + Duration::from_secs(1);
    while Instant::now() < full {
        disk.fill();
        sleep(Duration::from_millis(20)).await;
    }
    disk.free();
    servers.kill(0);
    servers.start().unwrap();
    servers.ready().await.unwrap();
    sleep(Duration::from_secs(2)).await;
    bench.judge().await;
    drop(servers);
}

for_each_coalesce!(without_room);
