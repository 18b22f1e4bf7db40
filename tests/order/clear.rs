//! `clear` takes all that is queued, whatever it waits for (C9).

use crate::common::timed::{HOUR, built};
use crate::common::{take_all, watchdog};
use crate::groups::{grouped, groups_of, keys, turns};
use keyqueue::Added;

#[test] // G2
fn clear_takes_the_keys_of_a_group_at_its_limit() {
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..3).chain(keys("b", 0..1)));
    let item = queue.try_get().unwrap();
    assert_eq!(queue.clear(), 3);
    assert!(queue.is_empty());
    item.done();
    queue.add(("a", 1));
    assert_eq!(*queue.try_get().unwrap(), ("a", 1));
}

#[test] // G6
fn clear_takes_the_keys_of_a_held_group() {
    let (queue, time) = grouped(|builder| builder);
    assert!(queue.hold_group(&"a", HOUR));
    queue.add_all([("a", 1), ("b", 1)]);
    assert_eq!(queue.clear(), 2);
    // The hold goes on.
    queue.add(("a", 1));
    assert!(queue.try_get().is_err());
    time.advance(HOUR);
    assert_eq!(take_all(&queue), [("a", 1)]);
}

#[test] // T1
fn clear_takes_all_keys_and_no_token() {
    let (queue, _) = built::<u64>(|builder| builder.dispatch_rate(1.0, 2));
    queue.add_all(0..10);
    assert_eq!(queue.clear(), 10);
    queue.add_all(0..10);
    assert_eq!(take_all(&queue), [0, 1]);
}

#[test] // T2 G2
fn clear_takes_the_keys_that_wait_for_an_interval() {
    let (queue, time) = grouped(|builder| builder.min_interval(HOUR).group_limit(1));
    queue.add(("a", 1));
    queue.try_get().unwrap().done();
    queue.add(("a", 1));
    assert_eq!((queue.clear(), queue.len()), (1, 0));
    // The interval goes on.
    assert_eq!(queue.add(("a", 1)), Added::Queued);
    assert!(queue.try_get().is_err());
    time.advance(HOUR);
    let _item = queue.try_get().unwrap();
    queue.add(("a", 2));
    assert!(queue.try_get().is_err(), "at its limit");
}

#[test] // G1 G3
fn a_group_that_was_cleared_in_its_turn_can_be_forgotten_and_comes_again() {
    let _watchdog = watchdog(10);
    let queue = turns();
    for _ in 0..3 {
        queue.add_all(keys("a", 0..3).chain(keys("b", 0..3)));
        assert_eq!(groups_of(&queue, 2).len(), 2);
        assert_eq!((queue.clear(), queue.clear()), (4, 0));
        queue.shrink();
    }
    // What the groups have left in the ring is no turn of others.
    queue.add_all(
        keys("c", 0..3)
            .chain(keys("d", 0..3))
            .chain(keys("e", 0..3)),
    );
    let order = ["c", "d", "e"];
    assert_eq!(groups_of(&queue, 9), order.repeat(3));
    queue.shrink();
    queue.add_all(keys("a", 0..1).chain(keys("b", 0..1)));
    assert_eq!(groups_of(&queue, 9), ["a", "b"]);
}

#[test] // T2 G2 G3
fn clear_takes_a_key_that_waits_for_an_interval_and_whose_group_is_forgotten() {
    let (queue, time) = grouped(|builder| builder.min_interval(HOUR).group_limit(1));
    queue.add(("a", 1));
    queue.try_get().unwrap().done();
    queue.add(("a", 1));
    queue.shrink();
    assert_eq!((queue.clear(), queue.len()), (1, 0));
    // The interval ends, and the key waits no longer.
    time.advance(HOUR);
    queue.fire_due();
    assert_eq!(queue.add(("a", 1)), Added::Queued);
    assert_eq!(take_all(&queue), [("a", 1)]);
}
