//! Replicas in this process, on a real server: what a handler gets, what its verdict does, and how partitions
//! move.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use keyqueue::worker::{Outcome, Verdict};
use keyqueue_nats::{Coalesce, Config, Delivery, Error, Event, Fence, Fleet, Producer, create};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use common::{Server, eventually};

/// A configuration for tests: a short lease, few partitions, quick retries.
fn config() -> Config {
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
struct Seen {
    key: String,
    payloads: Vec<String>,
    sequence: u64,
    fence: Fence,
    attempt: u32,
}

impl Seen {
    fn of(delivery: &Delivery) -> Self {
        let payloads = delivery.messages().iter();
        Seen {
            key: delivery.key().to_owned(),
            payloads: payloads
                .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
                .collect(),
            sequence: delivery.latest().sequence,
            fence: delivery.fence(),
            attempt: delivery.attempt(),
        }
    }
}

type Log = Arc<Mutex<Vec<Seen>>>;

fn seen(log: &Log) -> Vec<Seen> {
    log.lock().unwrap().clone()
}

/// A replica that runs in a task.
struct Replica {
    fleet: Fleet,
    running: JoinHandle<Result<(), Error>>,
}

impl Replica {
    async fn start<F, R>(server: &Server, config: &Config, name: &str, handler: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = Verdict<String>> + Send + 'static,
    {
        let fleet = Fleet::join(server.client().await, config.clone(), name)
            .await
            .unwrap();
        let running = tokio::spawn({
            let fleet = fleet.clone();
            async move { fleet.run(8, handler).await }
        });
        Replica { fleet, running }
    }

    /// A replica that logs its deliveries and succeeds.
    async fn logging(server: &Server, config: &Config, name: &str, log: &Log) -> Self {
        let log = Arc::clone(log);
        Self::start(server, config, name, move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            async { Verdict::Ok(Outcome::Done) }
        })
        .await
    }

    async fn leave(self) {
        let left = self.fleet.leave(Duration::from_secs(10)).await;
        assert!(left.abandoned.is_empty(), "{left:?}");
        self.running.await.unwrap().unwrap();
    }
}

async fn messages(server: &Server, config: &Config) -> u64 {
    let context = async_nats::jetstream::new(server.client().await);
    let stream = context.get_stream(&config.stream).await.unwrap();
    stream.get_info().await.unwrap().state.messages
}

/// Waits until the stream is empty: acknowledgements are processed some time after they are sent.
async fn drained(server: &Server, config: &Config) {
    eventually("the stream is empty", async || {
        messages(server, config).await == 0
    })
    .await;
}

#[tokio::test]
async fn each_key_is_delivered_and_its_message_is_acknowledged() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = config();
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    let keys: Vec<String> = (0..50).map(|n| format!("key {n} / ü.*>")).collect();
    let sequences = producer
        .add_batch(keys.iter().map(|key| (key, "state")))
        .await;

    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    drained(&server, &config).await;
    let mut deliveries = seen(&log);
    deliveries.sort_by_key(|delivery| delivery.sequence);
    assert_eq!(deliveries.len(), keys.len());
    for ((delivery, key), sequence) in deliveries.iter().zip(&keys).zip(sequences) {
        assert_eq!(&delivery.key, key);
        assert_eq!(delivery.payloads, ["state"]);
        assert_eq!(delivery.sequence, sequence.unwrap());
        assert_eq!(delivery.attempt, 1);
    }
    let owned = replica.fleet.owned();
    assert_eq!(owned.len(), 4);
    assert!(
        deliveries
            .iter()
            .all(|delivery| owned.contains(&delivery.fence))
    );
    replica.leave().await;
}

