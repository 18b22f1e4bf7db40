//! Keys that carry values: an inbox for each key, to which producers put events, and whose events
//! a worker gets all at once.
//!
//! Every event must reach one worker, and those of one producer to a key in their order. An event
//! holds its key, its producer and its number, so that a worker can check this while it reads it.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use super::{BATCH, CHUNK, HOT};
use crate::keys::{Key, Tally};
use crate::queue::{Event, Inboxes};
use crate::race::race;
use crate::workload::{Kind, Round};

const MOST_PRODUCERS: usize = 8;

/// The keys of the workloads that are neither of distinct keys nor of hot ones.
const MANY: usize = 50_000;

/// The keys whose events must come in order; of the others it would be a cache miss for each event.
const ORDERED: usize = HOT;

/// The number of the last event of each producer to a key.
type Last = CachePadded<[AtomicU64; MOST_PRODUCERS]>;

/// Runs a round on a new queue; `None` if the workload has no values.
pub(crate) fn run<C: Inboxes>(round: &Round<'_>) -> Option<Vec<f64>> {
    let share = round.count / round.threads;
    // An odd factor that is not near a round number scatters the keys.
    let scattered = |event| event * 0x9E37_79B1 % MANY;
    let skewed = |event| {
        if event % 2 == 0 {
            0
        } else {
            scattered(event / 2)
        }
    };
    let two_us = || (0..4).for_each(|_| round.work.run());
    let no_work = || ();
    let figures = match round.kind {
        Kind::ValuesDistinct => {
            let key = |producer, event| producer * share + event;
            flow::<C>(round, no_work, false, key)
        }
        Kind::ValuesHot => flow::<C>(round, no_work, false, |_, event| event % HOT),
        Kind::ValuesEven => flow::<C>(round, no_work, false, |_, event| scattered(event)),
        Kind::ValuesSkewed => flow::<C>(round, no_work, false, |_, event| skewed(event)),
        Kind::ValuesEvenMany => flow::<C>(round, no_work, true, |_, event| scattered(event)),
        Kind::ValuesSkewedMany => flow::<C>(round, no_work, true, |_, event| skewed(event)),
        Kind::ValuesEvenWork => flow::<C>(round, two_us, false, |_, event| scattered(event)),
        Kind::ValuesSkewedWork => flow::<C>(round, two_us, false, |_, event| skewed(event)),
        _ => return None,
    };
    Some(figures.into())
}

/// Nanoseconds for each event, with as many producers as consumers, and the events of each delivery. `key` is the number of the key of
/// a producer's event, and `work` the work on each. With `many`, events are put and keys delivered many at a time.
fn flow<C: Inboxes>(
    &Round { threads, count, .. }: &Round<'_>,
    work: impl Fn() + Copy + Send + Sync,
    many: bool,
    key: impl Fn(usize, usize) -> usize + Copy + Send + Sync,
) -> [f64; 2] {
    let queue = &C::new(threads);
    let deliveries = &AtomicU64::new(0);
    let last: Vec<Last> = (0..ORDERED).map(|_| Last::default()).collect();
    let events = 1..count / threads + 1;

    let producer = |producer| {
        let events = events.clone();
        move || {
            let put = |event| {
                let n = key(producer, event - 1);
                let of = u64::nth(n);
                let numbers = [n, producer, event].map(|number| number as u64);
                (of, [of, numbers[0], numbers[1], numbers[2], 0, 0, 0, 0])
            };
            let mut events = events.map(put);
            if many {
                while events.len() > 0 {
                    queue.put_all(events.by_ref().take(CHUNK));
                }
            } else {
                events.for_each(|(key, event)| queue.put(key, event));
            }
        }
    };
    let consumer = || {
        let mut delivered = Tally::default();
        let mut times = 0;
        let each = |key, events: &[Event]| {
            times += 1;
            for &[of, n, producer, event, ..] in events {
                assert_eq!(of, key, "an event of another key");
                delivered.count(&of);
                if let Some(last) = last.get(n as usize) {
                    let last = &last[producer as usize];
                    // Ordering: Relaxed, here and below; only the worker that has the key accesses
                    // it, and the queue orders one worker after the other.
                    assert!(last.load(Ordering::Relaxed) < event, "out of order");
                    last.store(event, Ordering::Relaxed);
                }
                work();
            }
        };
        match many {
            true => queue.deliver_batches(BATCH, each),
            false => queue.deliver(each),
        }
        deliveries.fetch_add(times, Ordering::Relaxed);
        delivered
    };
    let producers = (0..threads).map(producer).collect();
    let race = race(producers, || queue.shut_down(), vec![consumer; threads]);

    assert!(queue.is_empty());
    let mut expected = Tally::default();
    for producer in 0..threads {
        events
            .clone()
            .for_each(|event| expected.count(&u64::nth(key(producer, event - 1))));
    }
    assert_eq!(race.delivered, expected);
    let events = expected.count as f64;
    // Ordering: Relaxed; the consumers have ended.
    [
        race.ns / events,
        events / deliveries.load(Ordering::Relaxed) as f64,
    ]
}
