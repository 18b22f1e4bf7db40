//! The promises of levels beside other threads, but for those that the lives of `checks/soak` check.

use std::thread;
use std::time::Duration;

use crate::common::{scaled, there};
use keyqueue::{Builder, WorkQueue};

#[test] // P2: with any number of getters, counted over all of them
fn no_level_starves_with_many_getters() {
    const LIMIT: u64 = 4;
    let urgent = scaled(40_000) as u64;
    let queue = WorkQueue::<u64>::builder()
        .levels(2)
        .starvation_limit(LIMIT as usize)
        .build()
        .unwrap();
    let others = urgent / (LIMIT - 1);
    (0..urgent).for_each(|key| _ = queue.entry(key).level(0).add());
    (0..others).for_each(|key| _ = queue.entry(urgent + key).level(1).add());
    let deliveries: usize = thread::scope(|scope| {
        let getters: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| there(&queue).filter(|item| item.level() == 1).count()))
            .collect();
        getters
            .into_iter()
            .map(|getter| getter.join().unwrap())
            .sum()
    });
    assert_eq!(deliveries as u64, others);
    // Both had keys all the time, so they ended together: had the others starved, they would be left.
    assert!(queue.is_empty());
}

/// Threads that take no more keys than they have added.
fn each_finds_one(set: impl FnOnce(Builder<u64>) -> Builder<u64>) {
    const THREADS: u64 = 4;
    let rounds = if cfg!(miri) { 100 } else { 50_000 };
    let queue = set(WorkQueue::builder()).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let queue = &queue;
            scope.spawn(move || {
                for round in 0..rounds {
                    queue.add(round * THREADS + thread);
                    queue.try_get().expect("a key is queued").done();
                }
            });
        }
    });
}

#[test] // C13
fn a_thread_that_takes_no_more_than_it_has_added_always_finds_a_key() {
    each_finds_one(|builder| builder);
    each_finds_one(|builder| builder.ring(2));
    each_finds_one(|builder| builder.levels(3));
    each_finds_one(|builder| builder.group_by(|key| key % 100));
    each_finds_one(|builder| builder.group_by(|key| *key));
    each_finds_one(|builder| builder.min_interval(Duration::from_nanos(1)));
}
