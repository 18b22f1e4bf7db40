//! Keys that are added over and over while they are worked on: a few hot ones, or those of a log.
//!
//! Deliveries cannot be counted beforehand. A producer announces that it is about to add a key for
//! the last time, and a worker notes the announcements that it sees as a delivery starts: in the end
//! every key must have been delivered with all producers' announcements in sight.
//!
//! The workers hold every key as the race starts, so that one that gets no core before the last add
//! still finds all of its keys dirty.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;

use super::passes;
use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::work::Work;

#[derive(Default)]
struct HotKey {
    /// Producers that are about to add it for the last time, or have.
    announced: AtomicUsize,
    /// The most announcements that a delivery of it has seen.
    seen: AtomicUsize,
}

/// Nanoseconds for each add until the last add, and until the last delivery; a producer adds the keys of
/// all events, over and over.
pub(super) fn run<Q, C>(events: &[Q::Owned], count: usize, threads: usize, work: Work) -> Vec<f64>
where
    Q: Key + ?Sized,
    C: Queue<Q>,
{
    let mut keys: HashMap<&Q, HotKey, RandomState> = HashMap::default();
    let backwards = events.iter().rev();
    let mut is_last: Vec<bool> = backwards
        .map(|key| keys.insert(key.borrow(), HotKey::default()).is_none())
        .collect();
    is_last.reverse();
    let passes = passes(count, events.len(), threads);

    let queue = C::new();
    keys.keys().for_each(|key| queue.add_ref(key));
    let mut held: Vec<C::Item<'_>> = keys.keys().map_while(|_| queue.get()).collect();

    let producer = || {
        for key in iter::repeat_n(events, passes - 1).flatten() {
            queue.add_ref(key.borrow());
        }
        for (key, is_last) in events.iter().map(Borrow::borrow).zip(&is_last) {
            if *is_last {
                // Ordering: Release; pairs with the Acquire load at a delivery. Whether a delivery
                // sees it is what the check is about: that takes the queue's own ordering.
                keys[key].announced.fetch_add(1, Ordering::Release);
            }
            queue.add_ref(key);
        }
    };
    let share = held.len().div_ceil(threads);
    let consumer = |_| {
        let held = held.split_off(held.len().saturating_sub(share));
        let (queue, keys) = (&queue, &keys);
        move || {
            let mut delivered = Tally::default();
            for item in held.into_iter().chain(iter::from_fn(|| queue.get())) {
                let key = &keys[C::key(&item)];
                // Ordering: Acquire; pairs with the Release add of the producers.
                let announced = key.announced.load(Ordering::Acquire);
                if announced > 0 {
                    // Ordering: Relaxed, here and below; read after the threads were joined.
                    key.seen.fetch_max(announced, Ordering::Relaxed);
                }
                work.run();
                delivered.count(C::key(&item));
                queue.done(item);
            }
            delivered
        }
    };
    let consumers = (0..threads).map(consumer).collect();
    let race = queue.race(vec![producer; threads], consumers);

    for key in keys.values() {
        let seen = key.seen.load(Ordering::Relaxed);
        assert_eq!(seen, threads, "last adds of a key that were delivered");
    }
    let adds = passes * threads * events.len();
    let most = (adds + keys.len()) as u64;
    assert!(race.delivered.count <= most, "more deliveries than adds");
    vec![race.adding_ns / adds as f64, race.ns / adds as f64]
}
