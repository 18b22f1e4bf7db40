//! N10: what an operator, or another program, deletes under a running fleet, and `create` makes again: everything is delivered again
//! soon, and an event tells about it.

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use futures_util::{StreamExt, TryStreamExt};
use keyqueue_nats::{Config, Event, Fleet, Producer, create};
use servers::nats::{Server, streams_of};
use tokio::time::{Instant, sleep};

use common::{Log, Replica, config, created, drained, seen, stored};

const KEYS: usize = 200;

/// Two replicas that have partitions, have done each key a few times, and log their events.
struct Bench {
    server: Server,
    config: Config,
    context: Context,
    producer: Producer,
    log: Log,
    replicas: Vec<Replica>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    async fn new() -> Option<Bench> {
        let config = Config {
            partitions: 16,
            ..config()
        };
        let (server, client, producer) = created(&config).await?;
        let mut bench = Bench {
            server,
            config,
            context: jetstream::new(client),
            producer,
            log: Log::default(),
            replicas: Vec::new(),
            events: Arc::default(),
        };
        for name in ["a", "b"] {
            let replica = Replica::logging(&bench.server, &bench.config, name, &bench.log).await;
            bench.listen(&replica.fleet);
            bench.replicas.push(replica);
            // The epochs of moved partitions are higher.
            sleep(bench.config.lease).await;
        }
        for replica in &bench.replicas {
            replica.owns(8).await;
        }
        for round in 0..5 {
            bench.add(&format!("before {round}")).await;
            drained(&bench.server, &bench.config).await;
        }
        bench.events.lock().unwrap().clear();
        Some(bench)
    }

    fn listen(&self, fleet: &Fleet) {
        let (mut events, log) = (fleet.events(), Arc::clone(&self.events));
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                log.lock().unwrap().push(event);
            }
        });
    }

    /// Adds each key with this payload.
    async fn add(&self, payload: &str) {
        let batch = (0..KEYS).map(|key| (key.to_string(), payload.to_owned()));
        stored(&self.producer, batch).await;
    }

    /// Adds all keys again and again, for a lease and some seconds more. Soon after that the last of them are delivered, the
    /// replicas have told what has happened, and leave.
    async fn recovers(self) -> Server {
        let end = Instant::now() + self.config.lease + Duration::from_secs(4);
        while Instant::now() < end {
            self.add("meanwhile").await;
            sleep(Duration::from_millis(500)).await;
        }
        self.add("after").await;
        let delivered = || {
            let seen = seen(&self.log).into_iter();
            let after = seen.filter(|seen| seen.payloads.iter().any(|payload| payload == "after"));
            after.map(|seen| seen.key).collect::<BTreeSet<_>>().len()
        };
        let began = Instant::now();
        while delivered() < KEYS && began.elapsed() < Duration::from_secs(5) {
            sleep(Duration::from_millis(20)).await;
        }
        let (took, events) = (began.elapsed(), self.events.lock().unwrap().clone());
        println!("{} of {KEYS} keys after {took:?}; {events:?}", delivered());
        assert_eq!(delivered(), KEYS, "keys after {took:?}; {events:?}");
        let tells = |event: &Event| {
            let usual = matches!(event, Event::Acquired(_) | Event::HandedOver(_));
            !usual && *event != Event::Resumed
        };
        assert!(events.iter().any(tells), "no event tells: {events:?}");
        drained(&self.server, &self.config).await;
        for replica in self.replicas {
            replica.leave().await;
        }
        self.server
    }
}

#[tokio::test]
async fn the_bucket_of_owners() {
    let Some(bench) = Bench::new().await else {
        return;
    };
    let bucket = format!("{}-owners", bench.config.stream);
    bench.context.delete_key_value(&bucket).await.unwrap();
    create(&bench.server.client().await, &bench.config)
        .await
        .unwrap();
    let server = bench.recovers().await;
    // It was noticed with the first renewal: nothing was written by what was in the former bucket, for which others would wait.
    let context = jetstream::new(server.client().await);
    let store = context.get_key_value(bucket).await.unwrap();
    let keys = store.keys().await.unwrap();
    let keys: Vec<String> = keys.try_collect().await.unwrap();
    let sessions = keys.iter().filter(|key| key.starts_with("16.s."));
    assert_eq!(sessions.count(), 2, "{keys:?}");
}

#[tokio::test]
async fn the_consumers() {
    let Some(bench) = Bench::new().await else {
        return;
    };
    for name in streams_of(&bench.context, &bench.config.stream)
        .await
        .unwrap()
    {
        let stream = bench.context.get_stream(name).await.unwrap();
        let consumers: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
        assert!(!consumers.is_empty());
        for consumer in consumers {
            stream.delete_consumer(&consumer).await.unwrap();
        }
    }
    bench.recovers().await;
}

/// The sequences begin again at 1: they are lower than those of messages that are done.
#[tokio::test]
async fn the_streams() {
    let Some(bench) = Bench::new().await else {
        return;
    };
    for name in streams_of(&bench.context, &bench.config.stream)
        .await
        .unwrap()
    {
        bench.context.delete_stream(name).await.unwrap();
    }
    create(&bench.server.client().await, &bench.config)
        .await
        .unwrap();
    bench.recovers().await;
}
