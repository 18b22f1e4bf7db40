//! Replicas in the process of a test.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test program uses a part"
)]

mod swallow;
mod warnings;

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Client, jetstream};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, TryStreamExt};
use keyqueue_nats::{
    Config, Delivery, Error, Event, Fence, Fleet, Outcome, Producer, Verdict, create,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use servers::nats::{Server, messages_of};
use servers::{Proxy, until};
pub(crate) use swallow::Swallow;
pub(crate) use warnings::Warnings;

/// A module with a test for each value of `coalesce`, each of which calls the function of this name.
macro_rules! for_each_coalesce {
    ($scenario:ident) => {
        mod $scenario {
            use super::*;

            #[tokio::test]
            async fn server() {
                super::$scenario(Coalesce::Server).await;
            }

            #[tokio::test]
            async fn client() {
                super::$scenario(Coalesce::Client).await;
            }

            #[tokio::test]
            async fn never() {
                super::$scenario(Coalesce::Never).await;
            }
        }
    };
}
pub(crate) use for_each_coalesce;

/// A configuration for tests: a short lease, few partitions, quick retries.
pub(crate) fn config() -> Config {
    Config {
        partitions: 4,
        lease: Duration::from_secs(2),
        backoff: Duration::from_millis(10),
        max_backoff: Duration::from_millis(100),
        ..Config::default()
    }
}

/// A delivery as a handler saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) key: String,
    pub(crate) payloads: Vec<String>,
    /// How many messages the delivery covers.
    pub(crate) covered: usize,
    pub(crate) sequence: u64,
    pub(crate) fence: Fence,
    pub(crate) attempt: u32,
}

impl Seen {
    pub(crate) fn of(delivery: &Delivery) -> Self {
        let payloads = delivery.messages().iter();
        Seen {
            key: delivery.key().to_owned(),
            payloads: payloads
                .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
                .collect(),
            covered: delivery.covered(),
            sequence: delivery.latest().sequence,
            fence: delivery.fence(),
            attempt: delivery.attempt(),
        }
    }
}

pub(crate) type Log = Arc<Mutex<Vec<Seen>>>;

pub(crate) fn seen(log: &Log) -> Vec<Seen> {
    log.lock().unwrap().clone()
}

/// The payloads of each key, in the order in which they were delivered.
pub(crate) fn payloads(log: &Log) -> BTreeMap<String, Vec<String>> {
    let mut payloads = BTreeMap::<_, Vec<_>>::new();
    for seen in seen(log) {
        payloads.entry(seen.key).or_default().extend(seen.payloads);
    }
    payloads
}

/// The same of payloads that are numbers.
pub(crate) fn numbers(log: &Log) -> BTreeMap<String, Vec<usize>> {
    let parse = |payload: String| payload.parse().unwrap();
    let payloads = payloads(log).into_iter();
    payloads
        .map(|(key, of)| (key, of.into_iter().map(parse).collect()))
        .collect()
}

/// A replica that runs in a task.
pub(crate) struct Replica {
    pub(crate) fleet: Fleet,
    pub(crate) running: JoinHandle<Result<(), Error>>,
}

impl Replica {
    /// A replica that logs its deliveries and succeeds.
    pub(crate) async fn logging(server: &Server, config: &Config, name: &str, log: &Log) -> Self {
        logged(server.client().await, config, name, log, |_| ready(DONE)).await
    }

    /// Waits until it owns this many partitions.
    pub(crate) async fn owns(&self, many: usize) {
        until("it owns its partitions", async || {
            self.fleet.owned().len() == many
        })
        .await;
    }

    pub(crate) async fn leave(self) {
        // Longer than the limits of all requests of a hand-over together.
        let left = self.fleet.leave(Duration::from_secs(20)).await;
        assert!(left.abandoned.is_empty(), "{left:?}");
        self.running.await.unwrap().unwrap();
    }
}

/// The number of messages in the fleet's streams.
pub(crate) async fn messages(server: &Server, config: &Config) -> u64 {
    let context = async_nats::jetstream::new(server.client().await);
    messages_of(&context, &config.stream).await.unwrap()
}

/// Waits until the stream is empty: acknowledgements are processed some time after they are sent.
pub(crate) async fn drained(server: &Server, config: &Config) {
    until("the stream is empty", async || {
        messages(server, config).await == 0
    })
    .await;
}

pub(crate) const DONE: Verdict<String> = Verdict::Ok(Outcome::Done);

/// One partition, so that all keys are in it.
pub(crate) fn one() -> Config {
    Config {
        partitions: 1,
        ..config()
    }
}

/// The same, and a stream of dead letters.
pub(crate) fn letters() -> Config {
    Config {
        dead_letters: Some("dead".into()),
        ..one()
    }
}

