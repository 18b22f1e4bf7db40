//! A webhook dispatcher on keyqueue-nats. Each endpoint is a key; the replicas POST its latest state to a
//! receiver, which is the witness of what happens: it records every call, and refuses those with an old
//! fence.

mod beginnings;
pub mod check;
mod clock;
pub mod faults;
pub mod lab;
pub mod producer;
pub mod receiver;
pub mod replica;
pub mod run;

use std::path::PathBuf;

use anyhow::{Context, Result};
use keyqueue_nats::Config;

/// How to reach the servers, and the configuration of the fleet.
#[derive(Debug, clap::Args)]
pub struct Connection {
    /// The addresses of the servers, separated by commas
    #[arg(long, default_value = "127.0.0.1:4222")]
    servers: String,
    /// The configuration, as JSON; the default has one server
    #[arg(long)]
    config: Option<PathBuf>,
}

impl Connection {
    /// Connects, now or when the servers are there.
    pub async fn open(&self) -> Result<(async_nats::Client, Config)> {
        let config = match &self.config {
            Some(path) => serde_json::from_str(&std::fs::read_to_string(path)?)?,
            None => Config::default(),
        };
        let client = async_nats::ConnectOptions::new()
            .retry_on_initial_connect()
            .connect(self.servers.split(',').collect::<Vec<_>>())
            .await
            .with_context(|| format!("connecting to {}", self.servers))?;
        Ok((client, config))
    }

    /// Creates the stream and the bucket.
    pub async fn create(&self) -> Result<()> {
        let (client, config) = self.open().await?;
        Ok(keyqueue_nats::create(&client, &config).await?)
    }
}