/// N1: a message that comes while the key is processed causes one more delivery, after it.
#[tokio::test]
async fn a_message_that_comes_during_a_delivery_causes_one_more() {
    let Some(server) = Server::start().await else {
        return;
    };
    for coalesce in [Coalesce::Server, Coalesce::Client, Coalesce::Never] {
        let config = Config {
            stream: format!("{coalesce:?}"),
            subject: format!("{coalesce:?}"),
            coalesce,
            ..config()
        };
        create(&server.client().await, &config).await.unwrap();
        let producer = Producer::new(server.client().await, &config).unwrap();
        let (log, began, release) = (
            Log::default(),
            Arc::new(Notify::new()),
            Arc::new(Notify::new()),
        );
        let replica = Replica::start(&server, &config, "a", {
            let (log, began, release) =
                (Arc::clone(&log), Arc::clone(&began), Arc::clone(&release));
            move |delivery| {
                let (began, release) = (Arc::clone(&began), Arc::clone(&release));
                log.lock().unwrap().push(Seen::of(&delivery));
                async move {
                    began.notify_one();
                    release.notified().await;
                    Verdict::Ok(Outcome::Done)
                }
            }
        })
        .await;
        producer.add("key", "0").await.unwrap();
        began.notified().await;
        for payload in ["1", "2", "3"] {
            producer.add("key", payload).await.unwrap();
        }
        // The replica has them all, or the server has replaced them.
        eventually("the messages have come", async || {
            let left = messages(&server, &config).await;
            left == if coalesce == Coalesce::Never { 4 } else { 2 } || left == 1
        })
        .await;
        assert_eq!(seen(&log).len(), 1, "{coalesce:?}: two deliveries at once");
        release.notify_one();
        began.notified().await;
        release.notify_one();
        if coalesce == Coalesce::Never {
            // All payloads, in order, in as many deliveries as it takes.
            eventually("all payloads are seen", async || {
                release.notify_one();
                let payloads: Vec<_> = seen(&log)
                    .into_iter()
                    .flat_map(|seen| seen.payloads)
                    .collect();
                payloads == ["0", "1", "2", "3"]
            })
            .await;
        } else {
            eventually("the last payload is seen", async || {
                release.notify_one();
                seen(&log).last().unwrap().payloads == ["3"]
            })
            .await;
        }
        drained(&server, &config).await;
        replica.leave().await;
    }
}

/// N5: a partition that moves between replicas that live repeats nothing.
#[tokio::test]
async fn replicas_that_join_and_leave_repeat_nothing() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        coalesce: Coalesce::Never,
        ..config()
    };
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    let log = Log::default();
    let a = Replica::logging(&server, &config, "a", &log).await;
    let adding = tokio::spawn(async move {
        for round in 0..40 {
            let batch = (0..25).map(|key| (format!("key-{key}"), format!("{key} {round}")));
            for stored in producer.add_batch(batch).await {
                stored.unwrap();
            }
        }
    });
    let b = Replica::logging(&server, &config, "b", &log).await;
    eventually("b owns its half", async || b.fleet.owned().len() == 2).await;
    eventually("a owns the other half", async || a.fleet.owned().len() == 2).await;
    let c = Replica::logging(&server, &config, "c", &log).await;
    eventually("c owns a part", async || c.fleet.owned().len() == 1).await;
    a.leave().await;
    eventually("the others own everything", async || {
        b.fleet.owned().len() + c.fleet.owned().len() == 4
    })
    .await;
    adding.await.unwrap();
    drained(&server, &config).await;
    let mut rounds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for delivery in seen(&log) {
        rounds
            .entry(delivery.key)
            .or_default()
            .extend(delivery.payloads);
    }
    for key in 0..25 {
        let wanted: Vec<String> = (0..40).map(|round| format!("{key} {round}")).collect();
        assert_eq!(
            rounds[&format!("key-{key}")],
            wanted,
            "each once, and in order"
        );
    }
    b.leave().await;
    c.leave().await;
}

