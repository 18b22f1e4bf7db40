//! tokio-util 0.7.19, `tests/time_delay_queue.rs`.
//!
//! `insert_at` and `reset_at` are `add_after` with [`DelayPolicy::Replace`], `remove` is `cancel`,
//! and an expired entry that is polled is a queued key that a getter takes. There an entry expires
//! when the queue is polled; here a key is queued when its delay ends.

use std::time::Duration;

use crate::common::timed::{MS, after, built, ms};
use crate::common::{Task, assert_nothing_queued, take_all};
use keyqueue::{Added, DelayPolicy, MockClock, State, WorkQueue};

type Queue = WorkQueue<&'static str>;

const NONE: [&str; 0] = [];

fn new_queue() -> (Queue, MockClock) {
    built(|builder| builder.delay_policy(DelayPolicy::Replace))
}

/// Moves the clock and ends what is due.
fn sleep(queue: &Queue, time: &MockClock, millis: u64) {
    time.advance(ms(millis));
    queue.fire_due();
}

/// Adds each key after a delay in milliseconds.
fn insert(queue: &Queue, delays: &[(&'static str, u64)]) {
    for &(key, delay) in delays {
        assert_eq!(queue.add_after(key, ms(delay)), Added::Delayed);
    }
}

fn pending(queue: &Queue) -> usize {
    queue.counts().delayed
}

// ---- insert ---------------------------------------------------------------------------------

#[test] // D2: there it takes a tick
fn single_immediate_delay() {
    let (queue, _time) = new_queue();
    assert_eq!(queue.add_after("foo", Duration::ZERO), Added::Queued);
    assert_eq!(take_all(&queue), ["foo"]);
    assert_nothing_queued(&queue);
}

#[test] // D2 C1: there in any order
fn multi_immediate_delays() {
    let (queue, _time) = new_queue();
    for key in ["1", "2", "3"] {
        assert_eq!(queue.add_after(key, Duration::ZERO), Added::Queued);
    }
    assert_eq!(take_all(&queue), ["1", "2", "3"]);
}

#[test] // D1 C9
fn single_short_delay() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 5)]);
    let mut getter = Task::waiting(queue.get_async());
    sleep(&queue, &time, 1);
    assert_eq!(getter.wakes(), 0);
    sleep(&queue, &time, 5);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "foo");
    assert_nothing_queued(&queue);
}

#[test] // D1 C9: a getter is woken for a key only; there also when the wheel turns
fn multi_delay_at_start() {
    let long = 262_144 + 9 * 4096;
    let delays = [1000, 2, 234, long, 60, 10];
    let (queue, time) = built(|builder| builder.delay_policy(DelayPolicy::Replace));
    let added = delays.map(|delay| queue.add_after(delay, ms(delay)));
    assert_eq!(added, [Added::Delayed; 6]);
    let mut getter = Task::waiting(queue.get_async());
    for elapsed in 1..=1200 {
        time.advance(MS);
        queue.fire_due();
        if delays.contains(&elapsed) {
            assert_eq!(getter.wakes(), 1, "at {elapsed}");
            assert_eq!(*getter.output().unwrap(), elapsed);
            getter = Task::waiting(queue.get_async());
        }
        assert_eq!(getter.wakes(), 0, "at {elapsed}");
    }
    assert_eq!(after(&queue, &time, ms(long - 1200)), [long]);
}

#[test] // D2: an instant in the past is a delay of zero
fn insert_in_past_fires_immediately() {
    let (queue, time) = new_queue();
    sleep(&queue, &time, 10);
    let mut getter = Task::waiting(queue.get_async());
    assert_eq!(queue.add_after("foo", Duration::ZERO), Added::Queued);
    assert_eq!(*getter.output().unwrap(), "foo");
}

#[test] // D2 C9
fn insert_in_past_after_poll_fires_immediately() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 200)]);
    let mut getter = Task::waiting(queue.get_async());
    sleep(&queue, &time, 80);
    assert_eq!(getter.wakes(), 0);
    assert_eq!(queue.add_after("bar", Duration::ZERO), Added::Queued);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "bar");
    assert_eq!(after(&queue, &time, ms(120)), ["foo"]);
}

#[test] // D8 C9
fn expires_before_last_insert() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 10_000)]);
    let mut getter = Task::waiting(queue.get_async());
    insert(&queue, &[("bar", 600)]);
    sleep(&queue, &time, 600);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "bar");
    assert_nothing_queued(&queue);
}

#[test] // D1 D8
fn insert_before_first_after_poll() {
    let (queue, time) = new_queue();
    insert(&queue, &[("one", 200)]);
    let mut getter = Task::waiting(queue.get_async());
    insert(&queue, &[("two", 100)]);
    sleep(&queue, &time, 99);
    getter.assert_pending();
    sleep(&queue, &time, 1);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "two");
}

