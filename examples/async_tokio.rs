//! tokio tasks as workers, and a graceful shut-down: stop accepting, finish what is there, go.
//!
//! `cargo run --release --example async_tokio`
//!
//! `get_async` needs no tokio: any executor does. It is cancel-safe, so it may stand in a `select!`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue::{Added, WorkQueue};
use tokio::task::JoinSet;

const USERS: u64 = 50;
const CLICKS: u64 = 10_000;

/// What the tasks share: the queue, and the state that its keys stand for.
#[derive(Default)]
struct App {
    queue: WorkQueue<u64>,
    clicks: Mutex<HashMap<u64, u64>>,
    saved: Mutex<HashMap<u64, u64>>,
    saves: AtomicU64,
}

/// One worker: takes users whose clicks changed, and saves the newest count.
async fn work(app: Arc<App>) {
    // `None`: shut down and empty. While an item is held, no other worker gets the same user.
    while let Some(user) = app.queue.get_async().await {
        let count = app.clicks.lock().unwrap()[&user];
        tokio::time::sleep(Duration::from_millis(1)).await; // A slow database.
        app.saved.lock().unwrap().insert(*user, count);
        // Ordering: Relaxed; a count that is read after the tasks are joined.
        app.saves.fetch_add(1, Ordering::Relaxed);
    } // Dropping the item says "done"; clicks that came meanwhile bring the user back once.
}

#[tokio::main]
async fn main() {
    let app = Arc::new(App::default());
    let mut workers = JoinSet::new();
    for _ in 0..8 {
        workers.spawn(work(app.clone()));
    }

    for click in 0..CLICKS {
        let user = click % USERS;
        // Change first, then add: the delivery that follows sees at least this change.
        *app.clicks.lock().unwrap().entry(user).or_default() += 1;
        app.queue.add(user);
        if click % 100 == 0 {
            tokio::task::yield_now().await; // Another request.
        }
    }

    // The graceful end: from here adds are refused; this waits until nothing is queued or processed.
    app.queue.drain_async().await;
    assert_eq!(app.queue.add(0), Added::ShutDown);
    // The workers have seen `None`; a panic in one of them would come out here.
    workers.join_all().await;

    // Ordering: Relaxed; the tasks are joined.
    let saves = app.saves.load(Ordering::Relaxed);
    println!("{CLICKS} clicks of {USERS} users: {saves} saves");
    assert_eq!(*app.saved.lock().unwrap(), *app.clicks.lock().unwrap());
    assert!((USERS..=CLICKS).contains(&saves), "at least one a user");
}
