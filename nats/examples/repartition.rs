//! Changes the number of partitions of a fleet: see docs/operating.md. It may be killed, and run again.
//!
//! ```text
//! cargo run --release -p keyqueue-nats --example repartition -- SERVERS CONFIGURATION.toml
//! ```

use std::{env, fs};

use anyhow::{Context, Result};
use keyqueue_nats::{Config, repartition};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let usage = "repartition SERVERS CONFIGURATION.toml";
    let servers = arguments.next().context(usage)?;
    let file = arguments.next().context(usage)?;
    let text = fs::read_to_string(&file).with_context(|| file.clone())?;
    let config: Config = toml::from_str(&text).context(file)?;
    let client = async_nats::connect(servers).await?;
    println!(
        "{} is to have {} partitions",
        config.stream, config.partitions
    );
    repartition(&client, &config).await?;
    println!("{} has {} partitions", config.stream, config.partitions);
    Ok(())
}