#[test] // D3 D8
fn insert_after_ready_poll() {
    let (queue, time) = new_queue();
    insert(&queue, &[("1", 100), ("2", 100), ("3", 100)]);
    sleep(&queue, &time, 100);
    let mut taken = Vec::new();
    while let Ok(item) = queue.try_get() {
        taken.push(*item);
        insert(&queue, &[("foo", 400)]);
    }
    assert_eq!(taken, ["1", "2", "3"]);
    // There three entries. Here one key, which has one delay (D3).
    assert_eq!(pending(&queue), 1);
    assert_eq!(after(&queue, &time, ms(400)), ["foo"]);
}

#[test] // D8: the queue is over two years old
fn item_expiry_greater_than_wheel() {
    let (queue, time) = new_queue();
    for _ in 0..2 {
        time.advance(ms(1 << 35));
        assert_eq!(queue.add_after("0", Duration::ZERO), Added::Queued);
        assert_eq!(after(&queue, &time, Duration::ZERO), ["0"]);
    }
    insert(&queue, &[("1", 1)]);
    assert_eq!(after(&queue, &time, ms(1)), ["1"]);
}

// ---- remove ---------------------------------------------------------------------------------

#[test] // D6
fn remove_entry() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 5)]);
    assert!(queue.cancel("foo"));
    assert_eq!(after(&queue, &time, ms(10)), NONE);
}

#[test] // D6
fn remove_expired_item() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 10)]);
    sleep(&queue, &time, 10);
    // There an entry can be removed until it is polled. Here the key is queued, which no cancel
    // touches (D6).
    assert!(!queue.cancel("foo"));
    assert_eq!(take_all(&queue), ["foo"]);
}

#[test] // D6 D8
fn remove_at_timer_wheel_threshold() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 64), ("bar", 64)]);
    sleep(&queue, &time, 80);
    assert_eq!(*queue.try_get().unwrap(), "foo");
    // There "bar" can be removed. Here it is queued (D6).
    assert!(!queue.cancel("bar"));
    assert_eq!(take_all(&queue), ["bar"]);
    // Its delay can be removed as long as it has not ended, at the threshold, too.
    insert(&queue, &[("foo", 48), ("bar", 48)]);
    sleep(&queue, &time, 47);
    assert!(queue.cancel("bar"));
    assert_eq!(after(&queue, &time, MS), ["foo"]);
}

#[test] // D6 S1
fn delay_queue_poll_expired_when_empty() {
    let (queue, _time) = new_queue();
    insert(&queue, &[("0", 10_000)]);
    assert!(queue.cancel("0"));
    // There an empty queue ends the stream. Here a getter waits until the shut-down (S1).
    let mut getter = Task::waiting(queue.get_async());
    queue.shut_down();
    assert!(getter.output().is_none());
}

#[test] // D6 S1
fn wake_after_remove_last() {
    let (queue, _time) = new_queue();
    insert(&queue, &[("foo", 1000)]);
    let getter = Task::waiting(queue.get_async());
    assert!(queue.cancel("foo"));
    // There the removal wakes, because the stream ends. Here only a shut-down ends it (S1).
    assert_eq!(getter.wakes(), 0);
    queue.shut_down();
    assert_eq!(getter.wakes(), 1);
}

#[test] // S5 S1
fn wake_after_clear() {
    let (queue, _time) = new_queue();
    insert(&queue, &[("foo", 1000)]);
    let mut getter = Task::waiting(queue.get_async());
    // There `clear` removes what is delayed. Here it discards what is queued (C5), and a shut-down
    // drops delays (S5).
    assert_eq!(queue.clear(), 0);
    assert_eq!((pending(&queue), getter.wakes()), (1, 0));
    assert_eq!(queue.shut_down().delayed, 1);
    assert_eq!(getter.wakes(), 1);
    assert!(getter.output().is_none());
}

// ---- reset ----------------------------------------------------------------------------------

#[test] // D3 D1
fn reset_entry() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 5)]);
    let mut getter = Task::waiting(queue.get_async());
    sleep(&queue, &time, 1);
    insert(&queue, &[("foo", 9)]);
    getter.assert_pending();
    sleep(&queue, &time, 7);
    assert_eq!(getter.wakes(), 0);
    sleep(&queue, &time, 3);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "foo");
    assert_nothing_queued(&queue);
}

