//! controller-runtime v0.25 (86a0d40e), `pkg/controller/priorityqueue/priorityqueue_test.go`.
//!
//! Its priorities are any integers, the greater the more urgent; here the level 0 is the most
//! urgent. Its queue is that of `starvation_limit(usize::MAX)` and `supersede_delays(true)`. What
//! it asserts of its depth metric is asserted of `Counts::by_level`, and of its adds, of what the adds
//! return.

mod threads;

use std::time::Duration;

use crate::common::timed::{HOUR, MS, after, built, ms, secs};
use crate::common::{Task, assert_nothing_queued, take_all};
use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{Added, Builder, MockClock, WorkQueue};

/// The level of priority 0, which is that of an add that names none.
const NORMAL: usize = 2;
/// The levels of the priorities 1 and 2.
const HIGH: usize = 1;
const HIGHEST: usize = 0;

fn strict<K>(builder: Builder<K>) -> Builder<K> {
    builder
        .levels(3)
        .default_level(NORMAL)
        .starvation_limit(usize::MAX)
        .supersede_delays(true)
}

fn new_queue() -> (WorkQueue<&'static str>, MockClock) {
    built(strict)
}

/// Takes the next key, which is done then, and its level.
#[track_caller]
fn next(queue: &WorkQueue<&'static str>) -> (&'static str, usize) {
    let item = queue.try_get().expect("a key is queued");
    (*item, item.level())
}

// ---- the core -------------------------------------------------------------------------------

