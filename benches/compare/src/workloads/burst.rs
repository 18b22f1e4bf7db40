//! Bursts of new keys: all are added, then all are got and finished, by the same threads.
//!
//! On a fresh queue, and as the third burst of one queue, each of other keys; one by one, and many at a time.

use std::ops::Range;
use std::sync::Barrier;
use std::time::Instant;

use super::{BATCH, CHUNK};
use crate::keys::{Key, Tally};
use crate::queue::Queue;

/// The keys of all bursts that are measured together, so that a small one is measured often.
const KEYS: usize = 200_000;

/// Nanoseconds for a key to be added, got and finished.
pub(super) fn run<C: Queue<u64>>(count: usize, threads: usize) -> Vec<f64> {
    let times = (KEYS / count.max(1)).max(1);
    let mut figures = [[0.0; 2]; 2];
    for _ in 0..times {
        for (many, figures) in [false, true].into_iter().zip(&mut figures) {
            let queue = C::new();
            for third in 0..3 {
                let keys = third * count..(third + 1) * count;
                let ns = burst(&queue, keys, threads, many);
                if third != 1 {
                    figures[third / 2] += ns / (count * times) as f64;
                }
            }
        }
    }
    figures.concat()
}

/// Nanoseconds for a burst, from the first add to the last key that is finished.
fn burst<C: Queue<u64>>(queue: &C, keys: Range<usize>, threads: usize, many: bool) -> f64 {
    let barrier = &Barrier::new(threads);
    let thread = |at: usize| {
        let len = keys.len();
        let share = keys.start + len * at / threads..keys.start + len * (at + 1) / threads;
        let keys: Vec<C::Key> = share.map(|n| u64::nth(n).into()).collect();
        move || {
            let mut left = keys.len() as u64;
            let mut delivered = Tally::default();
            barrier.wait();
            let begun = Instant::now();
            let mut keys = keys.into_iter();
            if many {
                while keys.len() > 0 {
                    queue.add_all(keys.by_ref().take(CHUNK));
                }
            } else {
                keys.for_each(|key| queue.add(key));
            }
            // The next thread's keys may be among those that this one gets: as many as it has added are there.
            while left > 0 {
                let before = delivered.count;
                match many {
                    true => queue.deliver_some(BATCH.min(left as usize), &mut delivered),
                    false => queue.deliver_one(&mut delivered),
                }
                left -= delivered.count - before;
            }
            (begun, Instant::now(), delivered)
        }
    };
    let mut runs: Vec<_> = (0..threads).map(thread).collect();
    let last = runs.pop().expect("a thread");
    let mut ended = Vec::new();
    std::thread::scope(|scope| {
        let others: Vec<_> = runs.into_iter().map(|run| scope.spawn(run)).collect();
        ended.push(last());
        let others = others.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.extend(others.map(|ended| ended.expect("a thread panicked")));
    });
    let delivered = ended.iter().map(|ended| ended.2);
    let delivered = delivered.fold(Tally::default(), Tally::merge);
    let mut expected = Tally::default();
    keys.for_each(|n| expected.count(&u64::nth(n)));
    assert_eq!(delivered, expected);
    let start = ended.iter().map(|ended| ended.0).min().expect("a thread");
    let end = ended.iter().map(|ended| ended.1).max().expect("a thread");
    (end - start).as_nanos() as f64
}
