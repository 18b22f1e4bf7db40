//! A replica: POSTs the latest state of each endpoint to the receiver.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use keyqueue_nats::{Delivery, Fleet, Outcome, Verdict};
use reqwest::StatusCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::Connection;
use crate::clock;

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    connection: Connection,
    /// The name of this replica
    #[arg(long)]
    name: String,
    /// The receiver's address
    #[arg(long)]
    receiver: String,
    /// A file to which each beginning of a delivery is written
    #[arg(long)]
    log: PathBuf,
    /// How many endpoints are called at once
    #[arg(long, default_value_t = 32)]
    tasks: usize,
    /// How long running calls may take after SIGTERM, in seconds
    #[arg(long, default_value_t = 10)]
    grace: u64,
    /// The endpoint that kills the process: `abort` is called instead of the endpoint
    #[arg(long)]
    abort: Option<String>,
}

/// Runs until SIGTERM.
pub async fn run(options: Options) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let (client, config) = options.connection.open().await?;
    let join = async {
        loop {
            match Fleet::join(client.clone(), config.clone(), &options.name).await {
                Ok(fleet) => break fleet,
                Err(error) => eprintln!("{}: not joined yet: {error}", options.name),
            }
            sleep(Duration::from_millis(500)).await;
        }
    };
    let fleet = tokio::select! {
        fleet = join => fleet,
        _ = terminate.recv() => return Ok(()),
    };
    tokio::spawn({
        let (fleet, grace) = (fleet.clone(), Duration::from_secs(options.grace));
        async move {
            terminate.recv().await;
            fleet.leave(grace).await
        }
    });
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&options.log)?;
    let caller = Arc::new(Caller {
        http: reqwest::Client::new(),
        log,
        receiver: options.receiver,
        name: options.name,
        abort: options.abort,
    });
    let tasks = options.tasks;
    fleet
        .run(tasks, move |delivery| {
            let caller = Arc::clone(&caller);
            async move {
                // Stops when the partition may be lost: its next owner calls the endpoint.
                tokio::select! {
                    biased;
                    () = delivery.lost() => Verdict::Retry("the lease has lapsed".to_owned()),
                    verdict = caller.call(&delivery) => verdict,
                }
            }
        })
        .await?;
    Ok(())
}

struct Caller {
    http: reqwest::Client,
    log: std::fs::File,
    receiver: String,
    name: String,
    abort: Option<String>,
}

impl Caller {
    async fn call(&self, delivery: &Delivery) -> Verdict<String> {
        let (fence, began) = (delivery.fence(), clock::now());
        // One `write` for each line, so that a kill leaves no half of one.
        let line = format!("{} {} {began}\n", fence.partition, fence.epoch);
        if let Err(error) = (&self.log).write_all(line.as_bytes()) {
            return Verdict::Retry(format!("the log: {error}"));
        }
        if self.abort.as_deref() == Some(delivery.key()) {
            std::process::abort();
        }
        // With `Coalesce::Never` one call applies all of them, in their order.
        let sequences = delivery.messages().iter();
        let sequences: Vec<_> = sequences
            .map(|message| message.sequence.to_string())
            .collect();
        let request = self
            .http
            .post(format!("http://{}/hook/{}", self.receiver, delivery.key()))
            .header("x-fence", fence.to_string())
            .header("x-sequences", sequences.join(","))
            .header("x-replica", &self.name)
            .body(delivery.latest().payload.clone());
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Verdict::Retry(error.to_string()),
        };
        // A call whose response has not come has failed for this replica, whatever the receiver saw.
        let line = format!("heard {} {began} {}\n", delivery.key(), clock::now());
        if let Err(error) = (&self.log).write_all(line.as_bytes()) {
            return Verdict::Retry(format!("the log: {error}"));
        }
        let wait = response.headers().get("retry-after");
        let wait = wait.and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        match response.status() {
            StatusCode::OK => Verdict::Ok(Outcome::Done),
            StatusCode::TOO_MANY_REQUESTS => {
                let wait = Duration::from_secs(wait.unwrap_or(1));
                Verdict::RetryAfter("too many requests".to_owned(), wait)
            }
            status => Verdict::Retry(status.to_string()),
        }
    }
}
