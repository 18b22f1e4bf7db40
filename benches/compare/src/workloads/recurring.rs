//! Keys that recur: one at a time (cycle), while they are queued (duplicate), and as a large set that
//! returns (recur).

use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crossbeam_utils::{Backoff, CachePadded};

use super::{RECURRING, RETURNING, passes};
use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::race::race;

/// Nanoseconds for add by reference, get and done of one key after the other, on one thread.
pub(super) fn cycle<Q: Key + ?Sized, C: Queue<Q>>(count: usize) -> Vec<f64> {
    let (queue, keys) = (C::new(), Q::first(RECURRING));
    cycles(count, &queue, |n| queue.add_ref(keys[n].borrow()))
}

/// The same through handles.
pub(super) fn cycle_by_handle<C: Queue<u64>>(count: usize) -> Vec<f64> {
    let queue = C::new();
    cycles(count, &queue, queue.by_handle(u64::first(RECURRING)))
}

fn cycles<Q, C>(count: usize, queue: &C, add: impl Fn(usize)) -> Vec<f64>
where
    Q: Key + ?Sized,
    C: Queue<Q>,
{
    let passes = passes(count, RECURRING, 1);
    let mut delivered = Tally::default();
    let start = Instant::now();
    for _ in 0..passes {
        for n in 0..RECURRING {
            add(n);
            let item = queue.get().expect("a key was added");
            delivered.count(C::key(&item));
            queue.done(item);
        }
    }
    let elapsed = start.elapsed();
    let expected = Tally::of_first::<Q>(RECURRING).times(passes as u64);
    assert_eq!(delivered, expected);
    vec![elapsed.as_nanos() as f64 / delivered.count as f64]
}

/// Nanoseconds for the add of a key that is queued already: nothing should happen.
pub(super) fn duplicate<C: Queue<u64>>(count: usize, threads: usize) -> Vec<f64> {
    let (queue, keys) = (C::new(), u64::first(RECURRING));
    duplicates(count, threads, &queue, |n| queue.add_ref(&keys[n]))
}

/// The same through handles.
pub(super) fn duplicate_by_handle<C: Queue<u64>>(count: usize, threads: usize) -> Vec<f64> {
    let queue = C::new();
    let add = queue.by_handle(u64::first(RECURRING));
    duplicates(count, threads, &queue, add)
}

fn duplicates<C: Queue<u64>>(
    count: usize,
    threads: usize,
    queue: &C,
    add: impl Fn(usize) + Sync,
) -> Vec<f64> {
    (0..RECURRING).for_each(&add);
    let each = repeated(count, threads, add);
    assert_eq!(queue.len(), RECURRING);
    queue.shut_down();
    let delivered = queue.deliver(|_| ());
    assert_eq!(delivered, Tally::of_first::<u64>(RECURRING));
    vec![each]
}

/// Nanoseconds for a call with the number of a recurring key, on all threads together.
pub(super) fn repeated(count: usize, threads: usize, call: impl Fn(usize) + Sync) -> f64 {
    let passes = passes(count, RECURRING, threads);
    let caller = || (0..passes).for_each(|_| (0..RECURRING).for_each(&call));
    let race = race(vec![caller; threads], || (), Vec::<fn() -> Tally>::new());
    race.ns / (passes * threads * RECURRING) as f64
}

/// Nanoseconds for an add and its delivery, where one producer adds the same keys round and round,
/// and one consumer keeps pace.
///
/// The set is far larger than what a queue that forgets idle keys keeps of them, and the queue runs
/// empty after every `BURST` adds: the producer then waits until the consumer has them all. A queue
/// that drops idle keys whenever it is empty has to intern the whole set again in every pass; one
/// that keeps them does so only in the first.
///
/// No key is queued or processing when it is added, so that every add makes exactly one delivery.
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

    let expected = Tally::of_first::<u64>(RETURNING).times(passes as u64);
    assert_eq!(race.delivered, expected);
    vec![race.ns / expected.count as f64]
}
