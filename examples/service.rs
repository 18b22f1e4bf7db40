//! A service on tokio: tasks as workers, with retries, that end gracefully. At SIGTERM or Ctrl-C it refuses further work,
//! finishes what is queued within a grace period, and says what was left. What is left it keeps in a file, for its next start.
//!
//! `cargo run --release -p keyqueue-examples --example service -- [--grace SECONDS] [--left FILE] [--clicks N] [--fail N]`
//!
//! Requests put clicks, and eight tasks on the runtime's threads save them: all clicks of a user that have come meanwhile at
//! once. The exit code is 0 if every click was saved, and otherwise 1.
//!
//! `spawn_on` is for tokio. On any other executor spawn `run_async`, or write your own loop with
//! `get_async`, which is cancel-safe, so it can be used in a `select!`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Workers};
use keyqueue::{Added, Counts, WorkQueue, merge};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// Saves the clicks of users until SIGTERM or Ctrl-C, then finishes what is queued.
#[derive(Parser)]
#[command(name = "service")]
struct Args {
    /// How long the last saves may take; Kubernetes kills a pod after 30 s by default
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    grace: u64,
    /// Where to keep the clicks that are left at the end, and find those of the last end
    #[arg(long, value_name = "FILE")]
    left: Option<PathBuf>,
    /// End after this many clicks, which come as fast as they can
    #[arg(long, value_name = "N")]
    clicks: Option<u64>,
    /// Every Nth save fails, and is tried again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    fail: Option<u64>,
}

const USERS: u64 = 50;

/// The clicks of users that are not saved yet.
type Queue = WorkQueue<u64, u64>;

/// What the clicks are saved to.
#[derive(Default)]
struct Database {
    saved: AtomicU64,
    saves: AtomicU64,
    /// Every how manyeth save fails.
    fail: Option<u64>,
}

impl Database {
    /// Saves clicks of a user. Never runs twice at once for the same user. Cancelled at the `await` if the grace period is over.
    async fn save(&self, clicks: u64) -> io::Result<()> {
        sleep(Duration::from_millis(50)).await; // It is slow.
        // Ordering: Relaxed, here and below; counts that are read after the tasks are joined, or as a hint.
        let save = self.saves.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fail.is_some_and(|n| save.is_multiple_of(n)) {
            return Err(io::ErrorKind::ConnectionReset.into()); // And flaky: tried again.
        }
        self.saved.fetch_add(clicks, Ordering::Relaxed);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    // Set up first: before, a signal ends the process immediately.
    let signal = signal()?;
    let backoff = ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_secs(1))?;
    // At the end retries that are pending are delivered at once, not dropped.
    let queue = WorkQueue::builder().merge(merge::sum).drain_delays(true);
    let queue: Arc<Queue> = Arc::new(queue.rate_limiter(backoff).build()?);
    let found = match &args.left {
        Some(file) => load(&queue, file).with_context(|| format!("cannot read {file:?}"))?,
        None => 0,
    };

    // Eight tasks on the runtime's threads, with one user each.
    let database = Arc::new(Database {
        fail: args.fail,
        ..Database::default()
    });
    let given_up = DeadLetters::new(USERS as usize)?;
    let workers = Workers::new(&queue).concurrency(8).max_retries(10);
    let workers = workers.dead_letters(&given_up);
    let save = Arc::clone(&database);
    let mut workers = workers.spawn_on(&Handle::current(), move |job| {
        let database = Arc::clone(&save);
        async move { database.save(*job.value()).await }
    })?;

    let clicked = Arc::clone(&queue);
    let requests = tokio::spawn(async move {
        let mut made = 0;
        while args.clicks != Some(made) && clicked.put(made % USERS, 1) != Added::ShutDown {
            if made == 0 {
                println!("saving, SIGTERM or Ctrl-C ends");
            }
            made += 1;
            match args.clicks {
                Some(_) => tokio::task::yield_now().await, // Another request.
                None => sleep(Duration::from_millis(1)).await,
            }
        }
        made // The one after them is refused.
    });
    let last_click = async {
        // Here there is time for every retry.
        while !requests.is_finished() || queue.counts() != Counts::default() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let end = async {
        tokio::select! {
            _ = signal => {}
            () = last_click => {}
        }
    };
    let drained = workers
        .run_until(end, Duration::from_secs(args.grace))
        .await;
    let made = requests.await?;
    workers.join_async().await; // The last task lets its clicks go.

    let mut left = Vec::new();
    for key in queue.take_left() {
        left.push((key.key, key.value.unwrap_or_default()));
    }
    for letter in given_up.list() {
        eprintln!("user {} is not saved: {}", letter.key, letter.error);
        left.push((*letter.key, letter.value.map_or(0, |clicks| *clicks)));
    }
    if let Some(file) = &args.left {
        keep(&left, file).with_context(|| format!("cannot write {file:?}"))?;
    }
    let end = match drained.is_finished() {
        true => "finished",
        false => "out of time",
    };
    println!("{end}, {drained}");
    let saved = database.saved.load(Ordering::Relaxed);
    let left: u64 = left.iter().map(|(_, clicks)| clicks).sum();
    println!("clicks: {found} found, {made} made, {saved} saved, {left} left");
    assert_eq!(
        found + made,
        saved + left,
        "no click is lost or saved twice"
    );
    Ok(ExitCode::from(u8::from(left > 0)))
}

/// Puts the clicks that the last end has left, a user and a number on each line. Returns how many there were.
fn load(queue: &Queue, file: &Path) -> io::Result<u64> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(), // It is the first start.
        text => text?,
    };
    let mut found = 0;
    for line in text.lines() {
        let numbers = line
            .split_once(' ')
            .map(|(user, clicks)| (user.parse(), clicks.parse()));
        let Some((Ok(user), Ok(clicks))) = numbers else {
            return Err(io::Error::other(format!(
                "{line:?} is not a user and a number"
            )));
        };
        queue.put(user, clicks);
        found += clicks;
    }
    Ok(found)
}

/// Replaces the file. After a power failure it is the old one or the new one.
fn keep(left: &[(u64, u64)], file: &Path) -> io::Result<()> {
    let mut text = String::new();
    for (user, clicks) in left {
        writeln!(text, "{user} {clicks}").expect("a string grows");
    }
    let new = file.with_extension("new");
    let mut written = File::create(&new)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(new, file)
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
