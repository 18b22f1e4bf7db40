//! How long a parked consumer takes from an add to its `get`.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Scale;
use crate::contenders::Queue;
use crate::keys::{Key, Tally};

/// Long enough for a consumer to give up spinning and park.
const SETTLE: Duration = Duration::from_micros(500);

/// The median and the 99th percentile, in nanoseconds.
pub(super) fn run<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale) -> Vec<f64> {
    let queue = C::new();
    let epoch = Instant::now();
    let added_at = AtomicU64::new(0);
    let now = || epoch.elapsed().as_nanos() as u64;
    let mut delivered = Tally::default();

    let latencies = thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut latencies = Histogram::<u64>::new(3).expect("three digits are allowed");
            while let Some(item) = queue.get() {
                // Ordering: Relaxed; the add comes after the store and the delivery before this
                // load.
                latencies += now() - added_at.load(Ordering::Relaxed);
                delivered.count(C::key_of(&item));
                queue.done(item);
            }
            latencies
        });
        for n in 0..scale.wakes {
            thread::sleep(SETTLE);
            // Ordering: Relaxed; see the load.
            added_at.store(now(), Ordering::Relaxed);
            queue.add_ref(Q::nth(n).borrow());
        }
        queue.shut_down();
        consumer
            .join()
            .expect("the consumer has panicked, and said why")
    });
    assert_eq!(delivered, Tally::of_first::<Q>(scale.wakes));
    vec![
        latencies.value_at_quantile(0.5) as f64,
        latencies.value_at_quantile(0.99) as f64,
    ]
}