#[tokio::test]
async fn a_failure_is_retried_and_then_a_dead_letter() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        max_retries: Some(2),
        dead_letters: Some("dead".into()),
        ..config()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let log = Log::default();
    let replica = Replica::start(&server, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            async move {
                match (delivery.key(), delivery.attempt()) {
                    ("panics", _) => panic!("on\npurpose"),
                    ("recovers", 3) => Verdict::Ok(Outcome::Done),
                    ("refused", _) => Verdict::GiveUp("never".to_owned()),
                    _ => Verdict::Retry("not yet".to_owned()),
                }
            }
        }
    })
    .await;
    let events = replica.fleet.events();
    for key in ["fails", "panics", "recovers", "refused"] {
        producer
            .add(key, format!("payload of {key}"))
            .await
            .unwrap();
    }
    drained(&server, &config).await;

    let tries = |key: &str| seen(&log).iter().filter(|seen| seen.key == key).count();
    assert_eq!(
        ["fails", "panics", "recovers", "refused"].map(tries),
        [3, 3, 3, 1]
    );
    let given_up = events
        .filter_map(|event| async {
            match event {
                Event::GivenUp {
                    key,
                    error,
                    attempts,
                    ..
                } => Some((key, error, attempts)),
                _ => None,
            }
        })
        .take(3)
        .collect::<BTreeSet<_>>()
        .await;
    let wanted = [
        ("fails", "not yet", 3),
        ("panics", "panicked: on\npurpose", 3),
        ("refused", "never", 1),
    ];
    let wanted = wanted.map(|(key, error, attempts)| (key.to_owned(), error.to_owned(), attempts));
    assert_eq!(given_up, BTreeSet::from(wanted));

    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream("WORK-dead").await.unwrap();
    let letters = stream.get_info().await.unwrap().state.messages;
    assert_eq!(letters, 3);
    for sequence in 1..=letters {
        let letter = stream.get_raw_message(sequence).await.unwrap();
        let key = letter.headers.get(keyqueue_nats::dead_letter::KEY).unwrap();
        assert_eq!(letter.payload, format!("payload of {key}"));
        let attempts = letter
            .headers
            .get(keyqueue_nats::dead_letter::ATTEMPTS)
            .unwrap();
        assert_eq!(
            attempts.as_str(),
            if key.as_str() == "refused" { "1" } else { "3" }
        );
    }
    replica.leave().await;
}

/// A 429: neither the retry nor a later message is delivered before the time that the handler asked for.
#[tokio::test]
async fn a_key_that_is_to_be_retried_later_is_not_delivered_sooner() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = config();
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    let pause = Duration::from_millis(700);
    let log: Arc<Mutex<Vec<(Instant, Seen)>>> = Arc::default();
    let replica = Replica::start(&server, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock()
                .unwrap()
                .push((Instant::now(), Seen::of(&delivery)));
            async move {
                match delivery.attempt() {
                    1 => Verdict::RetryAfter("too many requests".to_owned(), pause),
                    _ => Verdict::Ok(Outcome::Done),
                }
            }
        }
    })
    .await;
    producer.add("key", "first").await.unwrap();
    eventually("the first try", async || log.lock().unwrap().len() == 1).await;
    producer.add("key", "second").await.unwrap();
    drained(&server, &config).await;
    let log = log.lock().unwrap().clone();
    assert_eq!(log.len(), 2);
    assert!(log[1].0 - log[0].0 >= pause);
    assert_eq!(
        (&*log[1].1.payloads, log[1].1.attempt),
        (&["second".to_owned()][..], 2)
    );
    replica.leave().await;
}

#[tokio::test]
async fn leaving_with_a_deadline_cancels_what_runs_and_tells_what_was_abandoned() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = config();
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    let began = Arc::new(Notify::new());
    let stuck = Replica::start(&server, &config, "stuck", {
        let began = Arc::clone(&began);
        move |_| {
            let began = Arc::clone(&began);
            async move {
                began.notify_one();
                std::future::pending().await
            }
        }
    })
    .await;
    producer.add("key", "payload").await.unwrap();
    began.notified().await;
    let left = stuck.fleet.leave(Duration::from_millis(200)).await;
    assert_eq!(left.abandoned.len(), 1, "{left:?}");
    stuck.running.await.unwrap().unwrap();
    assert_eq!(stuck.fleet.owned(), []);
    // A second call returns immediately.
    stuck.fleet.leave(Duration::MAX).await;

    let log = Log::default();
    let next = Replica::logging(&server, &config, "next", &log).await;
    drained(&server, &config).await;
    let delivery = &seen(&log)[0];
    assert!(delivery.fence > left.abandoned[0], "{delivery:?}");
    next.leave().await;
}

