//! librdkafka's mock cluster: a broker in this process.

#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::HashSet;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue_kafka::{Builder, Consumer, Ended, Error, IntoVerdict, IntoVerdicts, Place, Record};
use rdkafka::ClientConfig;
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

pub(crate) type Cluster = MockCluster<'static, DefaultProducerContext>;

pub(crate) fn cluster(partitions: i32) -> Cluster {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    cluster
        .create_topic("topic", partitions, 1)
        .expect("a topic");
    cluster
}

/// Two brokers, the first of which has the group.
pub(crate) fn two_brokers() -> Cluster {
    let cluster = Cluster::new(2).expect("a mock cluster");
    coordinate(&cluster, 1);
    cluster
}

/// Has a broker coordinate the group.
pub(crate) fn coordinate(cluster: &Cluster, broker: i32) {
    let group = MockCoordinator::Group("group".to_owned());
    cluster.coordinator(group, broker).expect("a broker");
}

/// Creates a topic whose partitions these brokers lead.
pub(crate) fn create(cluster: &Cluster, topic: &str, leaders: &[i32]) {
    let partitions = i32::try_from(leaders.len()).expect("few");
    let created = cluster.create_topic(topic, partitions, 1);
    created.expect("a topic");
    for (partition, broker) in (0..).zip(leaders) {
        let led = cluster.partition_leader(topic, partition, Some(*broker));
        led.expect("a broker");
    }
}

/// Has this broker lead a partition of the topic, or none.
pub(crate) fn lead(cluster: &Cluster, partition: i32, broker: Option<i32>) {
    let led = cluster.partition_leader("topic", partition, broker);
    led.expect("a broker");
}

/// Sets how long a broker takes to reply.
pub(crate) fn round_trip(cluster: &Cluster, broker: i32, time: Duration) {
    let set = cluster.broker_round_trip_time(broker, time);
    set.expect("a broker");
}

/// Has the group fence the next member that sends a heartbeat.
pub(crate) fn fence(cluster: &Cluster) {
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID;
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[error]);
}

/// A consumer of the topic with short times.
pub(crate) fn builder(cluster: &Cluster) -> Builder {
    let limiter = ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_millis(20));
    Consumer::builder(&cluster.bootstrap_servers(), "group")
        .topics(["topic"])
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "100")
        .set("fetch.wait.max.ms", "20")
        .commit_every(Duration::from_millis(20))
        .backoff(limiter.expect("in range"))
}

/// The same in a group whose session only the brokers know, and a short one.
pub(crate) fn of_brokers(cluster: &Cluster) -> Builder {
    Consumer::builder(&cluster.bootstrap_servers(), "group")
        .topics(["topic"])
        .set("group.protocol", "consumer")
        .set("fetch.wait.max.ms", "20")
        .commit_every(Duration::from_millis(20))
        .brokers_session(Duration::from_secs(1))
}

/// Produces to partition 0, in order.
pub(crate) async fn produce(cluster: &Cluster, records: &[(Option<&str>, Option<&str>)]) {
    produce_to(cluster, 0, records).await;
}

pub(crate) async fn produce_to(
    cluster: &Cluster,
    partition: i32,
    records: &[(Option<&str>, Option<&str>)],
) {
    produce_into(cluster, "topic", partition, records).await;
}

pub(crate) async fn produce_into(
    cluster: &Cluster,
    topic: &str,
    partition: i32,
    records: &[(Option<&str>, Option<&str>)],
) {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("message.max.bytes", "4000000")
        .create()
        .expect("a producer");
    let mut sent = Vec::new();
    for (key, payload) in records {
        let mut record = FutureRecord::<str, str>::to(topic).partition(partition);
        record.key = *key;
        record.payload = *payload;
        sent.push(
            producer
                .send_result(record)
                .map_err(|(error, _)| error)
                .expect("room"),
        );
    }
    for sent in sent {
        sent.await.expect("a result").expect("stored");
    }
}

/// A run in a task of its own.
pub(crate) struct Run {
    pub(crate) consumer: Consumer,
    stop: Arc<Notify>,
    task: JoinHandle<Result<Ended, Error>>,
}

/// How long what runs may take at its end.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) fn run<F, R>(builder: Builder, f: F) -> Run
where
    F: Fn(Record) -> R + Send + Sync + 'static,
    R: Future<Output: IntoVerdict> + Send + 'static,
{
    spawn(builder, |consumer, stop| async move {
        consumer.run_until(stop.notified(), GRACE, f).await
    })
}

