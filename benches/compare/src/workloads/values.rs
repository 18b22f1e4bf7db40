//! Keys that carry values: an inbox for each key, to which producers put events, and whose events
//! a worker gets all at once.
//!
//! Every event must reach one worker, and those of one producer to a key in their order. An event
//! holds its key, its producer and its number, so that a worker can check this while it reads it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::{HOT, passes};
use crate::keys::{Key, Tally};
use crate::queue::Inboxes;
use crate::race::race;
use crate::workload::{Kind, Round};

const MOST_PRODUCERS: usize = 8;

/// The numbers of the next event of each producer to a key.
type Next = CachePadded<[AtomicU64; MOST_PRODUCERS]>;

/// Runs a round on a new queue; `None` if the workload has no values.
pub(crate) fn run<C: Inboxes>(round: &Round<'_>) -> Option<Vec<f64>> {
    let Round { threads, count, .. } = *round;
    let share = |at| count * at / threads..count * (at + 1) / threads;
    let ns = match round.kind {
        Kind::ValuesDistinct => flow::<C>(threads, share, 1),
        Kind::ValuesHot => flow::<C>(threads, |_| 0..HOT, passes(count, HOT, threads)),
        _ => return None,
    };
    Some(vec![ns])
}

/// Nanoseconds for each event, with as many producers as consumers. A producer puts an event to each
/// of its keys, over and over.
fn flow<C: Inboxes>(threads: usize, keys: impl Fn(usize) -> Range<usize>, passes: usize) -> f64 {
    let queue = &C::new();
    // Distinct keys have one event each, which needs no order.
    let ordered = if passes > 1 { HOT } else { 0 };
    let next: Vec<Next> = (0..ordered).map(|_| Next::default()).collect();

    let producer = |producer| {
        let keys = keys(producer);
        move || {
            for pass in 0..passes as u64 {
                for n in keys.clone() {
                    let key = u64::nth(n);
                    queue.put(key, [key, n as u64, producer as u64, pass, 0, 0, 0, 0]);
                }
            }
        }
    };
    let consumer = || {
        let mut delivered = Tally::default();
        queue.deliver(|key, events| {
            for &[of, n, producer, pass, ..] in events {
                assert_eq!(of, key, "an event of another key");
                delivered.count(&of);
                if let Some(next) = next.get(n as usize) {
                    let next = &next[producer as usize];
                    // Ordering: Relaxed, here and below; only the worker that has the key accesses
                    // it, and the queue orders one worker after the other.
                    assert_eq!(pass, next.load(Ordering::Relaxed), "an event out of order");
                    next.store(pass + 1, Ordering::Relaxed);
                }
            }
        });
        delivered
    };
    let producers = (0..threads).map(producer).collect();
    let race = race(producers, || queue.shut_down(), vec![consumer; threads]);

    assert!(queue.is_empty());
    let mut expected = Tally::default();
    let keys = (0..threads).flat_map(&keys);
    keys.for_each(|n| expected.count(&u64::nth(n)));
    let expected = expected.times(passes as u64);
    assert_eq!(race.delivered, expected);
    race.ns / expected.count as f64
}
