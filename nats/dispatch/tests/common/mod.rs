//! Scenarios with processes and a real server.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use dispatch::check::Verdict;
use dispatch::lab::Lab;
use dispatch::receiver::Behaviour;
use keyqueue_nats::{Coalesce, Config};
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// Held by the scenario that runs.
pub(crate) static MACHINE: Mutex<()> = Mutex::const_new(());

pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) fn config() -> Config {
    Config {
        partitions: 16,
        lease: LEASE,
        backoff: Duration::from_millis(20),
        ..Config::default()
    }
}

pub(crate) fn with(coalesce: Coalesce) -> Config {
    Config {
        coalesce,
        ..config()
    }
}

pub(crate) fn work(milliseconds: u64) -> Behaviour {
    Behaviour {
        work: milliseconds,
        ..Behaviour::default()
    }
}

pub(crate) async fn lab(config: Config, behaviour: Behaviour) -> Result<Option<Lab>> {
    let program = Path::new(env!("CARGO_BIN_EXE_dispatch"));
    Lab::new(program, config, &behaviour).await
}

/// Starts the servers and these replicas.
pub(crate) async fn started(
    config: Config,
    behaviour: Behaviour,
    replicas: &[&str],
) -> Result<Option<Lab>> {
    let Some(mut lab) = lab(config, behaviour).await? else {
        return Ok(None);
    };
    lab.start().await?;
    for name in replicas {
        lab.join(name, None)?;
    }
    Ok(Some(lab))
}

pub(crate) async fn stored(mut producer: Child) -> Result<()> {
    ensure!(producer.wait().await?.success(), "the producer failed");
    Ok(())
}

/// Waits until the receiver has seen this many calls.
pub(crate) async fn calls(lab: &Lab, count: usize) -> Result<()> {
    while lab.report().await?.values().map(Vec::len).sum::<usize>() < count {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until a replica has begun deliveries.
pub(crate) async fn working(lab: &Lab, name: &str) -> Result<()> {
    while !lab
        .report()
        .await?
        .values()
        .flatten()
        .any(|call| call.replica == name)
    {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub(crate) fn sound(name: &str, verdict: &Verdict) {
    println!("{name}:\n{verdict}");
    assert!(verdict.violations.is_empty(), "{name} has violations");
}
