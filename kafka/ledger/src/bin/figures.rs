//! Measures keyqueue-kafka, a plain consumer of rdkafka, and Confluent's parallel consumer, one after the other on one broker, and
//! prints tables: `kafka/broker.sh peer && cargo run --release -p ledger --bin figures`.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use keyqueue_kafka::{Consumer, Record, Room};
use ledger::lab::Lab;
use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};
use servers::kafka::{Brokers, jars};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

/// Tables of records a second, and of latencies
#[derive(Parser)]
struct Options {
    /// Rounds, of which the medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only the rows whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// This many times fewer records
    #[arg(long, default_value_t = 1)]
    less: u64,
    /// Leave Confluent's out
    #[arg(long)]
    without_peer: bool,
}

#[derive(Clone, Copy)]
struct Row {
    partitions: i32,
    keys: u64,
    /// Milliseconds.
    work: u64,
    concurrency: usize,
    records: u64,
}

/// Counts down, and notes when the first record came and when the last was done.
#[derive(Default)]
struct Count {
    left: AtomicU64,
    first: OnceLock<Instant>,
    last: OnceLock<Instant>,
    end: Notify,
}

impl Count {
    fn of(records: u64) -> Arc<Self> {
        let count = Count::default();
        count.left.store(records, Ordering::Relaxed);
        Arc::new(count)
    }

    fn begun(&self) {
        if self.first.get().is_none() {
            _ = self.first.set(Instant::now());
        }
    }

    fn done(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            _ = self.last.set(Instant::now());
            self.end.notify_one();
        }
    }

    fn rate(&self, records: u64) -> f64 {
        let (first, last) = (self.first.get(), self.last.get());
        let took = first
            .zip(last)
            .map_or(Duration::MAX, |(first, last)| *last - *first);
        records as f64 / took.as_secs_f64()
    }
}

async fn handle(count: &Count, work: u64) {
    count.begun();
    if work > 0 {
        sleep(Duration::from_millis(work)).await;
    }
    count.done();
}

fn ours(servers: &str, topic: &str, group: &str, row: Row) -> Result<f64> {
    let count = Count::of(row.records);
    let of_run = Arc::clone(&count);
    let consumer = Consumer::builder(servers, group)
        .topics([topic])
        .concurrency(row.concurrency);
    let consumer = consumer.room(Room::records(50_000)).build()?;
    Runtime::new()?.block_on(consumer.run_until(
        count.end.notified(),
        Duration::ZERO,
        move |_: Record| {
            let count = Arc::clone(&of_run);
            async move { handle(&count, row.work).await }
        },
    ))?;
    Ok(count.rate(row.records))
}

/// A stream consumer. With `is_split` each record is copied for the task of its partition, which handles one after the other;
/// without, all are handled one after the other, where they are.
fn plain(servers: &str, topic: &str, group: &str, row: Row, is_split: bool) -> Result<f64> {
    let count = Count::of(row.records);
    let runtime = Runtime::new()?;
    let _context = runtime.enter();
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "5")
        .create()?;
    consumer.subscribe(&[topic])?;
    runtime.block_on(async {
        let mut tasks = HashMap::new();
        while count.left.load(Ordering::Relaxed) > 0 {
            let received = tokio::select! {
                received = consumer.recv() => received?,
                () = count.end.notified() => break,
            };
            if !is_split {
                handle(&count, row.work).await;
                continue;
            }
            let task = || {
                let (sender, mut records) = mpsc::channel::<OwnedMessage>(1000);
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    while records.recv().await.is_some() {
                        handle(&count, row.work).await;
                    }
                });
                sender
            };
            let sender = tasks.entry(received.partition()).or_insert_with(task);
            sender.send(received.detach()).await?;
        }
        anyhow::Ok(())
    })?;
    Ok(count.rate(row.records))
}