#[tokio::test]
async fn a_membership_is_run_once_and_settings_are_checked() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = config();
    let client = server.client().await;
    let missing = Fleet::join(client.clone(), config.clone(), "a").await;
    assert!(matches!(missing, Err(Error::Server { .. })), "{missing:?}");
    create(&client, &config).await.unwrap();
    for name in ["", "a.b", "a b", &"a".repeat(65)] {
        let refused = Fleet::join(client.clone(), config.clone(), name).await;
        assert!(
            matches!(
                refused,
                Err(Error::Config {
                    field: "replica",
                    ..
                })
            ),
            "{name:?}"
        );
    }
    let fleet = Fleet::join(client.clone(), config.clone(), "a")
        .await
        .unwrap();
    let none = fleet.run(0, |_| async {}).await;
    assert!(
        matches!(none, Err(Error::Config { field: "tasks", .. })),
        "{none:?}"
    );
    let running = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(1, |_| async {}).await }
    });
    eventually("it owns everything", async || fleet.owned().len() == 4).await;
    let second = fleet.run(1, |_| async {}).await;
    assert!(
        matches!(second, Err(Error::Config { field: "run", .. })),
        "{second:?}"
    );
    fleet.leave(Duration::from_secs(5)).await;
    running.await.unwrap().unwrap();
}

/// N3: a replica whose renewals fail begins nothing, and goes on when they succeed again.
#[tokio::test]
async fn a_replica_suspends_while_the_server_is_down_and_resumes() {
    let Some(mut server) = Server::start().await else {
        return;
    };
    let config = config();
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    let mut events = Box::pin(replica.fleet.events());
    producer.add("before", "").await.unwrap();
    drained(&server, &config).await;
    let owned = replica.fleet.owned();
    server.kill().await;
    while events.next().await.unwrap() != Event::Suspended {}
    server.restart().await;
    while events.next().await.unwrap() != Event::Resumed {}
    assert_eq!(replica.fleet.owned(), owned, "nobody has taken them");
    producer.add("after", "").await.unwrap();
    eventually("it goes on", async || {
        seen(&log).iter().any(|seen| seen.key == "after")
    })
    .await;
    drained(&server, &config).await;
    replica.leave().await;
}

#[tokio::test]
async fn leaving_before_running_ends_the_run_that_follows() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = config();
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let fleet = Fleet::join(client, config, "a").await.unwrap();
    fleet.leave(Duration::MAX).await;
    fleet.run(1, |_| async {}).await.unwrap();
}

/// Dropping `run` cancels the handlers; other replicas take the partitions when the lease has run out.
#[tokio::test]
async fn a_run_that_is_dropped_leaves_its_keys_to_others() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = config();
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    let began = Arc::new(Notify::new());
    let stuck = Replica::start(&server, &config, "stuck", {
        let began = Arc::clone(&began);
        move |_| {
            let began = Arc::clone(&began);
            async move {
                began.notify_one();
                std::future::pending().await
            }
        }
    })
    .await;
    producer.add("key", "payload").await.unwrap();
    began.notified().await;
    stuck.running.abort();
    let _ = stuck.running.await;
    assert_eq!(stuck.fleet.owned(), []);
    // Nobody is there to leave.
    stuck.fleet.leave(Duration::MAX).await;

    let log = Log::default();
    let next = Replica::logging(&server, &config, "stuck", &log).await;
    drained(&server, &config).await;
    assert_eq!(seen(&log).len(), 1);
    next.leave().await;
}
