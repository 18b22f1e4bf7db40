//! The example of nats/docs/fencing.md: a handler that works, asks whether its replica still owns the key, and writes to a
//! resource that refuses old fences. It prints what it does.

use std::time::Duration;

use anyhow::{Context, Result};
use async_nats::jetstream::{self, kv};
use clap::Parser;
use dispatch::Connection;
use keyqueue_nats::{Delivery, Fence, Fleet, Outcome, Verdict};
use tokio::time::sleep;

/// Runs a replica that writes the state of each key into a bucket, under its fence
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    connection: Connection,
    /// The name of this replica
    #[arg(long)]
    name: String,
    /// How long the work on a state takes, in milliseconds
    #[arg(long, default_value_t = 0)]
    work: u64,
    /// How long a write is on its way to the resource, in milliseconds
    #[arg(long, default_value_t = 0)]
    way: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let (client, config) = options.connection.open().await?;
    let resource = Resource::open(client.clone(), options.way).await?;
    let fleet = Fleet::join(client, config, &options.name).await?;
    let work = Duration::from_millis(options.work);
    fleet
        .run(8, move |delivery| handle(delivery, work, resource.clone()))
        .await?;
    Ok(())
}

async fn handle(delivery: Delivery, work: Duration, resource: Resource) -> Verdict<String> {
    let (key, fence) = (delivery.key(), delivery.fence());
    println!("begins {key} {fence}");
    sleep(work).await;
    if !delivery.still_owned() {
        println!("leaves {key} {fence}");
        return Verdict::Retry("another replica may own the key".to_owned());
    }
    println!("writes {key} {fence}");
    match resource.write(key, fence, &delivery.latest().payload).await {
        Ok(Written::Stored) => {
            println!("stored {key} {fence}");
            Verdict::Ok(Outcome::Done)
        }
        Ok(Written::Refused(newer)) => {
            println!("refused {key} {fence}, since {newer}");
            Verdict::Retry(format!("the resource has seen {newer}"))
        }
        Err(error) => Verdict::Retry(error.to_string()),
    }
}

/// A bucket of states that keeps the highest fence of each key: `<fence> <state>`.
#[derive(Clone)]
struct Resource {
    states: kv::Store,
    way: Duration,
}

enum Written {
    Stored,
    /// Under a later owner, with this fence.
    Refused(Fence),
}

impl Resource {
    async fn open(client: async_nats::Client, way: u64) -> Result<Self> {
        let config = kv::Config {
            bucket: "states".to_owned(),
            ..kv::Config::default()
        };
        let context = jetstream::new(client);
        Ok(Resource {
            states: context.create_key_value(config).await?,
            way: Duration::from_millis(way),
        })
    }

    /// Writes a state, unless the key has one of a higher fence. Comparing and writing are one step: the bucket refuses an
    /// update if the revision is not the one that was read.
    async fn write(&self, key: &str, fence: Fence, state: &[u8]) -> Result<Written> {
        sleep(self.way).await;
        let record = [format!("{fence} ").as_bytes(), state].concat();
        loop {
            let found = self.states.entry(key).await?;
            let revision = found.as_ref().map_or(0, |entry| entry.revision);
            if let Some(entry) = found {
                let text = String::from_utf8_lossy(&entry.value);
                let (seen, _) = text.split_once(' ').context("a fence and a state")?;
                let seen: Fence = seen.parse()?;
                if seen > fence {
                    return Ok(Written::Refused(seen));
                }
            }
            let updated = self.states.update(key, record.clone().into(), revision);
            match updated.await {
                Ok(_) => return Ok(Written::Stored),
                Err(error) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
