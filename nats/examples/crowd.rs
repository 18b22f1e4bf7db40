//! How long healthy keys wait for a new owner when many keys fail, whose messages come before theirs, and how long 16 plain consumers of
//! async-nats take to receive as many messages. Starts its own server; all share the machine.
//!
//! ```text
//! cargo run --release -p keyqueue-nats --example crowd -- [FAILING KEYS] [ROUNDS]
//! ```

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use futures_util::{StreamExt, future::try_join_all};
use keyqueue_nats::{Config, Delivery, Fleet, Outcome, Producer, Verdict, create};
use servers::nats::{Server, streams_of};
use tokio::time::{Instant, sleep};

/// Some in each partition.
const HEALTHY: usize = 320;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let failing = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    for _ in 0..rounds {
        let Some(server) = Server::start().await else {
            return Ok(());
        };
        let (client, config) = (server.client().await, Config::default());
        create(&client, &config).await?;
        let producer = Producer::new(client.clone(), &config)?;
        stored(&producer, "failing", failing).await?;
        replica(&client, &config, "failing", failing).await?;
        stored(&producer, "healthy", HEALTHY).await?;
        let [first, last] = replica(&server.client().await, &config, "healthy", HEALTHY).await?;
        let plain = plain(&client, &config).await?;
        println!(
            "{failing} failing keys: healthy ones after {first:.2?} to {last:.2?}, plain consumers receive all in {plain:.2?}"
        );
    }
    Ok(())
}

async fn stored(producer: &Producer, name: &str, count: usize) -> Result<()> {
    let batch = (0..count).map(|n| (format!("{name}-{n}"), "payload"));
    for stored in producer.add_batch(batch).await {
        stored?;
    }
    Ok(())
}

/// Runs a replica until this many keys of this name were delivered. Returns how long the first and the last one took.
async fn replica(
    client: &Client,
    config: &Config,
    name: &'static str,
    count: usize,
) -> Result<[Duration; 2]> {
    let began = Instant::now();
    let fleet = Fleet::join(client.clone(), config.clone(), "replica").await?;
    let seen = Arc::new(AtomicUsize::new(0));
    let handler = {
        let seen = Arc::clone(&seen);
        move |delivery: Delivery| {
            if delivery.key().starts_with(name) {
                seen.fetch_add(1, Relaxed);
            }
            let fails = delivery.key().starts_with("failing");
            async move {
                match fails {
                    true => Verdict::RetryAfter("failing", Duration::from_secs(3600)),
                    false => Verdict::Ok(Outcome::Done),
                }
            }
        }
    };
    let running = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(64, handler).await }
    });
    let mut took = [Duration::ZERO; 2];
    for (took, count) in took.iter_mut().zip([1, count]) {
        while seen.load(Relaxed) < count {
            sleep(Duration::from_millis(1)).await;
        }
        *took = began.elapsed();
    }
    fleet.leave(Duration::from_secs(60)).await;
    running.await?.context("the replica")?;
    Ok(took)
}

/// How long a consumer of each stream takes to receive all messages, without an acknowledgement.
async fn plain(client: &Client, config: &Config) -> Result<Duration> {
    let context = async_nats::jetstream::new(client.clone());
    let began = Instant::now();
    let names = streams_of(&context, &config.stream).await?;
    try_join_all(names.into_iter().map(async |name| {
        let stream = context.get_stream(name).await?;
        let settings = pull::Config {
            ack_policy: AckPolicy::Explicit,
            max_ack_pending: -1,
            memory_storage: true,
            ..pull::Config::default()
        };
        let count = usize::try_from(stream.cached_info().state.messages)?;
        let received = stream.create_consumer(settings).await?.messages().await?;
        let mut received = received.take(count);
        while let Some(message) = received.next().await {
            message?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(began.elapsed())
}
