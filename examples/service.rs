//! A service on tokio: tasks as workers, with retries, that end gracefully. At SIGTERM or Ctrl-C it refuses further work,
//! finishes what is queued within a grace period, and says what was left.
//!
//! `cargo run --release --example service -- [--grace SECONDS] [--clicks N] [--fail N]`
//!
//! Requests count clicks, and eight tasks on the runtime's threads save the counts. The exit code is 0 if every count was saved,
//! and 1 if the grace period was too short or a save failed at the very end.
//!
//! `spawn_on` is for tokio. On any other executor spawn `run_async`, or write your own loop with
//! `get_async`, which is cancel-safe, so it can be used in a `select!`.

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use keyqueue::{Added, DrainEnd, WorkQueue};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// Saves the clicks of users until SIGTERM or Ctrl-C, then finishes what is queued.
#[derive(Parser)]
#[command(name = "service")]
struct Args {
    /// How long the last saves may take; Kubernetes kills a pod after 30 s by default
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    grace: u64,
    /// End after this many clicks, which come as fast as they can
    #[arg(long, value_name = "N")]
    clicks: Option<u64>,
    /// Every Nth save fails, and is tried again
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    fail: Option<u64>,
}

const USERS: u64 = 50;

/// The state that the keys stand for, and what was done about it.
#[derive(Default)]
struct App {
    clicks: Mutex<HashMap<u64, u64>>,
    saved: Mutex<HashMap<u64, u64>>,
    attempts: AtomicU64,
    fail: Option<u64>,
    /// A retry that the end finds pending is delivered at once, but a key that fails after it is given up.
    unsaved: AtomicU64,
}

impl App {
    /// Saves the newest count of one user. Never runs twice at once for the same user. Cancelled at the `await` if the grace
    /// period is over.
    async fn save(&self, user: u64) -> io::Result<Outcome> {
        let count = self.clicks.lock().unwrap()[&user];
        sleep(Duration::from_millis(50)).await; // A slow database.
        // Ordering: Relaxed, here and below; counts that are read after the tasks are joined.
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fail.is_some_and(|n| attempt.is_multiple_of(n)) {
            return Err(io::ErrorKind::ConnectionReset.into()); // And a flaky one: tried again.
        }
        self.saved.lock().unwrap().insert(user, count);
        Ok(Outcome::Done) // Clicks that came meanwhile bring the user back once.
    }

    /// Whether the counts of all users, but for this one, are saved.
    fn is_saved(&self, but: Option<u64>) -> bool {
        let (clicks, saved) = (self.clicks.lock().unwrap(), self.saved.lock().unwrap());
        let mut clicks = clicks.iter().filter(|(user, _)| Some(**user) != but);
        clicks.all(|(user, count)| saved.get(user) == Some(count))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    // Set up first: before, a signal ends the process immediately.
    let signal = signal()?;
    let app = Arc::new(App {
        fail: args.fail,
        ..App::default()
    });
    let backoff = ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_secs(1))?;
    // At the end retries that are pending are delivered at once, not dropped.
    let queue = WorkQueue::builder()
        .rate_limiter(backoff)
        .drain_delays(true);
    let queue = Arc::new(queue.build()?);

    // Eight tasks on the runtime's threads, with one user each.
    let (state, given_up) = (Arc::clone(&app), Arc::clone(&app));
    let mut workers = Workers::shared(Arc::clone(&queue))
        .tasks(8)
        .max_retries(10)
        .on_give_up(move |user, end| {
            eprintln!("user {user} is not saved: {end}");
            given_up.unsaved.fetch_add(1, Ordering::Relaxed);
        })
        .spawn_on(&Handle::current(), move |user| {
            let app = Arc::clone(&state);
            async move { app.save(*user).await }
        })?;

    let state = Arc::clone(&app);
    let requests = tokio::spawn(async move {
        for click in 0..args.clicks.unwrap_or(u64::MAX) {
            let user = click % USERS;
            // Change first, then add: the delivery that follows sees at least this change.
            *state.clicks.lock().unwrap().entry(user).or_default() += 1;
            if queue.add(user) == Added::ShutDown {
                return Some(user); // The request is refused.
            }
            match args.clicks {
                Some(_) => tokio::task::yield_now().await, // Another request.
                None => sleep(Duration::from_millis(1)).await,
            }
        }
        None
    });
    println!("saving, SIGTERM or Ctrl-C ends");
    let last_click = async {
        // Here there is time for every retry.
        while !requests.is_finished() || !app.is_saved(None) {
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
    let refused = requests.await?;

    let finished = drained.end == DrainEnd::Finished;
    let end = if finished { "finished" } else { "out of time" };
    println!("{end}, {}", drained.left);
    let unsaved = app.unsaved.load(Ordering::Relaxed);
    assert!(!finished || unsaved > 0 || app.is_saved(refused));
    Ok(ExitCode::from(u8::from(!finished || unsaved > 0)))
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
