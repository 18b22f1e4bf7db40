//! The events of a log, over and over: one producer adds the key of each line, one consumer gets
//! them.
//!
//! How many deliveries that makes is not known beforehand, so the check is that every key is
//! delivered after its last add. The producer announces it before it makes that add; the
//! consumer notes a delivery that sees the announcement.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;

use crate::log::Log;
use crate::queue::Queue;
use crate::race::{self, Racer};

#[derive(Default)]
struct Seen {
    /// The last add of the key is about to be made, or was.
    announced: AtomicBool,
    /// A delivery has seen that.
    served: AtomicBool,
}

/// Nanoseconds for each event, until the last delivery is done.
pub(super) fn run<C: Queue<str>>(log: &Log) -> Vec<f64> {
    let mut last: HashMap<&str, usize, RandomState> = HashMap::default();
    for (at, key) in log.keys.iter().enumerate() {
        last.insert(key, at);
    }
    let keys: HashMap<&str, Seen, RandomState> =
        last.keys().map(|key| (*key, Seen::default())).collect();
    let is_last: Vec<bool> = (0..log.keys.len())
        .map(|at| last[log.keys[at].as_str()] == at)
        .collect();

    let queue = C::new();
    let mut racers: Vec<Racer<'_, usize>> = Vec::new();
    racers.push(Box::new(|| {
        for key in std::iter::repeat_n(&log.keys, log.passes - 1).flatten() {
            queue.add_ref(key);
        }
        for (key, is_last) in log.keys.iter().zip(is_last) {
            if is_last {
                // Ordering: Release; pairs with the Acquire load at a delivery. Whether a delivery
                // sees it is what the check is about: that takes the queue's own ordering.
                keys[key.as_str()].announced.store(true, Ordering::Release);
            }
            queue.add_ref(key);
        }
        queue.shut_down();
        0
    }));
    racers.push(Box::new(|| {
        let mut deliveries = 0;
        while let Some(item) = queue.get() {
            let key = &keys[C::key_of(&item)];
            // Ordering: Acquire; pairs with the Release store of the producer.
            if key.announced.load(Ordering::Acquire) {
                // Ordering: Relaxed; read after the threads were joined.
                key.served.store(true, Ordering::Relaxed);
            }
            deliveries += 1;
            queue.done(item);
        }
        deliveries
    }));
    let laps = race::run(racers);

    let events = log.passes * log.keys.len();
    for (key, seen) in &keys {
        // Ordering: Relaxed; the threads were joined.
        let served = seen.served.load(Ordering::Relaxed);
        assert!(served, "no delivery of {key} after its last add");
    }
    assert!(laps[1].result <= events, "more deliveries than adds");
    vec![race::ns(&laps) / events as f64]
}
