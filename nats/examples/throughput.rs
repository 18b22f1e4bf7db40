//! How fast one replica delivers and acknowledges, compared with a plain pull consumer of async-nats on one stream.
//! Starts its own servers; both sides, and the servers, share the machine.
//!
//! ```text
//! cargo run --release -p keyqueue-nats --example throughput -- [MESSAGES] [ROUNDS] [SERVERS, 1 or 3]
//! ```
//!
//! All messages are published first, then taken. Prints, for distinct keys and for keys that recur, how many messages per
//! second are taken, and how many are published and taken, as medians of interleaved rounds, and the ratios of the medians;
//! then, on one server, how fast one producer publishes, with the server's default and with `sync_interval: always`.
//!
//! All streams keep all messages, but for the row `default`, in which the server replaces the message of a key that waits.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use futures_util::StreamExt;
use keyqueue_nats::{Coalesce, Config, Fleet, Producer, create};
use servers::nats::{Server, Servers, messages_of, streams_of};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let messages = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let replicas = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let Some(mut servers) = Servers::prepare(directory.path(), replicas)? else {
        return Ok(());
    };
    servers.start()?;
    let client = servers.ready().await?;
    let of = |stream: &str, partitions, coalesce| Config {
        stream: stream.to_owned(),
        subject: stream.to_lowercase(),
        partitions,
        coalesce,
        replicas,
        ..Config::default()
    };
    for (name, keys, partitions, coalesce) in [
        ("distinct keys", messages, 16, Coalesce::Client),
        ("1000 keys", 1000, 16, Coalesce::Client),
        ("distinct keys", messages, 64, Coalesce::Client),
        ("1000 keys", 1000, 64, Coalesce::Client),
        ("1000 keys, default", 1000, 16, Coalesce::Server),
    ] {
        let (mut plain, mut fleet) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let one = of("PLAIN", 1, Coalesce::Client);
            plain.push(round(&client, one, messages, keys, plain_consumer).await?);
            let many = of("FLEET", partitions, coalesce);
            fleet.push(round(&client, many, messages, keys, one_replica).await?);
        }
        for (at, what) in ["taken", "published and taken"].into_iter().enumerate() {
            let of = |rounds: &[[f64; 2]]| median(rounds.iter().map(|rates| rates[at]).collect());
            let pairs = plain.iter().zip(&fleet);
            let ratios = pairs.map(|(plain, fleet)| fleet[at] / plain[at]);
            let (least, most) = ratios.fold((f64::MAX, 0.0_f64), |(least, most), ratio| {
                (least.min(ratio), most.max(ratio))
            });
            let (plain, fleet) = (of(&plain), of(&fleet));
            println!(
                "{name:<18} {partitions} partitions, {what:<19} plain {plain:>7.0}/s, one replica {fleet:>7.0}/s: {:.2}x ({least:.2} to {most:.2})",
                fleet / plain
            );
        }
    }
    if replicas > 1 {
        return Ok(());
    }
    let Some(durable) = Server::start_with("sync_interval: always").await else {
        return Ok(());
    };
    let durable = durable.client().await;
    let (mut default, mut always) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let all = || of("FLEET", 16, Coalesce::Client);
        default.push(publish(&client, &all(), messages, messages).await?);
        always.push(publish(&durable, &all(), messages, messages).await?);
    }
    let (default, always) = (median(default), median(always));
    println!(
        "publishing     default {default:>6.0} messages/s, sync_interval: always {always:>6.0} messages/s"
    );
    Ok(())
}

/// Publishes the messages into new streams, and returns how many per second.
async fn publish(client: &Client, config: &Config, messages: usize, keys: usize) -> Result<f64> {
    let context = async_nats::jetstream::new(client.clone());
    for name in streams_of(&context, &config.stream)
        .await
        .unwrap_or_default()
    {
        context.delete_stream(name).await?;
    }
    let bucket = format!("{}-owners", config.stream);
    let _ = context.delete_key_value(bucket).await;
    // The server may still be removing the files of the streams that were deleted.
    let mut tries = 0..50;
    while let Err(error) = create(client, config).await {
        tries.next().ok_or(error)?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let producer = Producer::new(client.clone(), config)?;
    let batch = (0..messages).map(|n| (format!("key-{}", n % keys), "payload"));
    let began = Instant::now();
    for stored in producer.add_batch(batch).await {
        stored?;
    }
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

/// Publishes the messages, and lets `consume` take them out of the streams. Returns how many of them per second of the second
/// step, and of both.
async fn round<F>(
    client: &Client,
    config: Config,
    messages: usize,
    keys: usize,
    consume: F,
) -> Result<[f64; 2]>
where
    F: AsyncFn(Client, Config, usize) -> Result<()>,
{
    let published = publish(client, &config, messages, keys).await?;
    let began = Instant::now();
    consume(client.clone(), config, messages).await?;
    let taken = messages as f64 / began.elapsed().as_secs_f64();
    Ok([taken, 1.0 / (1.0 / taken + 1.0 / published)])
}

async fn plain_consumer(client: Client, config: Config, messages: usize) -> Result<()> {
    let context = async_nats::jetstream::new(client.clone());
    let stream = context.get_stream(format!("{}-1-0", config.stream)).await?;
    let settings = pull::Config {
        durable_name: Some("plain".into()),
        ack_policy: AckPolicy::Explicit,
        // More makes the server slower.
        max_ack_pending: 10_000,
        num_replicas: config.replicas,
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(settings).await?;
    let mut received = consumer.messages().await?.take(messages);
    while let Some(message) = received.next().await {
        message?.ack().await.map_err(|error| anyhow!(error))?;
    }
    empty(&client, &config).await
}

async fn one_replica(client: Client, config: Config, _: usize) -> Result<()> {
    let fleet = Fleet::join(client.clone(), config.clone(), "one").await?;
    let running = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(64, |_| async {}).await }
    });
    empty(&client, &config).await?;
    fleet.leave(Duration::from_secs(10)).await;
    running.await?.context("the replica")
}

async fn empty(client: &Client, config: &Config) -> Result<()> {
    let context = async_nats::jetstream::new(client.clone());
    while messages_of(&context, &config.stream).await? > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
