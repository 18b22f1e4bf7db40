//! Producers add distinct keys, consumers take them: every key is delivered exactly once.
//!
//! The last producer to end shuts the queue down, which still delivers what is queued; a consumer
//! ends when `get` returns `None`. So the time runs until the last delivery is done, without a
//! counter that the consumers would share.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::race::{self, Racer};
use crate::spec::Crowd;
use crate::work::Work;

/// Nanoseconds per key.
pub(super) fn run<Q: Key + ?Sized, C: Queue<Q>>(keys: usize, crowd: Crowd, work: Work) -> f64 {
    let Crowd {
        producers,
        consumers,
    } = crowd;
    let queue = C::new();
    let producing = AtomicUsize::new(producers);
    let share = |producer: usize| keys * producer / producers..keys * (producer + 1) / producers;

    let mut racers: Vec<Racer<'_, Tally>> = Vec::new();
    for producer in 0..producers {
        let keys: Vec<C::Key> = share(producer).map(|n| C::key(Q::nth(n))).collect();
        let (queue, producing) = (&queue, &producing);
        racers.push(Box::new(move || {
            for key in keys {
                queue.add(key);
            }
            // Ordering: AcqRel; the last one's shut-down comes after the adds of all.
            if producing.fetch_sub(1, Ordering::AcqRel) == 1 {
                queue.shut_down();
            }
            Tally::default()
        }));
    }
    for _ in 0..consumers {
        racers.push(Box::new(|| consume::<Q, C>(&queue, work)));
    }

    let laps = race::run(racers);
    let tallies = laps.iter().map(|lap| lap.result);
    let delivered = tallies.fold(Tally::default(), Tally::merge);
    assert_eq!(delivered, Tally::of_first::<Q>(keys));
    assert_eq!(queue.len(), 0);
    race::ns(&laps) / keys as f64
}

fn consume<Q: Key + ?Sized, C: Queue<Q>>(queue: &C, work: Work) -> Tally {
    let mut delivered = Tally::default();
    while let Some(item) = queue.get() {
        delivered.count(C::key_of(&item));
        work.run();
        queue.done(item);
    }
    delivered
}
