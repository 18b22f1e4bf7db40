//! The promises of levels beside other threads, but for those that the lives of `checks/soak` check.

use std::thread;

use crate::common::scaled;
use keyqueue::WorkQueue;

#[test] // P2: with any number of getters, counted over all of them
fn no_level_starves_with_many_getters() {
    const LIMIT: usize = 4;
    let urgent = scaled(40_000);
    let queue = WorkQueue::<usize>::builder()
        .levels(2)
        .starvation_limit(LIMIT)
        .build()
        .unwrap();
    let others = urgent / (LIMIT - 1);
    (0..urgent).for_each(|key| _ = queue.entry(key).level(0).add());
    (0..others).for_each(|key| _ = queue.entry(urgent + key).level(1).add());
    let deliveries: usize = thread::scope(|scope| {
        let getters: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| queue.try_iter().filter(|item| item.level() == 1).count()))
            .collect();
        getters
            .into_iter()
            .map(|getter| getter.join().unwrap())
            .sum()
    });
    assert_eq!(deliveries, others);
    // Both had keys all the time, so they ended together: had the others starved, they would be left.
    assert!(queue.is_empty());
}
