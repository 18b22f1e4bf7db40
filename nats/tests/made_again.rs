//! A stream or a bucket that was deleted and made again is not taken for the former one.

mod common;

use std::future::ready;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream;
use keyqueue_nats::{Config, Event, Outcome, Verdict, create, dead_letter};
use servers::until;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use common::{
    DONE, Log, Replica, count, created, drained, keys, letters, logged, one, replica, seen, stored,
    told,
};

/// Deletes the partition's stream, and makes it again.
async fn made_again(client: &Client, config: &Config) {
    let context = jetstream::new(client.clone());
    context
        .delete_stream(format!("{}-1-0", config.stream))
        .await
        .unwrap();
    create(client, config).await.unwrap();
}

/// N1: a message in a stream that was made again is not taken for an older one than what was in the former stream.
#[tokio::test]
async fn a_message_of_a_stream_made_again_is_handled() {
    let config = one();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let _replica = logged(server.client().await, &config, "a", &log, |delivery| {
        ready(if delivery.latest().payload == "old" {
            Verdict::RetryAfter("later".to_owned(), Duration::from_secs(6))
        } else {
            DONE
        })
    })
    .await;
    for _ in 0..5 {
        producer.add("other", "").await.unwrap();
    }
    producer.add("key", "old").await.unwrap();
    until("it has failed", async || count(&log, "key") == 1).await;
    made_again(&client, &config).await;
    producer.add("key", "new").await.unwrap();
    drained(&server, &config).await;
    let of_key = seen(&log).into_iter().filter(|seen| seen.key == "key");
    let payloads: Vec<_> = of_key.flat_map(|seen| seen.payloads).collect();
    assert_eq!(payloads, ["old", "new"]);
}

/// A payload that is read again is that of the key.
#[tokio::test]
async fn a_payload_of_a_stream_made_again_is_not_another_keys() {
    let config = one();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let _replica = logged(server.client().await, &config, "a", &log, |_| {
        ready(Verdict::RetryAfter(
            "later".to_owned(),
            Duration::from_secs(5),
        ))
    })
    .await;
    producer.add("a", "of a").await.unwrap();
    until("a has failed", async || count(&log, "a") == 1).await;
    made_again(&client, &config).await;
    producer.add("b", "of b").await.unwrap();
    until("b has failed", async || count(&log, "b") == 1).await;
    sleep(Duration::from_secs(6)).await;
    for seen in seen(&log) {
        assert_eq!(seen.payloads, [format!("of {}", seen.key)], "{seen:?}");
    }
}

/// N6: a dead letter of a stream that was made again is not taken for one of the former stream.
#[tokio::test]
async fn dead_letters_of_a_stream_made_again_are_kept() {
    let config = letters();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let _replica = replica(server.client().await, &config, "a", |_| {
        ready(Verdict::GiveUp("bad".to_owned()))
    })
    .await;
    producer.add("a", "").await.unwrap();
    drained(&server, &config).await;
    made_again(&client, &config).await;
    producer.add("b", "").await.unwrap();
    drained(&server, &config).await;
    let context = jetstream::new(client);
    let dead = context.get_stream("WORK-dead").await.unwrap();
    assert_eq!(dead.cached_info().state.messages, 2);
}

/// N6: a message of no producer in a stream that was made again is not taken for one that is held from the former stream.
#[tokio::test]
async fn a_stranger_in_a_stream_made_again_is_a_letter() {
    let config = letters();
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    context.delete_stream("WORK-dead").await.unwrap();
    let replica = Replica::logging(&server, &config, "a", &Log::default()).await;
    let mut events = replica.fleet.events();
    let publish = async || {
        let stored = context.publish("work.1.0.in.no/key", "".into()).await;
        stored.unwrap().await.unwrap()
    };
    let first = publish().await.sequence;
    told(&mut events, |event| match event {
        Event::DeadLetterRefused { .. } => Some(()),
        _ => None,
    })
    .await;
    made_again(&client, &config).await;
    assert_eq!(publish().await.sequence, first);
    drained(&server, &config).await;
    let letters = dead_letter::count(&client, &config).await.unwrap();
    assert_eq!(letters, Some(1));
    replica.leave().await;
}

/// A replica that waits to begin again leaves in time.
#[tokio::test]
async fn a_replica_that_begins_again_leaves_in_time() {
    let config = Config {
        lease: Duration::from_secs(8),
        ..one()
    };
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    replica.owns(1).await;
    let mut events = replica.fleet.events();
    let context = jetstream::new(client.clone());
    context.delete_stream("KV_WORK-owners").await.unwrap();
    create(&client, &config).await.unwrap();
    told(&mut events, |event| match event {
        Event::Suspended { reason } if reason.contains("made again") => Some(()),
        _ => None,
    })
    .await;
    let began = Instant::now();
    replica.fleet.leave(Duration::from_millis(500)).await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    replica.running.await.unwrap().unwrap();
}

const KEYS: usize = 65_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "65 000 messages, twice; the job `nats-long` runs it"]
async fn a_backlog_in_a_stream_made_again() {
    let config = one();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let (gate, open) = watch::channel(true);
    let handled = Arc::new(AtomicUsize::new(0));
    let replica = replica(server.client().await, &config, "a", {
        let handled = Arc::clone(&handled);
        move |_| {
            let (mut open, handled) = (open.clone(), Arc::clone(&handled));
            async move {
                let _ = open.wait_for(|open| *open).await;
                handled.fetch_add(1, Relaxed);
                Verdict::Ok(Outcome::Done)
            }
        }
    })
    .await;
    stored(&producer, keys("before", KEYS)).await;
    drained(&server, &config).await;
    gate.send_replace(false);
    made_again(&client, &config).await;
    stored(&producer, keys("after", KEYS)).await;
    sleep(Duration::from_secs(3)).await;
    let before = handled.load(Relaxed);
    gate.send_replace(true);
    let began = Instant::now();
    while handled.load(Relaxed) < before + KEYS - 8 {
        if began.elapsed() > Duration::from_secs(40) {
            println!(
                "stuck: {} of {KEYS} after {:?}",
                handled.load(Relaxed) - before,
                began.elapsed()
            );
            exit(1);
        }
        sleep(Duration::from_millis(50)).await;
    }
    println!("after {:?}", began.elapsed());
    drained(&server, &config).await;
    replica.leave().await;
}
