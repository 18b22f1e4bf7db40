//! How fast one replica delivers and acknowledges, compared with a plain pull consumer of async-nats on the same
//! stream. Starts its own server; both sides, and the server, share the machine.
//!
//! ```text
//! cargo run --release -p keyqueue-nats --example throughput -- [MESSAGES] [ROUNDS]
//! ```
//!
//! All messages are published first, then taken. Prints, for distinct keys and for keys that recur, how many messages per
//! second are taken, and how many are published and taken, as medians of interleaved rounds, and the ratios of the medians;
//! then how fast one producer publishes, with the server's default and with `sync_interval: always`.
//!
//! The plain consumer's stream keeps all messages. The replica's does so too in the first two rows; in the third it has
//! the default configuration, in which the server replaces the message of a key that waits.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::Stream;
use futures_util::StreamExt;
use keyqueue_nats::{Coalesce, Config, Fleet, Producer, create};
use servers::nats::Server;
use tokio::time::Instant;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let messages = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let rounds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let Some(server) = Server::start().await else {
        return Ok(());
    };
    for (name, keys, coalesce) in [
        ("distinct keys", messages, Coalesce::Client),
        ("1000 keys", 1000, Coalesce::Client),
        ("1000 keys, default", 1000, Coalesce::Server),
    ] {
        let (mut plain, mut fleet) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let all = config(Coalesce::Client);
            plain.push(round(&server, all, messages, keys, plain_consumer).await?);
            fleet.push(round(&server, config(coalesce), messages, keys, one_replica).await?);
        }
        for (at, what) in ["taken", "published and taken"].into_iter().enumerate() {
            let of = |rounds: &[[f64; 2]]| median(rounds.iter().map(|rates| rates[at]).collect());
            let (plain, fleet) = (of(&plain), of(&fleet));
            println!(
                "{name:<18} {what:<19} plain {plain:>7.0}/s, one replica {fleet:>7.0}/s: {:.2}x",
                fleet / plain
            );
        }
    }
    let Some(durable) = Server::start_with("sync_interval: always").await else {
        return Ok(());
    };
    let (mut default, mut always) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let all = || config(Coalesce::Client);
        default.push(publish(&server, all(), messages, messages).await?.1);
        always.push(publish(&durable, all(), messages, messages).await?.1);
    }
    let (default, always) = (median(default), median(always));
    println!(
        "publishing     default {default:>6.0} messages/s, sync_interval: always {always:>6.0} messages/s"
    );
    Ok(())
}

/// Publishes the messages into a new stream, which it returns, and how many per second.
async fn publish(
    server: &Server,
    config: Config,
    messages: usize,
    keys: usize,
) -> Result<(Stream, f64)> {
    let client = server.client().await;
    let context = async_nats::jetstream::new(client.clone());
    let _ = context.delete_stream(&config.stream).await;
    let bucket = format!("{}-owners", config.stream);
    let _ = context.delete_key_value(bucket).await;
    // The server may still be removing the files of the stream that was deleted.
    let mut tries = 0..50;
    while let Err(error) = create(&client, &config).await {
        tries.next().ok_or(error)?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let producer = Producer::new(client, &config)?;
    let batch = (0..messages).map(|n| (format!("key-{}", n % keys), "payload"));
    let began = Instant::now();
    for stored in producer.add_batch(batch).await {
        stored?;
    }
    let rate = messages as f64 / began.elapsed().as_secs_f64();
    Ok((context.get_stream(&config.stream).await?, rate))
}

fn config(coalesce: Coalesce) -> Config {
    Config {
        coalesce,
        ..Config::default()
    }
}

/// Publishes the messages, and lets `consume` take them out of the stream. Returns how many of them per second of the second
/// step, and of both.
async fn round<F>(
    server: &Server,
    config: Config,
    messages: usize,
    keys: usize,
    consume: F,
) -> Result<[f64; 2]>
where
    F: AsyncFn(Client, Config, Stream, usize) -> Result<()>,
{
    let (stream, published) = publish(server, config.clone(), messages, keys).await?;
    let client = server.client().await;
    let began = Instant::now();
    consume(client, config, stream, messages).await?;
    let taken = messages as f64 / began.elapsed().as_secs_f64();
    Ok([taken, 1.0 / (1.0 / taken + 1.0 / published)])
}

async fn plain_consumer(_: Client, _: Config, stream: Stream, messages: usize) -> Result<()> {
    let settings = pull::Config {
        durable_name: Some("plain".into()),
        ack_policy: AckPolicy::Explicit,
        // More makes the server slower.
        max_ack_pending: 10_000,
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(settings).await?;
    let mut received = consumer.messages().await?.take(messages);
    while let Some(message) = received.next().await {
        message?.ack().await.map_err(|error| anyhow!(error))?;
    }
    empty(&stream).await
}

async fn one_replica(client: Client, config: Config, stream: Stream, _: usize) -> Result<()> {
    let fleet = Fleet::join(client, config, "one").await?;
    let running = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(64, |_| async {}).await }
    });
    empty(&stream).await?;
    fleet.leave(Duration::from_secs(10)).await;
    running.await?.context("the replica")
}

async fn empty(stream: &Stream) -> Result<()> {
    while stream.get_info().await?.state.messages > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
