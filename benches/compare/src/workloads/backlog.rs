//! What an add costs while a million keys wait and a thousand workers sleep 1 ms for each key.
//!
//! Workers are tasks, as are those of a controller that waits for its API server. The time ends
//! when the queue has returned its length: a queue that only notes an add has made it by then. After
//! that the workers no longer sleep, and what is left is delivered and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{cores, runtime};
use crate::keys::{Key, Tally};
use crate::queue::Tasked;

/// A worker sleeps this long for each key.
const WORK: Duration = Duration::from_millis(1);
/// The workers work this long before the first add.
const SETTLE: Duration = Duration::from_millis(20);

/// Nanoseconds for the add of a new key, a tenth as many as wait.
pub(crate) fn run<C: Tasked>(count: usize) -> Vec<f64> {
    let queue = Arc::new(C::new());
    (0..count).for_each(|n| queue.add(u64::nth(n).into()));
    let all = count + count / 10;
    let added: Vec<C::Key> = (count..all).map(|n| u64::nth(n).into()).collect();

    let runtime = runtime(cores());
    let hurry = Arc::new(AtomicBool::new(false));
    let start = |_| runtime.spawn(consume(Arc::clone(&queue), Arc::clone(&hurry)));
    let workers: Vec<_> = (0..(count / 1000).max(100)).map(start).collect();
    std::thread::sleep(SETTLE);

    let start = Instant::now();
    added.into_iter().for_each(|key| queue.add(key));
    let left = queue.len();
    let elapsed = start.elapsed();
    assert!(left > 0, "the keys have run out before the adds");

    // Ordering: Relaxed; only a hint.
    hurry.store(true, Ordering::Relaxed);
    queue.shut_down();
    let tallies = workers.into_iter().map(|worker| runtime.block_on(worker));
    let tallies = tallies.map(|tally| tally.expect("the worker panicked"));
    let delivered = tallies.fold(Tally::default(), Tally::merge);
    assert_eq!(delivered, Tally::of_first::<u64>(all));
    vec![elapsed.as_nanos() as f64 / (all - count) as f64]
}

async fn consume<C: Tasked>(queue: Arc<C>, hurry: Arc<AtomicBool>) -> Tally {
    let mut delivered = Tally::default();
    while let Some(item) = queue.get_in_task().await {
        delivered.count(C::key(&item));
        // Ordering: Relaxed; only a hint.
        if !hurry.load(Ordering::Relaxed) {
            tokio::time::sleep(WORK).await;
        }
        queue.done(item);
    }
    delivered
}
