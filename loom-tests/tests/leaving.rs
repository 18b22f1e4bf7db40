//! Groups that leave (G8): the end of a delivery beside a thread that waits for it, and what is taken back beside what moves.
#![cfg(keyqueue_loom)]

use std::iter;
use std::time::Duration;

use keyqueue::{Added, Clock, MockClock};
use keyqueue_loom_tests::values::{Values, bag, drain, values};
use keyqueue_loom_tests::{check, queue_of, spawn_with};
use loom::sync::Arc;

const NS: Duration = Duration::from_nanos(1);
/// A tick.
const MS: Duration = Duration::from_millis(1);

/// A queue whose keys below 10 are in one group.
fn grouped() -> (Arc<Values>, MockClock) {
    let (clock, time) = Clock::mock();
    let queue = values(|builder| {
        let builder = builder.clock(clock).manual_timers();
        builder.group_by(|key: &u8| key / 10)
    });
    (queue, time)
}

/// Takes back what group 0 has, and returns its numbers.
fn take(queue: &Values) -> Vec<u8> {
    let left = queue.take_group(&0_u8).unwrap().into_iter();
    left.flat_map(|left| left.value.unwrap().touch()).collect()
}

/// C9. Interleaving: the worker finishes its key, and finds that nobody waits; the other thread finds that the key is
/// held, and sleeps. It shows as a deadlock.
#[test]
fn the_end_of_a_delivery_wakes_who_waits_for_its_group() {
    check("leaving_done", 3, || {
        let queue = queue_of(|builder| builder.group_by(|key: &u8| key / 10));
        queue.add(1);
        let worker = spawn_with(&queue, |queue| queue.get().unwrap().done());
        let left = queue.drain_group(&0_u8, Duration::MAX).unwrap();
        assert!(left.is_nothing(), "{left:?}");
        worker.join().unwrap();
    });
}

/// The same of a key that is added again while it is held.
#[test]
fn a_key_that_is_added_again_is_waited_for_to_its_end() {
    check("leaving_again", 2, || {
        let queue = queue_of(|builder| builder.group_by(|key: &u8| key / 10));
        queue.add(1);
        let worker = spawn_with(&queue, |queue| {
            let item = queue.get().unwrap();
            assert_eq!(queue.add(1), Added::Deferred);
            item.done();
            queue.get().unwrap().done();
        });
        let left = queue.drain_group(&0_u8, Duration::MAX).unwrap();
        assert!(left.is_nothing(), "{left:?}");
        worker.join().unwrap();
    });
}

/// S12. A delay ends beside a call that takes the group back: its value is taken, or delivered.
#[test]
fn a_delay_that_ends_as_its_group_is_taken_back_is_taken_or_delivered() {
    check("leaving_fire", 3, || {
        let (queue, time) = grouped();
        queue.entry(1).after(NS).put(bag(1));
        time.advance(MS);
        let driver = spawn_with(&queue, |queue| (queue.fire_due(), drain(queue).concat()));
        let mut all = take(&queue);
        let (_, delivered) = driver.join().unwrap();
        all.extend(delivered);
        all.extend(drain(&queue).concat());
        assert_eq!(all, [1]);
        assert_eq!(queue.counts().delayed, 0);
    });
}

/// S12. A key fails, and more is put for it, beside a call that takes its group back: each number is taken or delivered once.
#[test]
fn a_retry_and_a_put_beside_a_call_that_takes_their_group_back() {
    check("leaving_retry", 2, || {
        let (queue, time) = grouped();
        queue.put(1, bag(1));
        let item = queue.try_get().unwrap();
        let taker = spawn_with(&queue, take);
        queue.put(1, bag(2));
        assert!(item.retry_after(NS).is_accepted());
        let mut all = taker.join().unwrap();
        time.advance(MS);
        queue.fire_due();
        all.extend(drain(&queue).concat());
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

/// S12, C5. The value for which a key in hand is dirty is taken back beside the end of the delivery: the key is idle then, or was
/// queued and is taken.
#[test]
fn a_value_of_a_key_in_hand_that_is_taken_back_with_its_group_beside_a_done() {
    check("leaving_dirty", 3, || {
        let (queue, _time) = grouped();
        queue.put(1, bag(1));
        let item = queue.try_get().unwrap();
        queue.put(1, bag(2));
        let taker = spawn_with(&queue, take);
        item.done();
        let all = taker.join().unwrap();
        assert_eq!([all, drain(&queue).concat()].concat(), [2]);
        assert_eq!(queue.put(1, bag(3)), Added::Queued, "idle");
    });
}

/// G8. A key that is queued and delayed is taken back with its group beside a getter. Interleaving: the call passes its delay over,
/// since that goes with its entry, which the getter takes.
#[test]
fn a_delay_of_a_queued_key_is_taken_back_or_stays_beside_a_getter() {
    check("leaving_queued", 3, || {
        let (clock, _time) = Clock::mock();
        let queue = queue_of(|builder| {
            let builder = builder.clock(clock).manual_timers();
            builder.group_by(|key: &u8| key / 10)
        });
        queue.add_after(1, NS);
        queue.add(1);
        let getter = spawn_with(&queue, |queue| queue.try_get().map(drop).is_ok());
        let taken = queue.take_group(&0_u8).unwrap().len();
        getter.join().unwrap();
        assert_eq!(taken + queue.counts().delayed, 1);
    });
}

/// C2, C5. A group is taken back beside an add and a getter: its key is delivered or taken, once for each add that queued it.
#[test]
fn a_group_that_is_taken_back_beside_an_add_and_a_getter() {
    check("leaving_add", 2, || {
        let queue = queue_of(|builder| builder.group_by(|key: &u8| key / 10));
        queue.add(1);
        let adder = spawn_with(&queue, |queue| usize::from(queue.add(1) != Added::Merged));
        let getter = spawn_with(&queue, |queue| queue.try_get().map(drop).is_ok());
        let taken = queue.take_group(&0_u8).unwrap().len();
        let queued = 1 + adder.join().unwrap();
        let got = usize::from(getter.join().unwrap());
        assert_eq!(
            taken + got + iter::from_fn(|| queue.try_get().ok()).count(),
            queued
        );
    });
}
