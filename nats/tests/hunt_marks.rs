//! A stream that was made again has a backlog of many keys: the receiver goes on, and its task yields.

mod common;

use std::process::exit;
use std::time::Duration;

use async_nats::jetstream;
use keyqueue_nats::{Config, Outcome, Producer, Verdict, create};
use servers::nats::Server;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use common::{Replica, config, drained};

const KEYS: usize = 65_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backlog_in_a_stream_made_again() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        partitions: 1,
        ..config()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let (gate, open) = watch::channel(true);
    let handled = Arc::new(AtomicUsize::new(0));
    let replica = Replica::start(&server, &config, "a", {
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
    let fill = async |state: &str| {
        let batch = (0..KEYS).map(|n| (format!("{state}-{n}"), ""));
        for stored in producer.add_batch(batch).await {
            stored.unwrap();
        }
    };
    fill("before").await;
    drained(&server, &config).await;
    gate.send_replace(false);
    let context = jetstream::new(client.clone());
    context.delete_stream("WORK-1-0").await.unwrap();
    create(&client, &config).await.unwrap();
    fill("after").await;
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
