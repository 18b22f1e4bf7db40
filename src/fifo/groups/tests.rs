//! What getters and the timer's thread read without the lock, and what a late push leaves.

use std::time::Duration;

use super::NEVER;
use super::grouping::Grouping;
use crate::{Clock, WorkQueue};

const SECOND: Duration = Duration::from_secs(1);

// C9: the timer's thread would not sleep if the time stayed in the past.
#[test] // G6
fn a_time_that_has_come_and_that_of_a_hold_that_was_ended_are_waited_for_no_longer() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder.group_by(|key: &u64| *key).build().unwrap();
    let next = || queue.core.groups().map(Grouping::next);
    queue.add(1);
    assert_eq!(next(), Some(NEVER));
    for _ in 0..2 {
        assert!(queue.hold_group(&1_u64, SECOND));
        assert_ne!(next(), Some(NEVER));
        time.advance(SECOND);
        queue.fire_due();
        assert_eq!(next(), Some(NEVER));
        assert!(queue.hold_group(&1_u64, SECOND));
        let earlier = next();
        assert!(queue.hold_group(&1_u64, 2 * SECOND));
        assert!(next() > earlier && next() < Some(NEVER));
        assert!(queue.release_group(&1_u64));
        assert_eq!(next(), Some(NEVER));
    }
}

#[test] // C10
fn groups_that_were_forgotten_are_looked_for_no_longer() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder.group_by(|key: &u64| *key).build().unwrap();
    let groups = queue.core.groups().unwrap();
    queue.add_all(0..1100);
    while queue.try_get().is_ok() {}
    assert!(groups.next_look().is_some());
    time.advance(SECOND);
    while groups.look() {}
    assert_eq!(groups.next_look(), None);
}

// A push that comes after the discard of what is left, and before the rest of `shrink`.
#[test] // C10 T2
fn shrinking_an_ended_queue_keeps_the_entry_of_a_key_that_waits_for_its_interval() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder.min_interval(SECOND).build().unwrap();
    let groups = queue.core.groups().unwrap();
    queue.add_all([1, 2_u64]);
    assert_eq!([*queue.get().unwrap(), *queue.get().unwrap()], [1, 2]);
    queue.add(2);
    groups.shrink(true);
    assert_eq!(groups.len(), 1);
    queue.add(1);
    assert_eq!(*queue.try_get().unwrap(), 1);
    time.advance(SECOND);
    queue.fire_due();
    assert_eq!(*queue.try_get().unwrap(), 2);
}
