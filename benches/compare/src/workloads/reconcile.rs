//! The loop around the queue: distinct strings through a function that has nothing to do, with
//! several in flight, within one task.
//!
//! The figure includes what else the loop does for a key: keyqueue's clears the failures that a
//! limiter may remember, kube-runtime's looks the object up.

use std::cell::Cell;
use std::time::Instant;

use crate::keys::Tally;

/// Keys in flight.
pub(crate) const TASKS: u16 = 16;

/// Nanoseconds for each key, from its add to the end of the loop, which calls the function for each key.
pub(crate) fn timed(count: usize, run: impl AsyncFnOnce(&dyn Fn(&str))) -> Vec<f64> {
    let delivered = Cell::new(Tally::default());
    let deliver = |key: &str| {
        let mut tally = delivered.get();
        tally.count(key);
        delivered.set(tally);
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let start = Instant::now();
    let runtime = builder.enable_time().build().expect("a runtime");
    runtime.block_on(run(&deliver));
    let elapsed = start.elapsed();
    assert_eq!(delivered.get(), Tally::of_first::<str>(count));
    vec![elapsed.as_nanos() as f64 / count as f64]
}
