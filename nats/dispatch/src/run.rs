//! `dispatch run`: everything on one machine, with a replica that is killed in the middle.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use keyqueue_nats::Config;
use servers::nats::Servers;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::lab::Lab;
use crate::receiver::Behaviour;

/// How often it is told what the receiver has seen.
const SHOW: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub struct Options {
    /// How many messages to add
    #[arg(long, default_value_t = 20_000)]
    messages: usize,
    /// To how many endpoints
    #[arg(long, default_value_t = 1000)]
    endpoints: usize,
    /// Over how many seconds
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    #[command(flatten)]
    behaviour: Behaviour,
}

/// Runs, and fails if the check does.
pub async fn run(options: Options) -> Result<()> {
    let config = Config {
        lease: Duration::from_secs(3),
        ..Config::default()
    };
    let program = std::env::current_exe()?;
    let Some(mut lab) = Lab::new(&program, config, &options.behaviour).await? else {
        return Ok(());
    };
    lab.start().await?;
    for name in ["a", "b", "c"] {
        lab.join(name, None)?;
    }
    println!(
        "nats-server on {}, replicas a, b, c",
        lab.servers.addresses()
    );
    let mut producer = lab.produce(options.messages, options.endpoints, options.seconds)?;
    let began = Instant::now();
    let mut show_at = began + SHOW;
    let half = Duration::from_secs(options.seconds) / 2;
    let mut killed = false;
    loop {
        if let Some(end) = producer.try_wait()? {
            ensure!(end.success(), "the producer failed");
            break;
        }
        if !killed && began.elapsed() > half {
            killed = true;
            lab.kill("b").await?;
            lab.join("d", None)?;
            println!(
                "replica b is killed (SIGKILL): its partitions move when its lease of 3 s has run out"
            );
            println!("replica d joins");
        }
        if Instant::now() >= show_at {
            show(&lab).await?;
            show_at += SHOW;
        }
        sleep(Duration::from_millis(200)).await;
    }
    let verdict = lab.check().await?;
    println!("{verdict}");
    for name in lab.running() {
        ensure!(lab.terminate(&name).await?, "replica {name} did not leave");
    }
    println!("the replicas have left");
    ensure!(verdict.violations.is_empty(), "there are violations");
    Ok(())
}

/// Runs one server until Ctrl-C or SIGTERM, with the stream and the bucket of the default configuration.
pub async fn server(directory: &Path) -> Result<()> {
    let servers = Servers::prepare(directory, 1)?;
    let mut servers = servers.context("there is no nats-server; nats/server.sh installs it")?;
    servers.start()?;
    let client = servers.ready().await?;
    keyqueue_nats::create(&client, &Config::default()).await?;
    println!("{}", servers.addresses());
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

async fn show(lab: &Lab) -> Result<()> {
    let report = lab.report().await?;
    let calls: usize = report.values().map(Vec::len).sum();
    let left = lab.left().await?;
    let endpoints = report.len();
    println!("{endpoints} endpoints called {calls} times, {left} messages wait");
    Ok(())
}
