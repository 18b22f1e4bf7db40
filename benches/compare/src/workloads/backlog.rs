//! What an add costs while a million keys wait and a thousand workers sleep 1 ms for each key.
//!
//! Workers are tasks, as are those of a controller that waits for its API server. The time ends
//! when the queue has returned its length: a queue that only notes an add has made it by then. After
//! that the workers no longer sleep, and what is left is delivered and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::keys::{Key, Tally};
use crate::queue::Tasked;
use crate::spec::{Scale, cores};

/// A worker sleeps this long for each key.
const WORK: Duration = Duration::from_millis(1);
/// The workers work this long before the first add.
const SETTLE: Duration = Duration::from_millis(20);

/// Nanoseconds for the add of a new key.
pub(crate) fn run<C: Tasked>(scale: &Scale) -> Vec<f64> {
    let queue = Arc::new(C::new());
    (0..scale.keys).for_each(|n| queue.add(C::key(u64::nth(n))));
    let all = scale.keys + scale.backlog_adds;
    let added: Vec<C::Key> = (scale.keys..all).map(|n| C::key(u64::nth(n))).collect();

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores())
        .enable_time()
        .build()
        .expect("a runtime");
    let hurry = Arc::new(AtomicBool::new(false));
    let start = || runtime.spawn(consume(Arc::clone(&queue), Arc::clone(&hurry)));
    let workers: Vec<_> = (0..scale.backlog_workers).map(|_| start()).collect();
    std::thread::sleep(SETTLE);

    let start = Instant::now();
    for key in added {
        queue.add(key);
    }
    let left = queue.len();
    let elapsed = start.elapsed();
    assert!(left > 0, "the keys have run out before the adds");

    // Ordering: Relaxed; only a hint.
    hurry.store(true, Ordering::Relaxed);
    queue.shut_down();
    let mut delivered = Tally::default();
    for worker in workers {
        let tally = runtime.block_on(worker);
        delivered = delivered.merge(tally.expect("the worker panicked"));
    }
    assert_eq!(delivered, Tally::of_first::<u64>(all));
    vec![elapsed.as_nanos() as f64 / scale.backlog_adds as f64]
}

async fn consume<C: Tasked>(queue: Arc<C>, hurry: Arc<AtomicBool>) -> Tally {
    let mut delivered = Tally::default();
    while let Some(item) = queue.get_in_task().await {
        delivered.count(C::key_of(&item));
        // Ordering: Relaxed; only a hint.
        if !hurry.load(Ordering::Relaxed) {
            tokio::time::sleep(WORK).await;
        }
        queue.done(item);
    }
    delivered
}
