//! Keys that recur: one at a time (cycle), while they are queued (duplicate), and as a large set that
//! returns (recur).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_utils::{Backoff, CachePadded};

use super::{RECURRING, RETURNING, passes};
use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::race::race;
use crate::workload::{Kind, Round};

/// Nanoseconds for add by reference or handle, get and done of one key after the other, on one
/// thread.
pub(super) fn cycle<Q: Key + ?Sized, C: Queue<Q>>(round: &Round<'_>) -> Vec<f64> {
    let (queue, keys) = (C::new(), Q::first(RECURRING));
    match round.kind {
        Kind::CycleHandle => cycles(round, &queue, queue.by_handle(keys)),
        _ => cycles(round, &queue, queue.by_key(keys)),
    }
}

fn cycles<Q, C>(round: &Round<'_>, queue: &C, add: impl Fn(usize)) -> Vec<f64>
where
    Q: Key + ?Sized,
    C: Queue<Q>,
{
    let passes = passes(round.count, RECURRING, 1);
    let mut delivered = Tally::default();
    let start = Instant::now();
    for _ in 0..passes {
        for n in 0..RECURRING {
            add(n);
            queue.deliver_one(&mut delivered);
        }
    }
    let elapsed = start.elapsed();
    let expected = Tally::of_first::<Q>(RECURRING).times(passes as u64);
    assert_eq!(delivered, expected);
    vec![elapsed.as_nanos() as f64 / delivered.count as f64]
}

/// Nanoseconds for the add, by reference or handle, of a key that is queued: nothing should happen.
pub(super) fn duplicate<C: Queue<u64>>(round: &Round<'_>) -> Vec<f64> {
    let (queue, keys) = (C::new(), u64::first(RECURRING));
    match round.kind {
        Kind::DuplicateHandle => duplicates(round, &queue, queue.by_handle(keys)),
        _ => duplicates(round, &queue, queue.by_key(keys)),
    }
}

fn duplicates<C>(round: &Round<'_>, queue: &C, add: impl Fn(usize) + Sync) -> Vec<f64>
where
    C: Queue<u64>,
{
    (0..RECURRING).for_each(&add);
    let each = repeated(round, add);
    assert_eq!(queue.len(), RECURRING);
    queue.shut_down();
    let delivered = queue.deliver(|_| ());
    assert_eq!(delivered, Tally::of_first::<u64>(RECURRING));
    vec![each]
}

/// Nanoseconds for a call with the number of a recurring key, on all threads together.
pub(super) fn repeated(round: &Round<'_>, call: impl Fn(usize) + Sync) -> f64 {
    let passes = passes(round.count, RECURRING, round.threads);
    let caller = || (0..passes).for_each(|_| (0..RECURRING).for_each(&call));
    let callers = vec![caller; round.threads];
    let race = race(callers, || (), Vec::<fn() -> Tally>::new());
    race.ns / (passes * round.threads * RECURRING) as f64
}

/// Nanoseconds for an add and its delivery, where one producer adds the same keys round and round,
/// and one consumer keeps pace.
///
/// The set is far larger than what a queue that forgets idle keys keeps of them, and the queue runs
/// empty after every `BURST` adds: the producer then waits until the consumer has them all. A queue
/// that drops idle keys whenever it is empty interns the whole set again in every pass.
pub(super) fn recur<C: Queue<u64>>(count: usize) -> Vec<f64> {
    const BURST: usize = 1000;
    let (queue, keys) = (C::new(), u64::first(RETURNING));
    let passes = passes(count, RETURNING, 1);
    let delivered = CachePadded::new(AtomicUsize::new(0));
    let wait_for = |count| {
        let backoff = Backoff::new();
        // Ordering: Relaxed; a count. The queue orders the deliveries and the next adds.
        while delivered.load(Ordering::Relaxed) < count {
            backoff.snooze();
        }
    };
    let producer = || {
        for (n, key) in (0..passes).flat_map(|_| &keys).enumerate() {
            if n % BURST == 0 {
                wait_for(n);
            }
            queue.add_ref(key);
        }
    };
    let consumer = || {
        let mut count = 0;
        queue.deliver(|_| {
            count += 1;
            // Ordering: Relaxed; see `wait_for`.
            delivered.store(count, Ordering::Relaxed);
        })
    };
    let race = queue.race(vec![producer], vec![consumer]);

    // No key is queued or processing when it is added, so that every add makes exactly one delivery.
    let expected = Tally::of_first::<u64>(RETURNING).times(passes as u64);
    assert_eq!(race.delivered, expected);
    vec![race.ns / expected.count as f64]
}
