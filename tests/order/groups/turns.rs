//! Turns, weights and levels (G1, G4).

use std::collections::HashMap;

use super::{Key, grouped, groups_of, keys, turns};
use crate::common::timed::{built, secs};
use crate::common::{Task, eventually, take_all, there};
use keyqueue::{Added, WorkQueue};

#[test] // G1
fn groups_take_turns() {
    let queue = turns();
    queue.add_all(
        keys("a", 0..3)
            .chain(keys("b", 0..1))
            .chain(keys("c", 0..2)),
    );
    assert_eq!(groups_of(&queue, 9), ["a", "b", "c", "a", "c", "a"]);
    // A group that comes again is last.
    queue.add_all(keys("a", 0..2).chain(keys("b", 0..2)));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    queue.add_all(keys("c", 0..1));
    assert_eq!(groups_of(&queue, 9), ["b", "a", "c", "b"]);
}

#[test] // G1
fn a_million_keys_of_one_group_delay_another_by_one_delivery() {
    let queue = turns();
    queue.add_all(keys("noisy", 0..if cfg!(miri) { 200 } else { 1_000_000 }));
    for number in 0..100 {
        queue.add(("quiet", number));
        let order = groups_of(&queue, 2);
        assert!(order.contains(&"quiet"), "{order:?}");
    }
}

#[test] // G1
fn over_any_window_two_groups_differ_by_one_turn() {
    for weight in [1, 3] {
        let (queue, _) = grouped(|builder| builder.group_weight(move |_: &&str| weight));
        let names = ["a", "b", "c", "d", "e"];
        for name in names {
            queue.add_all(keys(name, 0..200));
        }
        let order = groups_of(&queue, if cfg!(miri) { 100 } else { 500 });
        let turn = weight as usize;
        for length in (1..100).step_by(if cfg!(miri) { 30 } else { 1 }) {
            for window in order.windows(length) {
                let count = |name| window.iter().filter(|group| **group == name).count();
                let counts = names.map(count);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= turn, "{counts:?} in {length} with {weight}");
            }
        }
    }
}

#[test] // G1
fn a_group_has_its_weight_in_keys_a_turn() {
    let weight = |group: &&str| if *group == "a" { 3 } else { 0 };
    let (queue, _) = grouped(|builder| builder.group_weight(weight));
    queue.add_all(keys("a", 0..6).chain(keys("b", 0..3)));
    assert_eq!(
        groups_of(&queue, 9),
        ["a", "a", "a", "b", "a", "a", "a", "b", "b"]
    );
    // A turn that was cut short is over.
    queue.add_all(keys("a", 0..1).chain(keys("b", 0..2)));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    queue.add_all(keys("a", 0..9));
    assert_eq!(groups_of(&queue, 6), ["b", "a", "a", "a", "b", "a"]);
}

#[test] // G1 C2 C3 C5
fn a_key_keeps_its_promises_in_its_group() {
    let queue = turns();
    assert_eq!(queue.add(("a", 1)), Added::Queued);
    assert_eq!(queue.add(("a", 1)), Added::Merged);
    queue.add_all(keys("b", 0..2));
    let item = queue.try_get().unwrap();
    assert_eq!(queue.add(("a", 1)), Added::Deferred);
    assert_eq!((queue.len(), queue.is_empty()), (2, false));
    drop(item);
    assert_eq!(take_all(&queue), [("b", 0), ("a", 1), ("b", 1)]);
    assert_eq!((queue.len(), queue.is_empty()), (0, true));
}

#[test] // G4 P1 P2 P3
fn a_group_has_levels() {
    let (queue, _) = grouped(|builder| builder.levels(3).starvation_limit(3));
    for number in 0..4 {
        queue.entry(("a", number)).level(2).add();
    }
    queue.entry(("b", 0)).level(1).add();
    queue.entry(("a", 10)).level(0).add();
    assert_eq!(queue.counts().by_level, [1, 1, 4]);
    // A key that becomes more urgent passes the others of its group.
    assert_eq!(queue.entry(("a", 3)).level(1).add(), Added::Merged);
    assert_eq!(queue.entry(("a", 3)).level(2).add(), Added::Merged);
    assert_eq!(queue.counts().by_level, [1, 2, 3]);
    let item = queue.try_get().unwrap();
    assert_eq!((*item, item.level()), (("a", 10), 0));
    drop(item);
    let order = [(); 4].map(|()| {
        let item = queue.try_get().unwrap();
        (*item, item.level())
    });
    assert_eq!(
        order,
        [(("b", 0), 1), (("a", 3), 1), (("a", 0), 2), (("a", 1), 2)]
    );
    assert_eq!(take_all(&queue), [("a", 2)]);
    // No level starves, in its group.
    (0..9).for_each(|number| _ = queue.entry(("a", number)).level(0).add());
    queue.entry(("a", 20)).level(2).add();
    queue.entry(("a", 21)).level(1).add();
    let order: Vec<_> = take_all(&queue).into_iter().map(|key| key.1).collect();
    assert_eq!(order, [0, 1, 21, 2, 3, 20, 4, 5, 6, 7, 8]);
}

