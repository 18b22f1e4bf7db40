//! Distinct keys, each once: from producers to consumers, the memory that they take, and a queue for
//! one of them.
//!
//! Producers wait while [`BACKLOG`] keys are queued, as a pipeline does. Without that, some rounds kept step and others queued
//! hundreds of thousands of keys, whose memory is touched for the first time: four times as long, with every queue. The rows
//! `burst` have the time of such a backlog.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use rig::heap::Meter;

use super::{BACKLOG, BATCH, CHUNK, cores};
use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::work::Work;
use crate::workload::Round;

/// Nanoseconds for each key, with as many producers as consumers.
pub(super) fn flow<Q: Key + ?Sized, C: Queue<Q>>(count: usize, threads: usize, work: Work) -> f64 {
    let queue = &C::new();
    let producer = |at| {
        let share = count * at / threads..count * (at + 1) / threads;
        let keys: Vec<C::Key> = share.map(|n| Q::nth(n).into()).collect();
        move || {
            for (n, key) in keys.into_iter().enumerate() {
                if n % CHUNK == 0 {
                    wait_for_room(queue);
                }
                queue.add(key);
            }
        }
    };
    let producers = (0..threads).map(producer).collect();
    let consumers = vec![|| queue.deliver(|_| work.run()); threads];
    let race = queue.race(producers, consumers);
    assert_eq!(race.delivered, Tally::of_first::<Q>(count));
    race.ns / count as f64
}

/// The same, many at a time.
pub(super) fn many<C: Queue<u64>>(count: usize, threads: usize) -> f64 {
    let queue = &C::new();
    let producer = |at| {
        let share = count * at / threads..count * (at + 1) / threads;
        let keys: Vec<C::Key> = share.map(|n| u64::nth(n).into()).collect();
        move || {
            let mut keys = keys.into_iter();
            while keys.len() > 0 {
                wait_for_room(queue);
                queue.add_all(keys.by_ref().take(CHUNK));
            }
        }
    };
    let producers = (0..threads).map(producer).collect();
    let consumers = vec![|| queue.deliver_batches(BATCH); threads];
    let race = queue.race(producers, consumers);
    assert_eq!(race.delivered, Tally::of_first::<u64>(count));
    race.ns / count as f64
}

/// Returns when fewer than [`BACKLOG`] keys are queued.
fn wait_for_room<Q: Key + ?Sized, C: Queue<Q>>(queue: &C) {
    while queue.len() >= BACKLOG {
        thread::yield_now();
    }
}

/// With work for each key, and what exceeds the time of the work alone.
pub(super) fn work<C: Queue<u64>>(round: &Round<'_>) -> Vec<f64> {
    let ideal = round.work_ns / round.threads.min(cores()) as f64;
    let whole = flow::<u64, C>(round.count, round.threads, round.work);
    vec![whole, whole - ideal]
}

/// Bytes for each queued key, and what a queue holds after they were done: at once, and after `shrink`.
pub(super) fn memory<C: Queue<u64>>(count: usize) -> Vec<f64> {
    let meter = Meter::start();
    let queue = C::new();
    (0..count).for_each(|n| queue.add(u64::nth(n).into()));
    assert_eq!(queue.len(), count);
    let queued = meter.bytes() / count as f64;

    let mut delivered = Tally::default();
    (0..count).for_each(|_| queue.deliver_one(&mut delivered));
    assert_eq!(delivered, Tally::of_first::<u64>(count));
    let left = meter.bytes();
    queue.shrink();
    vec![queued, left, meter.bytes()]
}

/// Nanoseconds to construct and drop a queue; the same with one key through it meanwhile; and the
/// threads that one has.
pub(super) fn start<C: Queue<u64>>(count: usize) -> Vec<f64> {
    let unused = each(count, || drop(black_box(C::new())));
    let mut delivered = Tally::default();
    let used = each(count, || {
        let queue = C::new();
        queue.add_ref(&u64::nth(0));
        queue.deliver_one(&mut delivered);
    });
    assert_eq!(delivered, Tally::of_first::<u64>(1).times(count as u64));

    let before = threads();
    let queue = C::new();
    queue.add_ref(&u64::nth(0));
    vec![unused, used, threads() - before]
}

fn each(count: usize, mut run: impl FnMut()) -> f64 {
    let begun = Instant::now();
    (0..count).for_each(|_| run());
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// The threads of this process, where the system says so; otherwise not a number.
fn threads() -> f64 {
    std::fs::read_dir("/proc/self/task").map_or(f64::NAN, |threads| threads.count() as f64)
}
