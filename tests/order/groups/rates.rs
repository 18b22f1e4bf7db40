//! A rate for each group (G5).

use std::time::Duration;

use super::{Key, grouped, groups_of, keys};
use crate::common::timed::secs;
use crate::common::{take_all, watchdog};
use keyqueue::{Added, WorkQueue};

#[test] // G5
fn a_rate_holds_for_each_group_and_delays_no_other() {
    let (queue, time) = grouped(|builder| builder.group_rate(1.0, 2));
    queue.add_all(keys("a", 0..4).chain(keys("b", 0..1)));
    assert_eq!(groups_of(&queue, 9), ["a", "b", "a"]);
    time.advance(Duration::from_millis(999));
    assert!(queue.try_get().is_err());
    // Adds meanwhile merge.
    assert_eq!(queue.add(("a", 2)), Added::Merged);
    time.advance(Duration::from_millis(1));
    assert_eq!(take_all(&queue), [("a", 2)]);
    time.advance(secs(9));
    queue.add_all(keys("a", 4..9));
    // The bucket holds two tokens, however long it was.
    assert_eq!(take_all(&queue), [("a", 3), ("a", 4)]);
}

#[test] // G5
fn a_getter_that_waits_is_woken_when_the_token_is_there() {
    let _watchdog = watchdog(60);
    let builder = WorkQueue::builder().group_by(|key: &Key| key.0);
    let queue = builder.group_rate(200.0, 1).build().unwrap();
    queue.add_all(keys("a", 0..5));
    // The timer's thread wakes it, no other add.
    for number in 0..5 {
        assert_eq!(*queue.get().unwrap(), ("a", number));
    }
    queue.add_all(keys("a", 0..5));
    for number in 0..5 {
        let item = pollster::block_on(queue.get_async()).unwrap();
        assert_eq!(*item, ("a", number));
    }
}
