//! Few keys, added over and over while they are worked on: what an add costs a producer, and that
//! none is lost.
//!
//! Deliveries cannot be counted beforehand, so the check is the promise itself. A producer
//! announces that it is about to add a key for the last time; a worker notes the announcements
//! that it sees as a delivery starts. In the end every key must have been delivered with all
//! producers' announcements in sight.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Crowd, Scale};
use crate::contenders::Queue;
use crate::keys::Key;
use crate::race::{self, Racer};

#[derive(Default)]
struct HotKey {
    /// Producers that are about to add it for the last time, or have.
    announced: AtomicUsize,
    /// The most announcements that a delivery of it has seen.
    seen: AtomicUsize,
}

/// Nanoseconds per add until the last add, and per delivery until the last delivery.
pub(super) fn run<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale, crowd: Crowd) -> Vec<f64> {
    let Crowd {
        producers,
        consumers,
    } = crowd;
    let passes = (scale.hot_adds / producers / scale.hot_keys).max(1);
    let queue = &C::new();
    let producing = &AtomicUsize::new(producers);
    let keys: &Vec<Q::Owned> = &(0..scale.hot_keys).map(Q::nth).collect();
    let hot_key = |key: &Q::Owned| (key.borrow().fingerprint(), HotKey::default());
    let hot_keys: &HashMap<u64, HotKey, foldhash::fast::RandomState> =
        &keys.iter().map(hot_key).collect();

    let produce = move || {
        for key in std::iter::repeat_n(keys, passes - 1).flatten() {
            queue.add_ref(key.borrow());
        }
        for key in keys {
            // Ordering: Release; the Acquire load at a delivery that the add below causes must
            // see it. Redundant beside a queue that keeps its promises; not to be relied on here.
            let hot_key = &hot_keys[&key.borrow().fingerprint()];
            hot_key.announced.fetch_add(1, Ordering::Release);
            queue.add_ref(key.borrow());
        }
        // Ordering: AcqRel; the last one's shut-down comes after the adds of all.
        if producing.fetch_sub(1, Ordering::AcqRel) == 1 {
            queue.shut_down();
        }
        0_usize
    };
    let consume = move || {
        let mut deliveries = 0_usize;
        while let Some(item) = queue.get() {
            let hot_key = &hot_keys[&C::key_of(&item).fingerprint()];
            // Ordering: Acquire; see the Release above.
            let announced = hot_key.announced.load(Ordering::Acquire);
            if announced > 0 {
                // Ordering: Relaxed; read after the threads were joined.
                hot_key.seen.fetch_max(announced, Ordering::Relaxed);
            }
            scale.work.run();
            deliveries += 1;
            queue.done(item);
        }
        deliveries
    };
    let mut racers: Vec<Racer<'_, usize>> = Vec::new();
    racers.extend((0..producers).map(|_| Box::new(produce) as Racer<'_, usize>));
    racers.extend((0..consumers).map(|_| Box::new(consume) as Racer<'_, usize>));
    let laps = race::run(racers);

    assert_eq!(queue.len(), 0);
    for (key, hot_key) in hot_keys {
        // Ordering: Relaxed; the threads were joined.
        let seen = hot_key.seen.load(Ordering::Relaxed);
        assert_eq!(
            seen, producers,
            "producers whose last add of {key:#x} was delivered"
        );
    }
    let adds = passes * producers * scale.hot_keys;
    let deliveries: usize = laps.iter().map(|lap| lap.result).sum();
    vec![
        race::ns(&laps[..producers]) / adds as f64,
        race::ns(&laps) / deliveries as f64,
    ]
}
