//! The producer: changes the state of endpoints, and writes down what the server has stored.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use keyqueue_nats::Producer;
use tokio::time::{MissedTickBehavior, interval};

use crate::Connection;

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
    /// How many messages to add
    #[arg(long, default_value_t = 20_000)]
    messages: usize,
    /// To how many endpoints
    #[arg(long, default_value_t = 1000)]
    endpoints: usize,
    /// Over how many seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// To how many bytes each message is filled
    #[arg(long, default_value_t = 0)]
    size: usize,
    /// A file to which each stored message is written: endpoint, sequence and number
    #[arg(long)]
    log: PathBuf,
}

/// A message is added in one of 20 batches a second.
const BATCHES: u64 = 20;

/// Adds the messages. Fails if one was not stored.
pub async fn run(options: Options) -> Result<()> {
    let (client, config) = options.connection.open().await?;
    let producer = Producer::new(client, &config)?;
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&options.log)?;
    let batches = options.seconds.max(1) * BATCHES;
    let size = options.messages.div_ceil(usize::try_from(batches)?);
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(BATCHES)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut failed) = (0, 0);
    while sent < options.messages {
        ticks.tick().await;
        let count = size.min(options.messages - sent);
        let keys: Vec<String> = (0..count)
            .map(|_| format!("endpoint-{}", fastrand::usize(..options.endpoints)))
            .collect();
        let batch = keys.iter().zip(sent..).map(|(key, n)| {
            let mut state = format!("state {n}").into_bytes();
            state.resize(state.len().max(options.size), b' ');
            (key, state)
        });
        let stored = producer.add_batch(batch).await;
        let mut lines = String::new();
        for ((key, n), stored) in keys.iter().zip(sent..).zip(stored) {
            match stored {
                Ok(sequence) => lines.push_str(&format!("{key} {sequence} {n}\n")),
                Err(error) => {
                    failed += 1;
                    eprintln!("not stored: {error}");
                }
            }
        }
        log.write_all(lines.as_bytes())?;
        sent += count;
    }
    println!("{} messages are stored", sent - failed);
    anyhow::ensure!(failed == 0, "{failed} messages are not known to be stored");
    Ok(())
}
