//! kube-runtime 4.2.0, `src/scheduler.rs`.
//!
//! A request is an add, or `add_after`; of two delays the earlier wins on both sides. A message
//! that is held pending (`hold_unless`) is a queued key of a group that is held.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::common::timed::{DAY, after, built, secs};
use crate::common::{assert_nothing_queued, take_all};
use keyqueue::{Added, Builder, Clock, DelayPolicy, MockClock, State, WorkQueue, merge};

/// Each key is a group, which can be held.
fn holding() -> (WorkQueue<u64>, MockClock) {
    built(|builder: Builder<u64>| builder.group_by(|key| *key))
}

/// A key that equals every other.
#[derive(Clone, Debug)]
struct Singleton(u8);

impl PartialEq for Singleton {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Singleton {}

impl Hash for Singleton {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Moves the clock, and takes what is queued.
fn numbers(queue: &WorkQueue<Singleton>, time: &MockClock, seconds: u64) -> Vec<u8> {
    let taken = after(queue, time, secs(seconds));
    taken.into_iter().map(|key| key.0).collect()
}

#[test] // G6
fn scheduler_should_hold_and_release_items() {
    let (queue, _time) = holding();
    assert_eq!(queue.state(&1), None);
    assert!(queue.hold_group(&1_u64, DAY));
    queue.add(1);
    assert!(queue.try_get().is_err());
    assert_eq!(queue.state(&1), Some(State::Queued));
    assert!(queue.hold_group(&1_u64, Duration::ZERO));
    assert_eq!(take_all(&queue), [1]);
    assert_eq!(queue.state(&1), None);
    queue.shut_down();
    assert!(queue.get().is_none());
}

#[test] // C2 G6
fn scheduler_should_not_reschedule_pending_items() {
    let (queue, _time) = holding();
    assert!(queue.hold_group(&1_u64, DAY));
    assert_eq!(queue.add(1), Added::Queued);
    assert!(queue.try_get().is_err());
    assert_eq!(queue.add(1), Added::Merged);
    assert!(queue.hold_group(&1_u64, Duration::ZERO));
    assert_eq!(take_all(&queue), [1]);
    assert_nothing_queued(&queue);
}

#[test] // G6
fn scheduler_pending_message_should_not_block_head_of_line() {
    let (queue, _time) = holding();
    assert!(queue.hold_group(&1_u64, DAY));
    queue.add_all([1, 2]);
    assert_eq!(take_all(&queue), [2]);
    assert_eq!(queue.state(&1), Some(State::Queued));
}

#[test] // D1 S1
fn scheduler_should_emit_items_as_requested() {
    let (queue, time) = built::<u64>(|builder| builder);
    queue.add_after(1, secs(1));
    queue.add_after(2, secs(3));
    assert_nothing_queued(&queue);
    assert_eq!(after(&queue, &time, secs(2)), [1]);
    assert_eq!(after(&queue, &time, secs(2)), [2]);
    // There the stream ends with its requests, here with the shut-down (S1).
    queue.shut_down();
    assert!(queue.get().is_none());
}

/// The seconds at which a key is delivered that is delayed by each of `delays`.
fn deliveries(delays: [u64; 2]) -> Vec<u64> {
    let (queue, time) = built(|builder| builder);
    for delay in delays {
        assert_eq!(queue.add_after((), secs(delay)), Added::Delayed);
    }
    let is_delivered = |_: &u64| !after(&queue, &time, secs(1)).is_empty();
    (1..=5).filter(is_delivered).collect()
}

#[test] // D3
fn scheduler_dedupe_should_keep_earlier_item() {
    assert_eq!(deliveries([1, 3]), [1]);
}

#[test] // D3
fn scheduler_dedupe_should_replace_later_item() {
    assert_eq!(deliveries([3, 1]), [1]);
}

#[test] // D3
fn scheduler_dedupe_should_allow_rescheduling_emitted_item() {
    let (queue, time) = built(|builder| builder);
    for _ in 0..2 {
        assert_eq!(queue.add_after((), secs(1)), Added::Delayed);
        assert_nothing_queued(&queue);
        assert_eq!(after(&queue, &time, secs(2)), [()]);
        assert_nothing_queued(&queue);
    }
}

#[test] // D3 V1
fn scheduler_should_overwrite_message_with_soonest_version() {
    let (queue, time) = built(|builder| builder);
    queue.add_after(Singleton(1), secs(2));
    queue.add_after(Singleton(2), secs(1));
    // There the message of the earlier request is emitted. Here the delay is the earlier (D3), and
    // the key is the one that was added first, as for any merged add (C2). What changes is a value
    // (V1).
    assert_eq!(numbers(&queue, &time, 1), [1]);
    assert_eq!(numbers(&queue, &time, 5), [0; 0]);
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = builder.merge(merge::latest).build().unwrap();
    queue.entry("key").after(secs(2)).put(1);
    queue.entry("key").after(secs(1)).put(2);
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(*queue.try_get().unwrap().value(), 2);
}

#[test] // D3
fn scheduler_should_not_overwrite_message_with_later_version() {
    let (queue, time) = built(|builder| builder);
    queue.add_after(Singleton(1), secs(1));
    queue.add_after(Singleton(2), secs(2));
    assert_eq!(numbers(&queue, &time, 1), [1]);
    assert_eq!(numbers(&queue, &time, 5), [0; 0]);
}

// ---- debounced ------------------------------------------------------------------------------

#[test] // D1 D3 T3
fn scheduler_should_add_debounce_to_a_request() {
    let (queue, time) = built(|builder| builder.delay_policy(DelayPolicy::Latest));
    queue.add_after(Singleton(1), secs(2));
    assert_eq!(numbers(&queue, &time, 1), [0; 0]);
    assert_eq!(numbers(&queue, &time, 3), [1]);
}

#[test] // D3 T3
fn scheduler_should_dedup_message_within_debounce_period() {
    let (queue, time) = built(|builder| builder.delay_policy(DelayPolicy::Latest));
    queue.add_after(Singleton(1), secs(3));
    assert_eq!(numbers(&queue, &time, 1), [0; 0]);
    queue.add_after(Singleton(2), secs(3));
    assert_eq!(numbers(&queue, &time, 2), [0; 0], "the first is due");
    // There the newer message, here the key that was added first (C2).
    assert_eq!(numbers(&queue, &time, 3), [1]);
    assert_eq!(numbers(&queue, &time, 3), [0; 0]);
}
