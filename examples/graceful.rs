//! A service on tokio that ends gracefully: at SIGTERM or Ctrl-C it refuses further work, finishes
//! what is queued within a grace period, and says what was left.
//!
//! `cargo run --release --example graceful -- [--grace SECONDS]`
//!
//! Requests make cache entries stale, and eight tasks on the runtime's threads refresh them. The
//! exit code is 0 if every stale entry was refreshed, and 1 if the grace period was too short.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use keyqueue::worker::Workers;
use keyqueue::{DrainEnd, WorkQueue};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// Refreshes cache entries until SIGTERM or Ctrl-C, then finishes what is queued.
#[derive(Parser)]
struct Args {
    /// How long the queued entries may take at the end; Kubernetes kills a pod after 30 s by default
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    grace: u64,
}

const ENTRIES: u64 = 40;

/// Refreshes an entry. Cancelled at the `await` if the grace period is over.
async fn refresh(entry: u64) {
    sleep(Duration::from_millis(100 + entry)).await; // A slow backend.
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    // Set up first: before, a signal ends the process immediately.
    let signal = signal()?;
    let queue = Arc::new(WorkQueue::new());
    queue.add_all(0..ENTRIES);
    let mut workers = Workers::shared(Arc::clone(&queue)).tasks(8).spawn_on(
        &Handle::current(),
        |entry| async move { refresh(*entry).await },
    )?;

    let requests = tokio::spawn(async move {
        for request in 0_u64.. {
            if !queue.add(request * 7 % ENTRIES).is_accepted() {
                break; // The queue is shut down.
            }
            sleep(Duration::from_millis(1)).await;
        }
    });
    println!("refreshing, SIGTERM or Ctrl-C ends");
    let drained = workers
        .run_until(signal, Duration::from_secs(args.grace))
        .await;
    requests.await?;

    let finished = drained.end == DrainEnd::Finished;
    let end = if finished { "finished" } else { "out of time" };
    println!("{end}, {}", drained.left);
    Ok(ExitCode::from(u8::from(!finished)))
}

/// Returns a future that is ready at SIGTERM, as Kubernetes and systemd send it, or at Ctrl-C.
#[cfg(unix)]
fn signal() -> io::Result<impl Future> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn signal() -> io::Result<impl Future> {
    Ok(tokio::signal::ctrl_c())
}