#[test] // C5 C6
fn returns_an_item() {
    let (queue, _time) = new_queue();
    assert_eq!(queue.add("foo"), Added::Queued);
    let item = queue.get().unwrap();
    assert_eq!(*item, "foo");
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

#[test] // C1 P1
fn returns_items_in_order() {
    let (queue, _time) = new_queue();
    assert_eq!(queue.add("foo"), Added::Queued);
    assert_eq!(queue.add("bar"), Added::Queued);
    assert_eq!(
        [next(&queue), next(&queue)],
        [("foo", NORMAL), ("bar", NORMAL)]
    );
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

#[test] // C3 C8
fn doesnt_return_an_item_that_is_currently_locked() {
    let (queue, _time) = new_queue();
    queue.add("foo");
    let foo = queue.get().unwrap();
    assert_eq!(queue.add("foo"), Added::Deferred);
    assert_eq!(queue.add("bar"), Added::Queued);
    assert_eq!(*queue.get().unwrap(), "bar");
    // There the locked key counts, and the depth is 1. Here `len` counts queued keys only (C8).
    assert_nothing_queued(&queue);
    assert_eq!(*foo, "foo");
}

#[test] // C4
fn returns_an_item_as_soon_as_its_unlocked() {
    let (queue, _time) = new_queue();
    queue.add("foo");
    let foo = queue.get().unwrap();
    queue.add("foo");
    queue.add("bar");
    assert_eq!(next(&queue).0, "bar");
    queue.add("baz");
    foo.done();
    assert_eq!(queue.counts().by_level, [0, 0, 2]);
    // There its place is that of the add, before "baz". Here `done` queues it at the tail (C4).
    assert_eq!([next(&queue).0, next(&queue).0], ["baz", "foo"]);
}

#[test] // C2
fn de_duplicates_items() {
    let (queue, _time) = new_queue();
    assert_eq!(queue.add("foo"), Added::Queued);
    assert_eq!(queue.add("foo"), Added::Merged);
    assert_eq!((queue.len(), queue.counts().processing), (1, 0));
    assert_eq!(queue.counts().by_level, [0, 0, 1]);
}

#[test] // C4 C8
fn enqueues_a_locked_item() {
    let (queue, _time) = new_queue();
    queue.add("foo");
    assert_eq!(queue.len(), 1);
    let item = queue.get().unwrap();
    assert_eq!((*item, item.level()), ("foo", NORMAL));
    assert_eq!(queue.add("foo"), Added::Deferred);
    // There its length is 1 already. Here it counts when it is queued (C8).
    assert_eq!(queue.len(), 0);
    item.done();
    assert_eq!(queue.len(), 1);
    assert_eq!(next(&queue), ("foo", NORMAL));
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

// ---- priorities -----------------------------------------------------------------------------

#[test] // P3
fn retains_the_highest_priority() {
    let (queue, _time) = new_queue();
    assert_eq!(queue.entry("foo").level(HIGH).add(), Added::Queued);
    assert_eq!(queue.entry("foo").level(HIGHEST).add(), Added::Merged);
    assert_eq!(next(&queue), ("foo", HIGHEST));
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

#[test] // P3
fn will_not_decrease_the_priority() {
    let (queue, _time) = new_queue();
    assert_eq!(queue.entry("foo").level(HIGHEST).add(), Added::Queued);
    assert_eq!(queue.entry("foo").level(HIGH).add(), Added::Merged);
    assert_eq!(next(&queue), ("foo", HIGHEST));
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

#[test] // P1 P3
fn gets_pushed_to_the_front_if_the_priority_increases() {
    let (queue, _time) = new_queue();
    queue.add_all(["foo", "bar", "baz"]);
    assert_eq!(queue.entry("baz").level(HIGH).add(), Added::Merged);
    assert_eq!(next(&queue), ("baz", HIGH));
    assert_eq!(queue.counts().by_level, [0, 0, 2]);
}

#[test] // P3
fn follows_fifo_order_in_the_new_priority_queue_when_item_priority_changes() {
    let (queue, _time) = new_queue();
    queue.entry("foo").level(NORMAL).add();
    queue.entry("bar").level(HIGH).add();
    queue.entry("foo").level(HIGH).add();
    assert_eq!(queue.len(), 2);
    assert_eq!([next(&queue), next(&queue)], [("bar", HIGH), ("foo", HIGH)]);
    assert_eq!(queue.len(), 0);
}

// The originals' first case, a delay of less than zero, cannot be written.
#[test] // P1 D8
fn test_high_priority_items_are_returned_before_low_priority_item_multiple_times() {
    const KEYS: u64 = 1000;
    let key = |level: usize, n| level as u64 * KEYS + n;
    for delay in [0, 1] {
        let (queue, time) = built(|builder: Builder<u64>| strict(builder).levels(5));
        for n in 0..KEYS {
            for level in 0..5 {
                let entry = queue.entry(key(level, n)).level(level);
                let expected = [Added::Queued, Added::Delayed][delay as usize];
                assert_eq!(entry.after(secs(delay)).add(), expected);
            }
        }
        time.advance(secs(delay));
        queue.fire_due();
        for level in 0..5 {
            for n in 0..KEYS {
                let item = queue.try_get().unwrap();
                assert_eq!((*item, item.level()), (key(level, n), level));
            }
        }
        assert_eq!(queue.counts().by_level, [0; 5]);
    }
}

// ---- delays ---------------------------------------------------------------------------------

#[test] // D5 D6
fn retains_the_lowest_after_duration() {
    let (queue, time) = new_queue();
    queue.entry("foo").after(Duration::ZERO).add();
    queue.entry("foo").after(HOUR).add();
    assert!(!queue.cancel("foo"), "no delay of a queued key");
    let item = queue.get().unwrap();
    assert_eq!((*item, item.level(), queue.len()), ("foo", NORMAL, 0));
    // A processing key has a delay, a dirty one has none.
    assert_eq!(queue.add_after("foo", HOUR), Added::Delayed);
    assert_eq!(queue.add("foo"), Added::Deferred);
    queue.add_after("foo", HOUR);
    item.done();
    assert_eq!(take_all(&queue), ["foo"]);
    assert_eq!(after(&queue, &time, HOUR), [""; 0]);
}

#[test] // C8
fn doesnt_include_non_ready_items_in_len() {
    let (queue, _time) = new_queue();
    queue.add_after("foo", secs(60));
    queue.add("baz");
    queue.add_after("bar", secs(60));
    queue.add("bal");
    assert_eq!(queue.counts().by_level, [0, 0, 2]);
    assert_eq!(queue.counts().delayed, 2);
}

#[test] // D5
fn updates_metrics_correctly_for_an_item_that_gets_initially_added_with_after_and_then_without() {
    let (queue, time) = new_queue();
    assert_eq!(queue.add_after("foo", HOUR), Added::Delayed);
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
    assert_eq!(queue.add("foo"), Added::Queued);
    assert_eq!(queue.counts().by_level, [0, 0, 1]);
    assert_eq!(next(&queue), ("foo", NORMAL));
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
    assert_eq!(after(&queue, &time, HOUR), [""; 0], "the delay is gone");
}

#[test] // D5 P3
fn updates_metrics_correctly_when_an_item_with_after_is_re_added_with_higher_priority_and_no_after()
{
    let (queue, time) = new_queue();
    assert_eq!(
        queue.entry("foo").after(HOUR).level(NORMAL).add(),
        Added::Delayed
    );
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
    assert_eq!(queue.entry("foo").level(HIGH).add(), Added::Queued);
    assert_eq!(queue.counts().by_level, [0, 1, 0]);
    assert_eq!(next(&queue), ("foo", HIGH));
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
    assert_eq!(after(&queue, &time, HOUR), [""; 0], "the delay is gone");
    // Of a more urgent delay, the priority stays.
    queue.entry("foo").after(HOUR).level(HIGHEST).add();
    assert_eq!(queue.entry("foo").level(NORMAL).add(), Added::Queued);
    assert_eq!(next(&queue), ("foo", HIGHEST));
}

#[test] // D1 C9
fn test_item_is_only_returned_after_after_has_passed() {
    let (queue, time) = new_queue();
    let mut getter = Task::waiting(queue.get_async());
    assert_eq!(queue.add_after("foo", secs(1)), Added::Delayed);
    time.advance(secs(1) - MS);
    queue.fire_due();
    getter.assert_pending();
    time.advance(MS);
    queue.fire_due();
    assert_eq!(*getter.output().unwrap(), "foo");
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

#[test] // P1 D4
fn test_high_priority_item_that_became_ready_is_returned_before_low_priority_item() {
    let (queue, time) = new_queue();
    queue.entry("foo").after(Duration::ZERO).level(NORMAL).add();
    queue.entry("prio").after(secs(1)).level(HIGHEST).add();
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(next(&queue), ("prio", HIGHEST));
    assert_eq!(queue.counts().by_level, [0, 0, 1]);
}

#[test] // C9
fn test_item_is_returned_as_soon_as_possible() {
    let (queue, _time) = new_queue();
    let mut getter = Task::waiting(queue.get_async());
    queue.add("foo");
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "foo");
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

#[test] // C9 D5
fn test_waiting_item_is_returned_right_after_read_without_after() {
    let (queue, time) = new_queue();
    let mut getter = Task::waiting(queue.get_async());
    assert_eq!(queue.add_after("foo", secs(60)), Added::Delayed);
    getter.assert_pending();
    assert_eq!(queue.add("foo"), Added::Queued);
    assert_eq!(*getter.output().unwrap(), "foo");
    assert_eq!(after(&queue, &time, secs(60)), [""; 0]);
}

#[test] // D8
fn test_multiple_items_with_after_are_returned_in_correct_order() {
    let (queue, time) = new_queue();
    let mut getter = Task::waiting(queue.get_async());
    queue.add_after("foo", secs(1));
    queue.add_after("bar", ms(200));
    getter.assert_pending();
    time.advance(secs(1));
    queue.fire_due();
    assert_eq!(*getter.output().unwrap(), "bar");
    assert_eq!(next(&queue).0, "foo");
    assert_eq!(queue.counts().by_level, [0, 0, 0]);
}

#[test] // C8 D1
fn test_items_are_included_in_len_and_metrics_once_they_are_ready() {
    let (queue, time) = new_queue();
    for round in 0..2 {
        queue.add_after("foo", ms(500));
        queue.add("baz");
        queue.add_after("bar", ms(500));
        queue.add("bal");
        assert_eq!(queue.counts().by_level, [0, 0, 2], "round {round}");
        time.advance(secs(1));
        queue.fire_due();
        assert_eq!(queue.counts().by_level, [0, 0, 4], "round {round}");
        assert_eq!(take_all(&queue), ["baz", "bal", "foo", "bar"]);
        assert_eq!(queue.counts().by_level, [0, 0, 0], "round {round}");
    }
}

#[test] // C2 D4
fn test_metrics_are_updated_for_item_whose_requeue_after_expired_that_gets_added_again_without_requeue_after()
 {
    let (queue, time) = new_queue();
    queue.add_after("foo", ms(50));
    time.advance(ms(50));
    queue.fire_due();
    assert_eq!(queue.counts().by_level, [0, 0, 1]);
    assert_eq!(queue.add("foo"), Added::Merged);
    assert_eq!(queue.counts().by_level, [0, 0, 1]);
    assert_eq!(next(&queue), ("foo", NORMAL));
    assert_nothing_queued(&queue);
}

#[test] // L1 L3
fn test_when_adding_multiple_items_with_ratelimit_true_they_dont_affect_each_other() {
    let limiter = ItemExponentialFailure::new(ms(5), secs(1000)).unwrap();
    for _ in 0..7 {
        limiter.when(&"bar");
    }
    let (queue, time) = built(|builder| strict(builder).rate_limiter(limiter));
    assert_eq!(queue.add_rate_limited("foo"), Added::Delayed);
    assert_eq!(queue.add_rate_limited("bar"), Added::Delayed);
    assert_eq!(after(&queue, &time, ms(4)), [""; 0]);
    assert_eq!(after(&queue, &time, ms(1)), ["foo"]);
    assert_eq!(after(&queue, &time, ms(634)), [""; 0]);
    assert_eq!(after(&queue, &time, ms(1)), ["bar"], "its eighth");
}

// ---- the end --------------------------------------------------------------------------------

#[test] // S1 S8
fn get_from_priority_queue_might_get_stuck_when_the_priority_queue_is_shut_down() {
    let (queue, _time) = new_queue();
    queue.add("baz");
    assert_eq!(queue.shut_down_now().queued, 1);
    assert_eq!(queue.add_after("foo", secs(1)), Added::ShutDown);
    assert!(queue.get().is_none());
    assert!(queue.get().is_none());
    // There every shut-down discards what is queued. Here a plain one delivers it first (S1).
    let (queue, _time) = new_queue();
    queue.add("baz");
    queue.shut_down();
    assert_eq!(*queue.get().unwrap(), "baz");
    assert!(queue.get().is_none());
}

#[test] // C9 S1
fn test_get_from_priority_queue_is_unblocked_on_shutdown() {
    let (queue, _time) = new_queue();
    let mut getter = Task::waiting(queue.get_async());
    queue.shut_down();
    assert_eq!(getter.wakes(), 1);
    assert!(getter.output().is_none());
}