/// The same, and a key is given up.
pub(crate) fn one_retry() -> Config {
    Config {
        max_retries: Some(1),
        ..letters()
    }
}

pub(crate) async fn replica<F, R>(
    client: Client,
    config: &Config,
    name: &str,
    handler: F,
) -> Replica
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Verdict<String>> + Send + 'static,
{
    run(
        Fleet::join(client, config.clone(), name).await.unwrap(),
        handler,
    )
}

pub(crate) fn run<F, R>(fleet: Fleet, handler: F) -> Replica
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Verdict<String>> + Send + 'static,
{
    run_many(fleet, 8, handler)
}

/// With this many tasks.
pub(crate) fn run_many<F, R>(fleet: Fleet, tasks: usize, handler: F) -> Replica
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Verdict<String>> + Send + 'static,
{
    let running = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(tasks, handler).await }
    });
    Replica { fleet, running }
}

/// A replica that logs its deliveries.
pub(crate) async fn logged<F, R>(
    client: Client,
    config: &Config,
    name: &str,
    log: &Log,
    handler: F,
) -> Replica
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Verdict<String>> + Send + 'static,
{
    replica(client, config, name, logging(log, handler)).await
}

/// The handler, which also logs what it gets.
pub(crate) fn logging<R>(
    log: &Log,
    handler: impl Fn(Delivery) -> R + Send + Sync + 'static,
) -> impl Fn(Delivery) -> R + Send + Sync + 'static {
    let log = Arc::clone(log);
    move |delivery| {
        log.lock().unwrap().push(Seen::of(&delivery));
        handler(delivery)
    }
}

/// A handler that ends when the gate is open.
pub(crate) fn gated(
    gate: &watch::Sender<bool>,
) -> impl Fn(Delivery) -> BoxFuture<'static, Verdict<String>> + Send + Sync + use<> {
    let open = gate.subscribe();
    move |_| {
        let mut open = open.clone();
        Box::pin(async move {
            let _ = open.wait_for(|open| *open).await;
            DONE
        })
    }
}

/// The keys are in hand, and the process ends, this often.
pub(crate) async fn killed(server: &Server, config: &Config, times: usize, keys: usize) {
    for _ in 0..times {
        let (log, client) = (Log::default(), server.client().await);
        let killed = logged(client, config, "a", &log, |_| pending()).await;
        until("they are in hand", async || seen(&log).len() == keys).await;
        // So that all are counted.
        sleep(Duration::from_millis(100)).await;
        killed.running.abort();
    }
}

/// The next event of this kind.
pub(crate) async fn told<T>(
    events: &mut (impl Stream<Item = Event> + Unpin),
    kind: impl Fn(Event) -> Option<T>,
) -> T {
    loop {
        let event = events.next().await.expect("the replica runs");
        if let Some(told) = kind(event) {
            return told;
        }
    }
}

/// The names of the consumers of the first partition.
pub(crate) async fn consumers(client: &Client) -> Vec<String> {
    let stream = jetstream::new(client.clone()).get_stream("WORK-1-0").await;
    let names = stream.unwrap().consumer_names();
    names.try_collect().await.unwrap()
}

/// Waits until there is another consumer than the one by which the last message has come.
pub(crate) async fn another_consumer(client: &Client, log: &Log) {
    let former = format!("p0-e{}-1", seen(log).last().unwrap().fence.epoch);
    until("there is another consumer", async || {
        let names = consumers(client).await;
        names.first().is_some_and(|name| *name != former)
    })
    .await;
}

/// A client of the server behind this.
pub(crate) async fn through(proxy: &Proxy) -> Client {
    let address = proxy.address().to_string();
    async_nats::connect(address).await.unwrap()
}

/// A server with the streams of this configuration, a client and a producer. `None`: there is no server, and the test is skipped.
pub(crate) async fn created(config: &Config) -> Option<(Server, Client, Producer)> {
    let server = Server::start().await?;
    let client = server.client().await;
    create(&client, config).await.unwrap();
    let producer = Producer::new(client.clone(), config).unwrap();
    Some((server, client, producer))
}

pub(crate) async fn stored<K: AsRef<str>, P: Into<Bytes>>(
    producer: &Producer,
    batch: impl IntoIterator<Item = (K, P)>,
) {
    for stored in producer.add_batch(batch).await {
        stored.unwrap();
    }
}

/// The keys `<prefix>-<n>`, for [`stored`].
pub(crate) fn keys(prefix: &str, count: usize) -> impl Iterator<Item = (String, &'static str)> {
    (0..count).map(move |n| (format!("{prefix}-{n}"), ""))
}

pub(crate) fn count(log: &Log, prefix: &str) -> usize {
    let seen = seen(log).into_iter();
    seen.filter(|seen| seen.key.starts_with(prefix)).count()
}
