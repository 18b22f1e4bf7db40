//! N11: what a replica reads again of a key that has failed is bounded by the number of the messages, and by the bytes of their headers and payloads.
//! N13: that it cannot be read is a warning.

mod common;

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{HeaderMap, jetstream};
use keyqueue_nats::{Coalesce, Config, Delivery, Verdict};

use servers::until;

use common::{DONE, Log, Swallow, Warnings, created, drained, keys, logged, one, replica, stored};

/// Publishes this many messages of a key, with a header and a payload of these many bytes. Returns how many the handler has got of them each
/// time.
async fn delivered(config: Config, messages: usize, header: usize, payload: usize) -> Vec<usize> {
    let config = Config {
        coalesce: Coalesce::Never,
        ..config
    };
    let Some((server, client, _)) = created(&config).await else {
        return Vec::new();
    };
    let log: Arc<Mutex<Vec<[usize; 2]>>> = Arc::default();
    let _replica = replica(server.client().await, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            let mut log = log.lock().unwrap();
            log.push([delivery.messages().len(), delivery.covered()]);
            ready(match log.len() {
                1 => Verdict::RetryAfter("bad".to_owned(), Duration::from_secs(2)),
                _ => DONE,
            })
        }
    })
    .await;
    let context = jetstream::new(client);
    let mut headers = HeaderMap::new();
    headers.insert("Own", "x".repeat(header));
    for _ in 0..messages {
        let (headers, payload) = (headers.clone(), "x".repeat(payload).into());
        let stored = context.publish_with_headers("work.1.0.in.key", headers, payload);
        stored.await.unwrap().await.unwrap();
    }
    drained(&server, &config).await;
    let log = log.lock().unwrap().clone();
    assert!(log.iter().all(|[has, covers]| has == covers), "{log:?}");
    let log: Vec<usize> = log.into_iter().map(|[has, _]| has).collect();
    assert_eq!(log.iter().sum::<usize>(), messages + log[0], "{log:?}");
    log
}

#[tokio::test]
async fn many_messages() {
    let config = Config {
        window: 20,
        ..one()
    };
    let log = delivered(config, 200, 1, 0).await;
    assert!(log.iter().all(|messages| *messages <= 30), "{log:?}");
}

async fn are_bounded(messages: usize, header: usize, payload: usize) {
    let config = Config {
        max_held_bytes: 1 << 20,
        ..one()
    };
    let log = delivered(config, messages, header, payload).await;
    // What is on its way: twice 1 MiB.
    let most = (4 << 20) / (header + payload);
    assert!(log.iter().all(|messages| *messages <= most), "{log:?}");
}

#[tokio::test]
async fn long_headers() {
    are_bounded(120, 60_000, 0).await;
}

#[tokio::test]
async fn long_payloads() {
    are_bounded(60, 1, 250_000).await;
}

#[tokio::test]
async fn keys_whose_messages_cannot_be_read_again_are_one_warning() {
    let Some((server, _, producer)) = created(&one()).await else {
        return;
    };
    let warnings = Warnings::hear();
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    proxy.lose_named(Some("MSG.GET.WORK-1-0"));
    let handler = |delivery: Delivery| {
        ready(match delivery.attempt() {
            1 => Verdict::RetryAfter("bad".to_owned(), Duration::ZERO),
            _ => DONE,
        })
    };
    let replica = logged(proxy.client().await, &one(), "a", &log, handler).await;
    stored(&producer, keys("key", 3)).await;
    until("they are read again and again", async || proxy.lost() >= 9).await;
    proxy.lose_named(None);
    drained(&server, &one()).await;
    replica.leave().await;
    assert_eq!(warnings.with("what=\"a message\"").len(), 1);
}
