//! What getters and the timer's thread read without the lock, and what a late push leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use super::NEVER;
use super::grouping::{Grouping, Ready};
use crate::engine::taking::Taken;
use crate::sync::Arc;
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
        assert!(queue.hold_group(&1_u64, Duration::ZERO));
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

// Another thread may see the group without the token: it looks between the two.
#[test] // C12 G5
fn a_token_that_comes_back_makes_all_keys_of_its_group_deliverable() {
    let (clock, _time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder
        .group_by(|n: &u64| n % 2)
        .group_rate(1.0, 1)
        .build()
        .unwrap();
    queue.add_all([1, 3, 5]);
    let groups = queue.core.groups().unwrap();
    let Taken::Key(held) = queue.core.take() else {
        panic!("a key is queued");
    };
    assert_eq!(groups.missing(9), None);
    assert_eq!(groups.refund(&held), Ready::Several);
    assert_eq!(groups.missing(9), Some(0));
    queue.core.finish(held);
}

#[test] // C9 C12 G6
fn a_hold_that_does_not_prolong_one_that_is_over_wakes_a_getter() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder.group_by(|n: &u64| n % 2).build().unwrap();
    queue.add_all([1, 3]);
    let mut item = queue.get().unwrap();
    assert!(queue.hold_group(&1_u64, SECOND));
    let waiter = queue.core.getters.register(Waker::noop());
    time.advance(SECOND);
    assert!(item.hold_group(Duration::ZERO).is_accepted());
    assert!(waiter.is_notified(Waker::noop()));
    queue.core.getters.cancel(waiter);
}

#[test] // C9 G6 T2
fn a_key_that_is_kept_for_its_interval_does_not_hide_that_its_group_may_deliver_others() {
    let (clock, time) = Clock::mock();
    let passes = Arc::new(AtomicBool::new(false));
    let passed = Arc::clone(&passes);
    let (half, time) = (SECOND / 2, Arc::new(time));
    let moved = Arc::clone(&time);
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let group_by = move |n: &u64| {
        if passed.load(Ordering::SeqCst) {
            moved.advance(half);
        }
        n % 2
    };
    let queue = builder
        .min_interval(SECOND)
        .group_by(group_by)
        .build()
        .unwrap();
    queue.add(1);
    queue.get().unwrap().done();
    queue.shrink(); // forgets the group
    assert!(queue.hold_group(&1_u64, half));
    queue.add(3);
    let waiter = queue.core.getters.register(Waker::noop());
    // Its group is looked for, and the hold ends.
    passes.store(true, Ordering::SeqCst);
    queue.add(1);
    assert!(waiter.is_notified(Waker::noop()));
    queue.core.getters.cancel(waiter);
    assert_eq!(*queue.try_get().unwrap(), 3);
}