#[test] // D2 D5
fn reset_to_past_wakes_pending_queue() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 10_000)]);
    let mut getter = Task::waiting(queue.get_async());
    assert_eq!(queue.add_after("foo", Duration::ZERO), Added::Queued);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "foo");
    // There it is moved. Here a delay of zero is a plain add (D2), which leaves the pending delay
    // alone (D5) ...
    assert_eq!(after(&queue, &time, ms(10_000)), ["foo"]);
    // ... unless it supersedes.
    let policy = DelayPolicy::Replace;
    let (queue, time) = built(|builder| builder.delay_policy(policy).supersede_delays(true));
    insert(&queue, &[("foo", 10_000)]);
    assert_eq!(queue.add_after("foo", Duration::ZERO), Added::Queued);
    assert_eq!(take_all(&queue), ["foo"]);
    assert_eq!(after(&queue, &time, ms(10_000)), NONE);
}

/// Resets a delay that is due at 201, each time at the first instant to the second. Returns its
/// end.
fn reset(resets: &[(u64, u64)]) -> u64 {
    let (queue, time) = new_queue();
    sleep(&queue, &time, 1);
    insert(&queue, &[("foo", 200)]);
    for now in 2..=201 {
        sleep(&queue, &time, 1);
        if queue.try_get().is_ok() {
            return now;
        }
        for &(_, to) in resets.iter().filter(|(at, _)| *at == now) {
            insert(&queue, &[("foo", to - now)]);
        }
    }
    panic!("it never ends");
}

#[test] // D3: and at its time; there a poll at 24 is late
fn reset_much_later() {
    assert_eq!(reset(&[]), 201);
    assert_eq!(reset(&[(4, 10)]), 10);
}

#[test] // D3
fn reset_twice() {
    assert_eq!(reset(&[(4, 50), (24, 40)]), 40);
    assert_eq!(reset(&[(4, 40), (24, 50)]), 50);
}

#[test] // D3 D4 D5
fn repeatedly_reset_entry_inserted_as_expired() {
    let (queue, time) = new_queue();
    assert_eq!(queue.add_after("foo", Duration::ZERO), Added::Queued);
    insert(&queue, &[("foo", 100)]);
    insert(&queue, &[("foo", 50)]);
    // There the expired entry is moved. Here the key is queued, and its delay adds it again (D4).
    assert_eq!(take_all(&queue), ["foo"]);
    let mut getter = Task::waiting(queue.get_async());
    sleep(&queue, &time, 49);
    assert_eq!(getter.wakes(), 0);
    sleep(&queue, &time, 1);
    assert_eq!(*getter.output().unwrap(), "foo");
    assert_eq!(after(&queue, &time, ms(100)), NONE);
}

#[test] // D3 D4
fn reset_inserted_expired() {
    let (queue, time) = new_queue();
    assert_eq!(queue.add_after("foo", Duration::ZERO), Added::Queued);
    insert(&queue, &[("foo", 100)]);
    // There one entry, which is delayed. Here the key is queued, and delayed as well; if nobody has
    // taken it when its delay ends, it is delivered once (D4).
    assert_eq!((queue.len(), pending(&queue)), (1, 1));
    assert_eq!(after(&queue, &time, ms(200)), ["foo"]);
    assert_eq!((queue.len(), pending(&queue)), (0, 0));
}

#[test] // D3
fn multi_reset() {
    let (queue, time) = new_queue();
    insert(&queue, &[("one", 200), ("two", 250)]);
    insert(&queue, &[("one", 300), ("two", 350), ("one", 400)]);
    assert_eq!(after(&queue, &time, ms(310)), NONE);
    assert_eq!(after(&queue, &time, ms(50)), ["two"]);
    assert_eq!(after(&queue, &time, ms(50)), ["one"]);
}

/// Resets one of two delays to be the first.
fn expire_when_reset_to_expire_earlier(key: &'static str) {
    let (queue, time) = new_queue();
    insert(&queue, &[("one", 200), ("two", 250)]);
    let mut getter = Task::waiting(queue.get_async());
    insert(&queue, &[(key, 100)]);
    sleep(&queue, &time, 100);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), key);
}

#[test] // D3 D8
fn expire_first_key_when_reset_to_expire_earlier() {
    expire_when_reset_to_expire_earlier("one");
}

#[test] // D3 D8
fn expire_second_key_when_reset_to_expire_earlier() {
    expire_when_reset_to_expire_earlier("two");
}

#[test] // D3 D8
fn reset_first_expiring_item_to_expire_later() {
    let (queue, time) = new_queue();
    insert(&queue, &[("one", 200), ("two", 250)]);
    let mut getter = Task::waiting(queue.get_async());
    insert(&queue, &[("one", 300)]);
    sleep(&queue, &time, 250);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "two");
}