#[test] // P2 G4
fn the_less_urgent_levels_of_a_group_take_turns() {
    let (queue, _) = grouped(|builder| builder.levels(3).starvation_limit(2));
    (0..12).for_each(|n| _ = queue.entry(("a", n)).level(n as usize % 3).add());
    let levels: Vec<_> = there(&queue).take(8).map(|item| item.level()).collect();
    assert_eq!(levels, [0, 1, 0, 2, 0, 1, 0, 2]);
}

#[test] // G4 P4
fn a_retry_keeps_its_level_in_its_group() {
    let (queue, _) = grouped(|builder| builder.levels(3));
    queue.entry(("a", 1)).level(0).add();
    let item = queue.try_get().unwrap();
    queue.entry(("a", 2)).level(1).add();
    assert_eq!(item.retry(), Added::Deferred);
    let item = queue.try_get().unwrap();
    assert_eq!((*item, item.level()), (("a", 1), 0));
}

#[test] // G1
fn a_panic_of_the_users_function_loses_no_key() {
    let (queue, _) = built(|builder| {
        builder.group_by(|key: &u64| {
            assert!(key.is_multiple_of(2), "odd");
            key % 4
        })
    });
    let mut queued = 0;
    for key in 0..10 {
        queued += usize::from(queue.add(key) == Added::Queued);
    }
    assert_eq!((queued, queue.len()), (10, 10));
    let mut keys = take_all(&queue);
    keys.sort_unstable();
    assert_eq!(keys, (0..10).collect::<Vec<_>>());
    let groups = queue.groups::<u64>();
    assert!(groups.is_empty(), "{groups:?}");
}

#[test] // G1 V1
fn keys_with_values_take_turns() {
    let append = |older: &mut u32, newer| *older = 10 * *older + newer;
    let queue = WorkQueue::builder()
        .merge(append)
        .group_by(|key: &Key| key.0)
        .build()
        .unwrap();
    queue.put(("a", 1), 1);
    queue.put(("a", 2), 2);
    queue.put(("b", 1), 3);
    queue.put(("a", 2), 4);
    let order: Vec<_> = there(&queue).map(|item| *item.value()).collect();
    assert_eq!(order, [1, 3, 24]);
}

#[test] // G1 B1 B2
fn groups_and_a_bound_work_together() {
    let (queue, _) = grouped(|builder| builder.capacity(2));
    queue.entry(("a", 1)).try_add().unwrap();
    queue.entry(("a", 2)).try_add().unwrap();
    assert!(queue.entry(("b", 1)).try_add().is_err());
    let mut task = Task::waiting(Box::pin(queue.entry(("b", 1)).add_async()));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    assert_eq!(task.output(), Added::Queued);
    assert_eq!(groups_of(&queue, 9), ["a", "b"]);
}

#[test] // G1
fn handles_delays_and_retries_go_to_their_groups() {
    let (queue, time) = grouped(|builder| builder);
    let handle = queue.handle(("a", 1));
    assert_eq!((handle.add(), handle.add()), (Added::Queued, Added::Merged));
    queue.add_all(keys("a", 2..3));
    queue.add_after(("b", 1), secs(1));
    time.advance(secs(1));
    queue.fire_due();
    let item = queue.try_get().unwrap();
    let _ = item.retry();
    let mut counts = HashMap::new();
    for group in groups_of(&queue, 9) {
        *counts.entry(group).or_insert(0) += 1;
    }
    assert_eq!(counts, HashMap::from([("a", 2), ("b", 1)]));
    assert_eq!(queue.counts().queued, 0);
    eventually("nothing is left", || queue.is_empty());
}
