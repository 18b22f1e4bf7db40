//! A working set that returns: one producer adds the same keys round and round, and one consumer
//! keeps pace.
//!
//! The set is far larger than what a queue that forgets idle keys keeps of them, and the queue runs
//! empty after every [`BURST`] adds: the producer then waits until the consumer has finished them
//! all. A queue that drops idle keys whenever it is empty has to intern the whole set again in
//! every pass; one that keeps them does so only in the first.
//!
//! No key is queued or processing when it is added, so that every add makes exactly one delivery.

use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::{Backoff, CachePadded};

use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::race::{self, Racer};
use crate::spec::Scale;

/// Adds that the producer makes before it waits for the consumer.
const BURST: usize = 1000;

/// Nanoseconds for each add and its delivery.
pub(super) fn run<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale) -> Vec<f64> {
    let keys: Vec<Q::Owned> = (0..scale.returning).map(Q::nth).collect();
    let adds = scale.returns * keys.len();
    let queue = C::new();
    let finished = CachePadded::new(AtomicUsize::new(0));

    let mut racers: Vec<Racer<'_, Tally>> = Vec::new();
    racers.push(Box::new(|| {
        for (n, key) in std::iter::repeat_n(&keys, scale.returns)
            .flatten()
            .enumerate()
        {
            if n % BURST == 0 {
                wait_for(&finished, n);
            }
            queue.add_ref(key.borrow());
        }
        wait_for(&finished, adds);
        queue.shut_down();
        Tally::default()
    }));
    racers.push(Box::new(|| {
        let mut delivered = Tally::default();
        while let Some(item) = queue.get() {
            delivered.count(C::key_of(&item));
            queue.done(item);
            // Ordering: Release; pairs with the Acquire load in `wait_for`, so that the key is idle
            // when it is added again.
            finished.store(delivered.count as usize, Ordering::Release);
        }
        delivered
    }));
    let laps = race::run(racers);

    let expected = Tally::of_first::<Q>(keys.len()).times(scale.returns as u64);
    assert_eq!(laps[1].result, expected);
    assert_eq!(queue.len(), 0);
    vec![race::ns(&laps) / adds as f64]
}

/// Waits until that many deliveries are finished.
fn wait_for(finished: &AtomicUsize, count: usize) {
    let backoff = Backoff::new();
    // Ordering: Acquire; pairs with the Release store of the consumer.
    while finished.load(Ordering::Acquire) < count {
        backoff.snooze();
    }
}