/// The same with batches of up to `max` records.
pub(crate) fn run_batches<F, R>(builder: Builder, max: usize, f: F) -> Run
where
    F: Fn(Vec<Record>) -> R + Send + Sync + 'static,
    R: Future<Output: IntoVerdicts> + Send + 'static,
{
    spawn(builder, move |consumer, stop| async move {
        let signal = stop.notified();
        consumer.run_batches_until(signal, GRACE, max, f).await
    })
}

fn spawn<R>(builder: Builder, run: impl FnOnce(Consumer, Arc<Notify>) -> R) -> Run
where
    R: Future<Output = Result<Ended, Error>> + Send + 'static,
{
    let consumer = builder.build().expect("settings");
    let stop = Arc::new(Notify::new());
    let task = tokio::spawn(run(consumer.clone(), Arc::clone(&stop)));
    Run {
        consumer,
        stop,
        task,
    }
}

impl Run {
    pub(crate) async fn end(self) -> Result<Ended, Error> {
        self.stop.notify_one();
        self.task.await.expect("no panic")
    }

    /// Waits for the end without a signal.
    pub(crate) async fn ended(self) -> Result<Ended, Error> {
        self.task.await.expect("no panic")
    }

    /// Drops the future of the run.
    pub(crate) fn drop_future(&self) {
        self.task.abort();
    }
}

/// Whether all of the first partition below this offset is finished.
pub(crate) fn is_finished(consumer: &Consumer, base: u64) -> bool {
    let partitions = consumer.status().partitions;
    partitions.first().is_some_and(|first| first.base == base)
}

/// Whether this offset of the first partition is committed.
pub(crate) fn is_committed(consumer: &Consumer, offset: i64) -> bool {
    let partitions = consumer.status().partitions;
    let first = partitions.first();
    first.is_some_and(|first| first.committed == Some(offset))
}

/// Whether nothing begins any more, in no partition.
pub(crate) fn is_leaving(consumer: &Consumer) -> bool {
    consumer.status().partitions.iter().all(|of| of.is_leaving)
}

pub(crate) fn has_partitions(consumer: &Consumer) -> bool {
    !consumer.status().partitions.is_empty()
}

/// Counts a handler while it runs, also one that is cancelled.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn new(now: &Arc<AtomicUsize>) -> Self {
        now.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(now))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What handlers wait at until it is opened.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Gate(Arc::new(Semaphore::new(0)))
    }
}

impl Gate {
    pub(crate) async fn pass(&self) {
        // An error: it is open.
        _ = self.0.acquire().await;
    }

    pub(crate) fn open(&self) {
        self.0.close();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.is_closed()
    }
}

/// What handlers have noted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, note: impl Into<String>) {
        self.0.lock().expect("no panic").push(note.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

/// A limiter that knows the records that have failed, and delays none.
#[derive(Clone, Default)]
pub(crate) struct Knows(Arc<Mutex<HashSet<Place>>>);

impl Knows {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

impl RateLimiter<Place> for Knows {
    fn when(&self, key: &Place) -> Duration {
        self.0.lock().expect("no panic").insert(key.clone());
        Duration::ZERO
    }

    fn forget(&self, key: &Place) {
        self.0.lock().expect("no panic").remove(key);
    }

    fn num_requeues(&self, _: &Place) -> u32 {
        0
    }
}

/// Runs handlers that note the topic, the partition and the payload, and never end if that is `stuck`.
pub(crate) fn noting(builder: Builder) -> (Run, Notes) {
    let notes = Notes::default();
    let of_run = notes.clone();
    let run = run(builder, move |record: Record| {
        let (topic, partition) = (record.topic(), record.partition());
        let payload = text(record.payload());
        of_run.add(format!("{topic} {partition} {payload}"));
        async move {
            if payload == "stuck" {
                pending::<()>().await;
            }
        }
    });
    (run, notes)
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(60) * rig::patience();
    while !condition() {
        assert!(tokio::time::Instant::now() < end, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn text(bytes: Option<&[u8]>) -> String {
    bytes.map_or("-".to_owned(), |bytes| {
        String::from_utf8_lossy(bytes).into_owned()
    })
}
