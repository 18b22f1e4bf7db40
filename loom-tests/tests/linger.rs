//! Getters that linger: `src/wait/linger.rs` and `src/engine/lingering.rs`.
//!
//! A lost wake-up shows as a deadlock, which loom reports.
#![cfg(keyqueue_loom)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use keyqueue::{Builder, UpTo, WorkQueue};
use keyqueue_loom_tests::{Settings, check, delayed_queue, spawn_with};
use loom::future::block_on;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// C12. Interleaving: the getter puts itself on the list, and sees one key; the adder pushes the second one, and
/// counts it for a getter that does not yet know how many are missing; the getter says that it expects one.
#[test]
fn the_key_that_fills_a_batch_wakes_its_getter() {
    check("linger_full", 3, || {
        let (queue, _time) = delayed_queue(Builder::manual_timers);
        queue.add(1);
        let adder = spawn_with(&queue, |queue| queue.add(2));
        let batch = queue.get_batch(UpTo::new(2).linger(HOUR)).unwrap();
        assert!(batch.iter().map(|item| **item).eq([1, 2]));
        adder.join().unwrap();
    });
}

/// C12, G6. Interleaving: the getter looks, and sees one key; the group of two others is released, which wakes whoever
/// is on the list; the getter puts itself on the list, or says how many keys it expects.
#[test]
fn what_becomes_deliverable_by_a_release_wakes_a_getter_that_lingers() {
    check("linger_release", 3, || {
        let set = |builder: Settings| builder.manual_timers().group_by(|key| key / 10);
        let (queue, _time) = delayed_queue(set);
        assert!(queue.hold_group(&1_u8, HOUR));
        queue.add_all([1, 11, 12]);
        let releaser = spawn_with(&queue, |queue| queue.hold_group(&1_u8, Duration::ZERO));
        let batch = queue.get_batch(UpTo::new(3).linger(HOUR)).unwrap();
        assert!(batch.iter().map(|item| **item).eq([1, 11, 12]));
        assert!(releaser.join().unwrap());
    });
}

/// C9, C12. Interleaving: the lingering getter waits for a first key, then the other one waits; the add notifies
/// the first, which passes that on and lingers.
#[test]
fn a_getter_that_lingers_keeps_no_wake_up() {
    check("linger_passes", 2, || {
        let (queue, _time) = delayed_queue(Builder::manual_timers);
        let lingers = spawn_with(&queue, |queue| {
            let batch = queue.get_batch(UpTo::new(9).linger(HOUR));
            assert!(batch.is_none());
        });
        let getter = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        queue.add(1);
        assert_eq!(getter.join().unwrap(), Some(1));
        queue.shut_down();
        lingers.join().unwrap();
    });
}

/// C12, S1. Interleaving: the getter looks whether the queue is shut down; it is shut down, and wakes all getters on
/// the list; the getter puts itself on the list.
#[test]
fn a_shut_down_ends_a_linger() {
    check("linger_ends", 3, || {
        let (queue, _time) = delayed_queue(Builder::manual_timers);
        queue.add(1);
        let ender = spawn_with(&queue, WorkQueue::shut_down);
        assert_eq!(queue.get_batch(UpTo::new(9).linger(HOUR)).unwrap().len(), 1);
        ender.join().unwrap();
    });
}

/// B2, C12. Interleaving: the getter sees that there is room; an add finds none, and wakes whoever lingers; the getter
/// begins to listen for that.
#[test]
fn an_add_that_waits_for_room_ends_a_linger() {
    check("linger_room", 3, || {
        let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(2));
        queue.add(1);
        queue.add_after(3, HOUR);
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().add());
        // The second key, if there is room for it as soon as the first is taken.
        let batch = queue.get_batch(UpTo::new(9).linger(HOUR)).unwrap();
        assert!(batch.iter().zip([1, 2]).all(|(item, key)| **item == key));
        adder.join().unwrap();
    });
}

/// C12, D9. Interleaving: the driver finds nothing to do until an hour from now; the getter lingers; the clock
/// passes the end of its time; the driver goes to sleep, for good.
#[test]
fn a_linger_wakes_the_sleeping_driver() {
    check("linger_time", 2, || {
        let (queue, time) = delayed_queue(|builder| builder);
        queue.add_after(1, HOUR);
        queue.add(2);
        let mut get = pin!(queue.get_batch_async(UpTo::new(9).linger(MS / 2)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(get.as_mut().poll(&mut context).is_pending());
        time.advance(MS);
        assert_eq!(block_on(get).unwrap().len(), 1);
    });
}