/// Resets a delay of `delay` to the instant 120 when 80 have passed.
fn reset_after_slot_starts(delay: u64) {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", delay)]);
    let mut getter = Task::waiting(queue.get_async());
    sleep(&queue, &time, 80);
    assert_eq!(getter.wakes(), 0);
    insert(&queue, &[("foo", 40)]);
    // There the reset wakes the poller, which turns the wheel. Here a getter is woken for a key
    // (C9).
    sleep(&queue, &time, 39);
    assert_eq!(getter.wakes(), 0);
    sleep(&queue, &time, 1);
    assert_eq!(getter.wakes(), 1);
    assert_eq!(*getter.output().unwrap(), "foo");
}

#[test] // D3 C9
fn reset_later_after_slot_starts() {
    reset_after_slot_starts(100);
}

#[test] // D3 C9
fn reset_earlier_after_slot_starts() {
    reset_after_slot_starts(200);
}

// ---- memory, and a look at the queue --------------------------------------------------------

#[test] // C10: `compact` is `shrink`
fn compact_expire_empty() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo1", 10), ("foo2", 10)]);
    assert_eq!(after(&queue, &time, ms(10)), ["foo1", "foo2"]);
    queue.shrink();
    assert!(queue.state("foo1").is_none() && queue.state("foo2").is_none());
    assert_eq!(pending(&queue), 0);
}

#[test] // C10 D6
fn compact_remove_empty() {
    let (queue, _time) = new_queue();
    insert(&queue, &[("foo1", 10), ("foo2", 10)]);
    assert!(queue.cancel("foo1") && queue.cancel("foo2"));
    queue.shrink();
    assert!(queue.state("foo1").is_none() && queue.state("foo2").is_none());
    assert_eq!(pending(&queue), 0);
}

const FOUR: [(&str, u64); 4] = [("foo1", 10), ("foo2", 10), ("foo3", 20), ("foo4", 20)];

#[test] // C10 D6
fn compact_remove_remapped_keys() {
    let (queue, time) = new_queue();
    insert(&queue, &FOUR);
    assert_eq!(after(&queue, &time, ms(10)), ["foo1", "foo2"]);
    queue.shrink();
    insert(&queue, &[("foo5", 10)]);
    assert!(queue.cancel("foo3") && queue.cancel("foo4"));
    queue.shrink();
    assert!(queue.state("foo3").is_none() && queue.state("foo4").is_none());
    assert_eq!(pending(&queue), 1);
    assert_eq!(after(&queue, &time, ms(10)), ["foo5"]);
}

#[test] // C10 D3
fn compact_change_deadline() {
    let (queue, time) = new_queue();
    insert(&queue, &FOUR);
    assert_eq!(after(&queue, &time, ms(10)), ["foo1", "foo2"]);
    queue.shrink();
    insert(&queue, &[("foo5", 10), ("foo6", 10)]);
    insert(&queue, &[("foo4", 20), ("foo6", 20)]);
    assert_eq!(after(&queue, &time, ms(10)), ["foo3", "foo5"]);
    assert_eq!(after(&queue, &time, ms(10)), ["foo4", "foo6"]);
    assert_eq!(pending(&queue), 0);
}

#[test] // D6: there a second removal panics
fn remove_after_compact() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 10), ("bar", 20)]);
    assert!(queue.cancel("foo"));
    queue.shrink();
    assert!(!queue.cancel("foo"));
    assert_eq!(after(&queue, &time, ms(20)), ["bar"]);
}

#[test] // D6: there a removal of what has expired panics
fn remove_after_compact_poll() {
    let (queue, time) = new_queue();
    insert(&queue, &[("foo", 10), ("bar", 20)]);
    assert_eq!(after(&queue, &time, ms(10)), ["foo"]);
    queue.shrink();
    assert!(!queue.cancel("foo"));
    assert_eq!(after(&queue, &time, ms(10)), ["bar"]);
}

#[test] // D8: there one call; here the least `due_in` of a snapshot, unless a key is queued
fn peek() {
    let (queue, time) = new_queue();
    let peek = || {
        let keys = queue.snapshot();
        let is_queued = |key: &&keyqueue::KeySnapshot<'_, _>| key.state() == State::Queued;
        let queued = keys.iter().find(is_queued);
        let next = queued.or_else(|| keys.iter().min_by_key(|key| key.due_in()));
        next.map(|key| *key.key())
    };
    queue.add_after("bar", Duration::ZERO);
    insert(&queue, &[("foo", 5), ("baz", 10)]);
    assert_eq!(peek(), Some("bar"));
    assert_eq!(take_all(&queue), ["bar"]);
    assert_eq!(peek(), Some("foo"));
    assert_eq!(after(&queue, &time, ms(6)), ["foo"]);
    assert_eq!(peek(), Some("baz"));
    sleep(&queue, &time, 5);
    assert_eq!(peek(), Some("baz"));
    assert_eq!(take_all(&queue), ["baz"]);
    assert_eq!(peek(), None);
}
