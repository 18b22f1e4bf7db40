//! tokio tasks as workers, with retries. `graceful` shows how such a program ends at a signal.
//!
//! `cargo run --release --example async_tokio`
//!
//! `spawn_on` is for tokio. On any other executor spawn `run_async`, or write your own loop with
//! `get_async`, which is cancel-safe, so it can be used in a `select!`.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use keyqueue::{Added, WorkQueue};
use tokio::runtime::Handle;

const USERS: u64 = 50;
const CLICKS: u64 = 10_000;

type Queue = WorkQueue<u64, ItemExponentialFailure<u64>>;

/// The state that the keys stand for, and what was done about it.
#[derive(Default)]
struct App {
    clicks: Mutex<HashMap<u64, u64>>,
    saved: Mutex<HashMap<u64, u64>>,
    attempts: AtomicU64,
}

impl App {
    /// Saves the newest count of one user. Never runs twice at once for the same user.
    async fn save(&self, user: u64) -> io::Result<Outcome> {
        let count = self.clicks.lock().unwrap()[&user];
        tokio::time::sleep(Duration::from_millis(1)).await; // A slow database.
        // Ordering: Relaxed; a count that is read after the tasks are joined.
        if self.attempts.fetch_add(1, Ordering::Relaxed) % 20 == 19 {
            return Err(io::ErrorKind::ConnectionReset.into()); // And a flaky one: tried again.
        }
        self.saved.lock().unwrap().insert(user, count);
        Ok(Outcome::Done) // Clicks that came meanwhile bring the user back once.
    }

    fn is_saved(&self) -> bool {
        *self.saved.lock().unwrap() == *self.clicks.lock().unwrap()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let program = clap::Command::new("async_tokio");
    program
        .about("Saves users in tokio tasks with retries, and shuts down gracefully")
        .get_matches();

    let app = Arc::new(App::default());
    let backoff = ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_secs(1))?;
    let queue: Arc<Queue> = Arc::new(WorkQueue::builder().rate_limiter(backoff).build()?);

    // Eight tasks on the runtime's threads, with one user each.
    let state = Arc::clone(&app);
    let workers = Workers::shared(Arc::clone(&queue))
        .tasks(8)
        .max_retries(10)
        .on_give_up(|user, end| eprintln!("user {user} is not saved: {end}"))
        .spawn_on(&Handle::current(), move |user| {
            let app = Arc::clone(&state);
            async move { app.save(*user).await }
        })?;

    for click in 0..CLICKS {
        let user = click % USERS;
        // Change first, then add: the delivery that follows sees at least this change.
        *app.clicks.lock().unwrap().entry(user).or_default() += 1;
        queue.add(user);
        if click % 100 == 0 {
            tokio::task::yield_now().await; // Another request.
        }
    }
    // A shut-down would drop the retries that are pending.
    while !app.is_saved() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    // The graceful end: from here adds are refused; this waits until nothing is queued or
    // processed.
    queue.drain_async().await;
    assert_eq!(queue.add(0), Added::ShutDown);
    workers.join().await;

    // Ordering: Relaxed; the tasks are joined.
    let attempts = app.attempts.load(Ordering::Relaxed);
    println!("{CLICKS} clicks of {USERS} users: {attempts} attempts to save");
    assert!(app.is_saved());
    assert!(attempts >= USERS, "at least one a user");
    Ok(())
}
