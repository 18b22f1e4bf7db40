//! The loop around the queue: distinct strings through a function that has nothing to do, with
//! several in flight, within one task.
//!
//! The figure includes what else the loop does for a key: keyqueue's clears the failures that a
//! limiter may remember, kube-runtime's looks the object up.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Instant;

use keyqueue::WorkQueue;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};

use super::limiter;
use crate::keys::{Key, Tally};
use crate::spec::Scale;

/// A runtime of the calling thread.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

/// Nanoseconds for each key, from its add to the end of the loop.
pub(crate) fn keyqueue(scale: &Scale) -> Vec<f64> {
    let limiter =
        ItemExponentialFailure::new(limiter::BASE, limiter::MAX).expect("these are in range");
    let queue = WorkQueue::builder()
        .rate_limiter(limiter)
        .build()
        .expect("nothing is out of range");
    let keys: Vec<String> = (0..scale.reconciled).map(str::nth).collect();
    let delivered = Cell::new(Tally::default());
    let start = Instant::now();
    queue.add_all(keys);
    queue.shut_down();
    let workers = Workers::new(&queue).tasks(scale.reconcilers.into());
    let run = workers.run_async(async |key: &String| {
        let mut tally = delivered.get();
        tally.count(key.as_str());
        delivered.set(tally);
        Ok::<_, Infallible>(Outcome::Done)
    });
    runtime()
        .block_on(run)
        .expect("the number of tasks is allowed");
    let elapsed = start.elapsed();
    assert_eq!(delivered.get(), Tally::of_first::<str>(scale.reconciled));
    vec![elapsed.as_nanos() as f64 / scale.reconciled as f64]
}
