//! Adds and puts that wait for the retry of their key (V7), beside its end, the failure that sets it, and a shut-down.
#![cfg(keyqueue_loom)]

use std::iter;
use std::time::Duration;

use keyqueue::{Added, Clock, GetError, MockClock};
use keyqueue_loom_tests::values::{Bag, Item, Values, bag, drain, values};
use keyqueue_loom_tests::{Settings, check, delayed_queue, spawn, spawn_with};
use loom::sync::Arc;

const NS: Duration = Duration::from_nanos(1);
/// A tick.
const MS: Duration = Duration::from_millis(1);

type Handle = keyqueue::KeyHandle<u8, Bag>;

/// A queue whose puts wait for retries, and its clock, which stands still until it is moved.
fn held_values() -> (Arc<Values>, MockClock) {
    let (clock, time) = Clock::mock();
    let set = |builder: keyqueue_loom_tests::values::Settings| {
        builder
            .clock(clock)
            .manual_timers()
            .adds_wait_for_retries(true)
    };
    (values(set), time)
}

/// Gets the key with this value.
fn held<'q>(queue: &'q Values, value: &[u8]) -> Item<'q> {
    let mut item = queue.try_get().unwrap();
    assert_eq!(item.value_mut().touch(), value);
    item
}

/// V7. A put beside the end of the retry for which it waits: it goes with that, or with a delivery of its own after it.
#[test]
fn a_put_beside_the_end_of_the_retry_that_it_waits_for() {
    check("held_fire", 4, || {
        let (queue, time) = held_values();
        queue.put(1, bag(1));
        assert_eq!(held(&queue, &[1]).retry_after(NS), Added::Delayed);
        time.advance(MS);
        let driver = spawn_with(&queue, |queue| (queue.fire_due(), drain(queue)));
        let added = queue.put(1, bag(2));
        let (fired, mut all) = driver.join().unwrap();
        assert_eq!(fired, 1);
        all.extend(drain(&queue));
        match added {
            Added::Delayed | Added::Merged => assert_eq!(all, [[1, 2]]),
            _ => assert_eq!(all, [[1], [2]]),
        }
    });
}

/// V7, D6, C10.
#[test]
fn a_put_beside_the_cancel_of_the_retry_that_it_waits_for_and_a_sweep() {
    check("held_cancel", 4, || {
        let (queue, _time) = held_values();
        queue.put(1, bag(1));
        assert_eq!(held(&queue, &[1]).retry_after(NS), Added::Delayed);
        let canceller = spawn_with(&queue, |queue| {
            assert!(queue.cancel(&1));
            queue.shrink();
        });
        let added = queue.put(1, bag(2));
        canceller.join().unwrap();
        match added {
            // It was taken back with the retry.
            Added::Delayed => assert!(drain(&queue).is_empty()),
            added => {
                assert_eq!(added, Added::Queued);
                assert_eq!(drain(&queue), [[2]]);
            }
        }
        assert!(queue.remove(&1).is_none(), "no value is left behind");
    });
}

/// V7. A key fails beside a put: whichever is first, no delivery begins before the retry is due, and that has both.
fn is_held(name: &str, put: impl Fn(&Handle) -> Added + Copy + Send + Sync + 'static) {
    check(name, 4, move || {
        let (queue, time) = held_values();
        queue.put(1, bag(1));
        let item = held(&queue, &[1]);
        let handle = queue.handle(1);
        let putter = spawn(move || put(&handle));
        assert_eq!(item.retry_after(2 * MS), Added::Delayed);
        assert!(drain(&queue).is_empty(), "before its time");
        let added = putter.join().unwrap();
        assert!(matches!(added, Added::Deferred | Added::Delayed));
        time.advance(MS);
        assert_eq!(queue.fire_due(), 0);
        assert!(drain(&queue).is_empty(), "before its time");
        time.advance(MS);
        assert_eq!(queue.fire_due(), 1);
        assert_eq!(drain(&queue), [[1, 2]]);
    });
}

#[test]
fn a_retry_beside_a_put_that_waits_for_it() {
    is_held("held_put", |handle| handle.put(bag(2)));
}

/// V7, D3.
#[test]
fn a_retry_beside_a_delayed_put_that_waits_for_it() {
    is_held("held_put_after", |handle| {
        let added = handle.entry().after(NS).put(bag(2));
        assert_eq!(added, Added::Delayed);
        added
    });
}

/// V7, S1, S3, S12. A key fails beside a put and a drain, which ends: each number is delivered or left, if it was accepted.
#[test]
fn a_retry_and_a_put_that_waits_for_it_beside_a_shut_down() {
    check("held_shut_down", 2, || {
        let (queue, _time) = held_values();
        queue.put(1, bag(1));
        let item = held(&queue, &[1]);
        let handle = queue.handle(1);
        let putter = spawn(move || handle.put(bag(2)).is_accepted());
        let ending = spawn_with(&queue, |queue| _ = queue.shut_down_with_drain());
        let _ = item.retry_after(MS);
        let accepted = putter.join().unwrap();
        let mut numbers = drain(&queue).concat();
        ending.join().unwrap();
        let left = queue.take_left().into_iter();
        numbers.extend(left.flat_map(|left| left.value.unwrap().touch()));
        assert_eq!(numbers, if accepted { &[1, 2][..] } else { &[1] });
    });
}

/// V7. The same through a handle, of a queue without values.
#[test]
fn a_retry_beside_an_add_through_a_handle_that_waits_for_it() {
    check("held_add", 4, || {
        let set = |builder: Settings| builder.manual_timers().adds_wait_for_retries(true);
        let (queue, time) = delayed_queue(set);
        let handle = queue.handle(1);
        handle.add();
        let item = queue.try_get().unwrap();
        let adder = spawn(move || handle.add());
        assert_eq!(item.retry_after(MS), Added::Delayed);
        let added = adder.join().unwrap();
        assert!(matches!(added, Added::Deferred | Added::Delayed));
        assert!(queue.try_get().is_err(), "before its time");
        time.advance(2 * MS);
        assert_eq!(queue.fire_due(), 1);
        queue.try_get().unwrap().done();
        assert!(queue.try_get().is_err());
    });
}

/// V7, S1, S12. A key that is dirty fails beside a shut-down: it is delivered once more, or its retry is left, and the getters end.
#[test]
fn a_retry_of_a_dirty_key_beside_a_shut_down() {
    check("held_dirty", 3, || {
        let set = |builder: Settings| builder.manual_timers().adds_wait_for_retries(true);
        let (queue, _time) = delayed_queue(set);
        queue.add(1);
        let item = queue.try_get().unwrap();
        assert_eq!(queue.add(1), Added::Deferred);
        let ending = spawn_with(&queue, |queue| _ = queue.shut_down());
        let retried = item.retry_after(MS);
        ending.join().unwrap();
        let delivered = iter::from_fn(|| queue.try_get().ok()).count();
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
        assert_eq!(delivered, usize::from(retried != Added::Delayed));
        assert_eq!(queue.take_left().len(), 1 - delivered);
    });
}
