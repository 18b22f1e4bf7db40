//! N8: keys that fail do not stop healthy ones, however many of them fail.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue_nats::{Config, Outcome, Producer, Verdict, create};
use servers::nats::Server;
use servers::until;
use tokio::time::{Instant, sleep};

use common::{Replica, config, drained, messages};

/// 500 of 1000 keys always fail, and each partition has more of them than `window`. When they can succeed, they do.
#[tokio::test]
async fn a_poison_crowd() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        partitions: 8,
        window: 50,
        max_backoff: Duration::from_secs(2),
        ..config()
    };
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    // The poisoned ones are first in the stream.
    for state in ["poisoned", "healthy"] {
        let batch = (0..500).map(|n| (format!("{state}-{n}"), ""));
        for stored in producer.add_batch(batch).await {
            stored.unwrap();
        }
    }

    let cured = Arc::new(AtomicBool::new(false));
    let tries: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let replica = Replica::start(&server, &config, "a", {
        let (cured, tries) = (Arc::clone(&cured), Arc::clone(&tries));
        move |delivery| {
            let key = delivery.key().to_owned();
            let fails = key.starts_with("poisoned") && !cured.load(Relaxed);
            *tries.lock().unwrap().entry(key).or_default() += 1;
            async move {
                if fails {
                    return Verdict::Retry("always".to_owned());
                }
                Verdict::Ok(Outcome::Done)
            }
        }
    })
    .await;
    let tried = |state: &str, times: usize| {
        let tries = tries.lock().unwrap();
        let tried = tries.iter().filter(|(_, count)| **count >= times);
        tried.filter(|(key, _)| key.starts_with(state)).count()
    };
    let began = Instant::now();
    while tried("healthy", 1) < 500 && began.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(10)).await;
    }
    let took = began.elapsed();
    println!(
        "after {took:?}: {} poisoned keys were tried",
        tried("poisoned", 1)
    );
    assert_eq!(tried("healthy", 1), 500, "healthy keys after {took:?}");

    until("all poisoned keys are tried again", async || {
        tried("poisoned", 3) == 500
    })
    .await;
    until("the healthy keys' messages are removed", async || {
        messages(&server, &config).await <= 500
    })
    .await;
    assert_eq!(messages(&server, &config).await, 500, "none is given up");
    let healthy: BTreeSet<usize> = {
        let tries = tries.lock().unwrap();
        let healthy = tries.iter().filter(|(key, _)| key.starts_with("healthy"));
        healthy.map(|(_, count)| *count).collect()
    };
    assert_eq!(healthy, BTreeSet::from([1]), "none is repeated");
    cured.store(true, Relaxed);
    drained(&server, &config).await;
    replica.leave().await;
}