fn peer(servers: &str, topic: &str, group: &str, row: Row) -> Result<f64> {
    let jars = jars("parallel-consumer-0.5.3.3").context("kafka/broker.sh peer installs it")?;
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peer/Peer.java");
    let output = Command::new("java")
        .args([
            "-Xmx700m",
            "-cp",
            &format!("{}/*", jars.display()),
            source,
            servers,
            topic,
            group,
        ])
        .args([
            row.concurrency.to_string(),
            row.work.to_string(),
            row.records.to_string(),
        ])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    last.parse()
        .with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns how many records a second a consumer of this group handles.
type Measure<'m> = dyn Fn(&str) -> Result<f64> + 'm;

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Milliseconds from the producer's call to the handler, at 500 records a second: median and p99.
fn latency(
    servers: &str,
    topic: &str,
    group: &str,
    is_ours: bool,
    records: u64,
) -> Result<(f64, f64)> {
    let latencies = Arc::new(Mutex::new(Vec::new()));
    let count = Count::of(records);
    let producer: ThreadedProducer<_> = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("linger.ms", "1")
        .create()?;
    let note = |count: &Arc<Count>, latencies: &Arc<Mutex<Vec<f64>>>| {
        let (count, latencies) = (Arc::clone(count), Arc::clone(latencies));
        move |payload: Option<&[u8]>| {
            let sent = payload
                .and_then(|bytes| bytes.try_into().ok())
                .map(u128::from_le_bytes);
            let took = now().saturating_sub(sent.unwrap_or_default());
            latencies
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(took as f64 / 1e6);
            count.done();
        }
    };
    let heard = note(&count, &latencies);
    let topic_of_producer = topic.to_owned();
    let produce = move || {
        // The consumer has joined by then.
        std::thread::sleep(Duration::from_secs(6));
        let began = Instant::now();
        for number in 0..records {
            let due = began + Duration::from_micros(2000 * number);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let (key, payload) = (format!("a{}", number % 100), now().to_le_bytes());
            let record = BaseRecord::to(&topic_of_producer)
                .key(&key)
                .payload(&payload[..]);
            producer
                .send(record)
                .map_err(|(error, _)| error)
                .expect("room");
        }
        _ = producer.flush(Duration::from_secs(10));
    };
    let producing = std::thread::spawn(produce);
    if is_ours {
        let consumer = Consumer::builder(servers, group)
            .topics([topic])
            .set("auto.offset.reset", "latest")
            .build()?;
        Runtime::new()?.block_on(consumer.run_until(
            count.end.notified(),
            Duration::ZERO,
            move |record: Record| {
                heard(record.payload());
                async {}
            },
        ))?;
    } else {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", servers)
            .set("group.id", group)
            .set("auto.offset.reset", "latest");
        let runtime = Runtime::new()?;
        let _context = runtime.enter();
        let consumer: StreamConsumer = config.create()?;
        consumer.subscribe(&[topic])?;
        runtime.block_on(async {
            while count.left.load(Ordering::Relaxed) > 0 {
                if let Ok(message) = consumer.recv().await {
                    heard(message.payload());
                }
            }
        });
    }
    _ = producing.join();
    let mut latencies = latencies
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    latencies.sort_by(f64::total_cmp);
    ensure!(!latencies.is_empty(), "nothing came");
    Ok((
        latencies[latencies.len() / 2],
        latencies[latencies.len() * 99 / 100],
    ))
}

fn now() -> u128 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
}

fn main() -> Result<()> {
    let options = Options::parse();
    let Some(brokers) = Brokers::start(1)? else {
        return Ok(());
    };
    let servers = brokers.servers();
    let row = |partitions, keys, work, concurrency, records: u64| Row {
        partitions,
        keys,
        work,
        concurrency,
        records: records / options.less,
    };
    let rows = [
        row(1, 200, 0, 64, 400_000),
        row(1, 10_000, 0, 64, 400_000),
        row(4, 200, 0, 64, 400_000),
        row(4, 10_000, 0, 64, 400_000),
        row(1, 200, 5, 100, 60_000),
        row(1, 10_000, 5, 1000, 200_000),
        row(4, 10_000, 5, 1000, 200_000),
    ];
    println!(
        "| records a second | a loop | a task for each partition | keyqueue-kafka | Confluent's | of a loop | of tasks | of Confluent's |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for row in rows {
        let Row {
            partitions,
            keys,
            work,
            concurrency,
            records,
        } = row;
        let name =
            format!("{partitions} partitions, {keys} keys, {work} ms, {concurrency} at a time");
        if !name.contains(&options.only) {
            continue;
        }
        let topic = format!("t{partitions}-{keys}-{work}");
        let mut lab = Lab::new("".as_ref(), &servers, &topic, partitions)?;
        lab.producing.produce(records, keys, 100)?;
        lab.producing.flush()?;
        let mut rates = BTreeMap::<_, Vec<f64>>::new();
        for round in 0..options.rounds {
            // Handled one after the other, a plain consumer would need minutes.
            let few = Row {
                records: if work > 0 {
                    records.min(600 * partitions as u64)
                } else {
                    records
                },
                ..row
            };
            let tasks = |group: &str| plain(&servers, &topic, group, few, true);
            let one = |group: &str| plain(&servers, &topic, group, few, false);
            let ours = |group: &str| ours(&servers, &topic, group, row);
            let peer = |group: &str| peer(&servers, &topic, group, row);
            let all: [(_, &Measure<'_>); 4] = [
                ("plain", &tasks),
                ("loop", &one),
                ("ours", &ours),
                ("peer", &peer),
            ];
            for (who, rate) in all {
                if who == "peer" && options.without_peer {
                    continue;
                }
                let rate = rate(&format!("{topic}-{who}-{round}"))?;
                rates.entry(who).or_default().push(rate);
            }
        }
        let of = |who: &str| {
            rates
                .get(who)
                .map_or(f64::NAN, |rates| median(rates.clone()))
        };
        let (one, plain, ours, peer) = (of("loop"), of("plain"), of("ours"), of("peer"));
        println!(
            "| {name} | {one:.0} | {plain:.0} | {ours:.0} | {peer:.0} | {:.2}x | {:.2}x | {:.2}x |",
            ours / one,
            ours / plain,
            ours / peer
        );
        lab.delete(&topic)?;
    }
    if "latency".contains(&options.only) {
        println!(
            "\n| ms from produce to handler, 500 a second | median | p99 |\n| --- | --- | --- |"
        );
        let lab = Lab::new("".as_ref(), &servers, "latency", 4)?;
        for (name, is_ours) in [("plain", false), ("keyqueue-kafka", true)] {
            let mut rounds = Vec::new();
            for round in 0..options.rounds {
                rounds.push(latency(
                    &servers,
                    &lab.topic,
                    &format!("latency-{name}-{round}"),
                    is_ours,
                    3000,
                )?);
            }
            let (medians, p99s): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
            println!("| {name} | {:.1} | {:.1} |", median(medians), median(p99s));
        }
    }
    Ok(())
}
