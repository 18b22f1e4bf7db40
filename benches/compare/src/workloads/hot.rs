//! Few keys, added over and over while they are worked on: what an add costs a producer, and that
//! none is lost.
//!
//! Deliveries cannot be counted beforehand, so the check is the promise itself. A producer
//! announces that it is about to add a key for the last time; a worker notes the announcements
//! that it sees as a delivery starts. In the end every key must have been delivered with all
//! producers' announcements in sight.
//!
//! A worker holds every key as the race starts: a worker that gets no core before the
//! last add still finds all of its keys dirty, so that the check is never an idle one.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;

use crate::keys::Key;
use crate::queue::Queue;
use crate::race::{self, Racer};
use crate::spec::{Crowd, Scale};
use crate::work::Work;

/// By fingerprint.
type HotKeys = HashMap<u64, HotKey, RandomState>;

#[derive(Default)]
struct HotKey {
    /// Producers that are about to add it for the last time, or have.
    announced: AtomicUsize,
    /// The most announcements that a delivery of it has seen.
    seen: AtomicUsize,
}

/// Nanoseconds per add until the last add, and until the last delivery.
pub(super) fn run<Q: Key + ?Sized, C: Queue<Q>>(scale: &Scale, crowd: Crowd) -> Vec<f64> {
    let Crowd {
        producers,
        consumers,
    } = crowd;
    let passes = (scale.hot_adds / producers / scale.hot_keys).max(1);
    let producing = AtomicUsize::new(producers);
    let keys: Vec<Q::Owned> = (0..scale.hot_keys).map(Q::nth).collect();
    let fingerprints = keys.iter().map(|key| key.borrow().fingerprint());
    let hot_keys: HotKeys = fingerprints.map(|key| (key, HotKey::default())).collect();

    let queue = C::new();
    keys.iter().for_each(|key| queue.add_ref(key.borrow()));
    let mut held: Vec<C::Item<'_>> = (0..keys.len()).map_while(|_| queue.get()).collect();

    let mut racers: Vec<Racer<'_, usize>> = Vec::new();
    for _ in 0..producers {
        racers.push(Box::new(|| {
            produce(&queue, &keys, passes, &hot_keys);
            // Ordering: AcqRel; the last one's shut-down comes after the adds of all.
            if producing.fetch_sub(1, Ordering::AcqRel) == 1 {
                queue.shut_down();
            }
            0
        }));
    }
    let share = keys.len().div_ceil(consumers);
    for _ in 0..consumers {
        let held = held.split_off(held.len().saturating_sub(share));
        racers.push(Box::new(|| consume(&queue, held, &hot_keys, scale.work)));
    }
    let laps = race::run(racers);

    assert_eq!(queue.len(), 0);
    for (key, hot_key) in &hot_keys {
        // Ordering: Relaxed; the threads were joined.
        let seen = hot_key.seen.load(Ordering::Relaxed);
        assert_eq!(seen, producers, "last adds of {key:#x} that were delivered");
    }
    let adds = passes * producers * keys.len();
    let deliveries: usize = laps.iter().map(|lap| lap.result).sum();
    assert!(deliveries <= adds + keys.len(), "more deliveries than adds");
    vec![
        race::ns(&laps[..producers]) / adds as f64,
        race::ns(&laps) / adds as f64,
    ]
}

/// Adds every key that many times, and announces the last add.
fn produce<Q, C>(queue: &C, keys: &[Q::Owned], passes: usize, hot_keys: &HotKeys)
where
    Q: Key + ?Sized,
    C: Queue<Q>,
{
    for key in std::iter::repeat_n(keys, passes - 1).flatten() {
        queue.add_ref(key.borrow());
    }
    for key in keys {
        let hot_key = &hot_keys[&key.borrow().fingerprint()];
        // Ordering: Release; pairs with the Acquire load at a delivery. Whether a delivery sees it
        // is what the check is about: that takes the queue's own ordering of add and get.
        hot_key.announced.fetch_add(1, Ordering::Release);
        queue.add_ref(key.borrow());
    }
}

/// Works on what it holds, then on what it gets; how many deliveries that were.
fn consume<'q, Q, C>(queue: &'q C, held: Vec<C::Item<'q>>, hot_keys: &HotKeys, work: Work) -> usize
where
    Q: Key + ?Sized,
    C: Queue<Q>,
{
    let mut deliveries = 0;
    for item in held.into_iter().chain(std::iter::from_fn(|| queue.get())) {
        let hot_key = &hot_keys[&C::key_of(&item).fingerprint()];
        // Ordering: Acquire; pairs with the Release in `produce`.
        let announced = hot_key.announced.load(Ordering::Acquire);
        if announced > 0 {
            // Ordering: Relaxed; read after the threads were joined.
            hot_key.seen.fetch_max(announced, Ordering::Relaxed);
        }
        work.run();
        deliveries += 1;
        queue.done(item);
    }
    deliveries
}
