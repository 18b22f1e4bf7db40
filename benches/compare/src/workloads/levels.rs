//! Levels of urgency: what they cost a key that recurs, and distinct keys of every level; and how fast urgent
//! keys pass a backlog.
//!
//! The queues have three levels, 0 being the most urgent, or pretend to.

use std::time::Instant;

use super::{RECURRING, passes};
use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::workload::{Kind, Round};

const LEVELS: usize = 3;

/// Runs a round on a new queue. `add_at` adds a key at a level. `None` if this is not about levels.
pub(crate) fn run<C: Queue<u64>>(
    round: &Round<'_>,
    new: impl Fn() -> C,
    add_at: impl Fn(&C, usize, u64) + Sync,
) -> Option<Vec<f64>> {
    let figure = match round.kind {
        Kind::LevelsCycle => cycle(round.count, &new(), add_at),
        Kind::Levels => flow(round, &new(), &add_at),
        Kind::LevelsBacklog => backlog(round.count, &new(), add_at),
        _ => return None,
    };
    Some(vec![figure])
}

/// Nanoseconds for add, get and done of one key after the other, all at one level, on one thread.
pub(super) fn cycle<C: Queue<u64>>(
    count: usize,
    queue: &C,
    add_at: impl Fn(&C, usize, u64),
) -> f64 {
    let (keys, passes) = (u64::first(RECURRING), passes(count, RECURRING, 1));
    let mut delivered = Tally::default();
    let start = Instant::now();
    for key in (0..passes).flat_map(|_| &keys) {
        add_at(queue, LEVELS / 2, *key);
        queue.deliver_one(&mut delivered);
    }
    let elapsed = start.elapsed();
    let expected = Tally::of_first::<u64>(RECURRING).times(passes as u64);
    assert_eq!(delivered, expected);
    elapsed.as_nanos() as f64 / delivered.count as f64
}

/// Nanoseconds for each of the distinct keys, which go to the levels in turn, with as many producers as
/// consumers.
pub(super) fn flow<C: Queue<u64>>(
    round: &Round<'_>,
    queue: &C,
    add_at: &(impl Fn(&C, usize, u64) + Sync),
) -> f64 {
    let Round { count, threads, .. } = *round;
    let producer = |at| {
        let share = count * at / threads..count * (at + 1) / threads;
        move || share.for_each(|n| add_at(queue, n % LEVELS, u64::nth(n)))
    };
    let producers = (0..threads).map(producer).collect();
    let race = queue.race(producers, vec![|| queue.deliver(|_| ()); threads]);
    assert_eq!(race.delivered, Tally::of_first::<u64>(count));
    race.ns / count as f64
}

/// Nanoseconds for add, get and done, a key being added at the most urgent level each time, while a backlog
/// waits at the least urgent one. There are a tenth as many urgent keys as wait.
fn backlog<C: Queue<u64>>(count: usize, queue: &C, add_at: impl Fn(&C, usize, u64)) -> f64 {
    (0..count).for_each(|n| add_at(queue, LEVELS - 1, u64::nth(n)));
    let all = count + count / 10;
    let mut delivered = Tally::default();
    let start = Instant::now();
    for n in count..all {
        add_at(queue, 0, u64::nth(n));
        queue.deliver_one(&mut delivered);
    }
    let elapsed = start.elapsed();
    assert_eq!(queue.len(), count);
    (0..count).for_each(|_| queue.deliver_one(&mut delivered));
    assert_eq!(delivered, Tally::of_first::<u64>(all));
    elapsed.as_nanos() as f64 / (all - count) as f64
}
