//! Shutting down beside adds, getters, workers and drainers (S1 to S5, S8).
#![cfg(keyqueue_loom)]

use std::time::Duration;

use keyqueue::{GetError, WorkQueue};
use keyqueue_loom_tests::{Queue, check, delayed_queue, queue, spawn, spawn_with};
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

fn work_until_the_end(queue: &Queue) -> usize {
    let mut deliveries = 0;
    while let Some(item) = queue.get() {
        deliveries += 1;
        item.done();
    }
    deliveries
}

/// Shuts the queue down beside a worker and an adder of one key, which returns whether the add was accepted.
fn shut_down_beside(queue: &Arc<Queue>, adder: thread::JoinHandle<bool>) {
    let worker = spawn_with(queue, work_until_the_end);
    queue.shut_down();
    let accepted = adder.join().unwrap();
    let delivered = worker.join().unwrap();
    assert_eq!(delivered, usize::from(accepted));
}

/// S1, C5. An add beside a shut-down is either refused or delivered before the end.
#[test]
fn an_add_beside_a_shut_down_is_refused_or_delivered() {
    check("shut_down_add", 3, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add(1).is_accepted());
        shut_down_beside(&queue, adder);
    });
}

/// S1, C11. The same through a handle, which takes no lock.
#[test]
fn an_add_through_a_handle_beside_a_shut_down_is_refused_or_delivered() {
    check("shut_down_handle", 3, || {
        let queue = queue(2);
        let handle = queue.handle(1);
        let adder = spawn(move || handle.add().is_accepted());
        shut_down_beside(&queue, adder);
    });
}

/// S1, C5. The same for a key that is interned and idle, so that its own word decides.
#[test]
fn an_add_of_an_idle_key_beside_a_shut_down_is_refused_or_delivered() {
    check("shut_down_idle", 5, || {
        let queue = queue(2);
        queue.add(1);
        queue.try_get().unwrap().done();
        let adder = spawn_with(&queue, |queue| queue.add(1).is_accepted());
        queue.shut_down();
        let delivered = work_until_the_end(&queue);
        let accepted = adder.join().unwrap();
        assert!(queue.is_empty());
        assert_eq!(delivered, usize::from(accepted));
    });
}

/// S1, C11. Interleaving: an add finds the queue open; the shut-down walks; a handle interns the
/// key; the add finds it there and looks at its word alone.
#[test]
fn an_add_beside_a_shut_down_and_a_new_handle_is_refused_or_delivered() {
    check("shut_down_new_handle", 3, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add(1).is_accepted());
        let handle = spawn_with(&queue, |queue| queue.handle(1));
        queue.shut_down();
        let delivered = work_until_the_end(&queue);
        let accepted = adder.join().unwrap();
        assert_eq!(delivered, usize::from(accepted));
        assert!(!handle.join().unwrap().add().is_accepted());
    });
}

/// S2. A key made dirty before the shut-down is delivered again, and no getter ends before that.
#[test]
fn a_dirty_key_is_delivered_after_a_shut_down() {
    check("shut_down_dirty", 5, || {
        let queue = queue(2);
        queue.add(1);
        let item = queue.try_get().unwrap();
        queue.add(1);
        let getter = spawn_with(&queue, |queue| queue.get().map(|item| *item));
        queue.shut_down();
        item.done();
        assert_eq!(getter.join().unwrap(), Some(1));
        assert!(queue.get().is_none());
    });
}

/// S1. Every getter that waits is woken, thread or task.
#[test]
fn a_shut_down_wakes_every_waiting_getter() {
    check("shut_down_getters", 2, || {
        let queue = queue(2);
        let getter = spawn_with(&queue, |queue| queue.get().is_none());
        let task = spawn_with(&queue, |queue| block_on(queue.get_async()).is_none());
        queue.shut_down();
        assert!(getter.join().unwrap());
        assert!(task.join().unwrap());
    });
}

/// S1, S2. The delivery of the last key ends the waiting of every other getter.
#[test]
fn the_last_delivery_after_a_shut_down_wakes_the_other_getter() {
    check("last_delivery", 3, || {
        let queue = queue(2);
        queue.add(1);
        let item = queue.try_get().unwrap();
        queue.add(1);
        queue.shut_down();
        let other = spawn_with(&queue, work_until_the_end);
        item.done();
        let deliveries = work_until_the_end(&queue);
        assert_eq!(deliveries + other.join().unwrap(), 1);
    });
}

/// S3. A drain returns when everything is done, and not before.
#[test]
fn a_drain_waits_for_what_is_queued_and_processed() {
    check("drain", 3, || {
        let queue = queue(2);
        queue.add(1);
        queue.add(2);
        let worker = spawn_with(&queue, work_until_the_end);
        queue.shut_down_with_drain();
        assert!(queue.is_empty());
        assert!(queue.drain_timeout(Duration::ZERO).is_finished());
        assert_eq!(worker.join().unwrap(), 2);
    });
}

/// S3. An add beside a drain is refused, or done before the drain returns.
#[test]
fn an_add_beside_a_drain_is_refused_or_drained() {
    check("drain_add", 3, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add(1).is_accepted());
        let worker = spawn_with(&queue, work_until_the_end);
        queue.shut_down_with_drain();
        let left = queue.shut_down();
        assert!(left.is_nothing(), "{left:?}");
        assert_eq!(worker.join().unwrap(), usize::from(adder.join().unwrap()));
    });
}

/// S3. Two drainers, a thread and a task: both return.
#[test]
fn every_drainer_returns() {
    check("two_drainers", 3, || {
        let queue = queue(2);
        queue.add(1);
        let item = queue.try_get().unwrap();
        let drainer = spawn_with(&queue, |queue| block_on(queue.drain_async()));
        let second = spawn_with(&queue, WorkQueue::shut_down_with_drain);
        item.done();
        drainer.join().unwrap();
        second.join().unwrap();
    });
}

/// S4. A shut-down releases a drainer that waits for a key that is not finished.
#[test]
fn a_shut_down_releases_a_drainer() {
    check("release", 5, || {
        let queue = queue(2);
        queue.add(1);
        let item = queue.try_get().unwrap();
        let drainer = spawn_with(&queue, |queue| queue.drain_timeout(Duration::MAX));
        // A shut-down releases the drainers that wait already, so repeat it until that is the case.
        while !queue.is_shutting_down() {
            thread::yield_now();
        }
        queue.shut_down();
        assert!(!drainer.join().unwrap().is_finished());
        item.done();
    });
}

/// S5. Of two shut-downs at once both report the dropped delay.
#[test]
fn every_shut_down_reports_the_dropped_delay() {
    check("two_shut_downs", 3, || {
        let (queue, _time) = delayed_queue(keyqueue::Builder::manual_timers);
        queue.add_after(1, Duration::from_nanos(1));
        let other = spawn_with(&queue, WorkQueue::shut_down);
        assert_eq!(queue.shut_down().delayed, 1);
        assert_eq!(other.join().unwrap().delayed, 1);
    });
}

/// S1. A task that waits for a shut-down is woken.
#[test]
fn a_shut_down_wakes_a_task_that_waits_for_it() {
    check("closed", 5, || {
        let queue = queue(2);
        let task = spawn_with(&queue, |queue| block_on(queue.closed()));
        queue.shut_down();
        task.join().unwrap();
    });
}

/// S8. A queued key is delivered or discarded, and none is delivered afterwards; the getter ends.
#[test]
fn a_queued_key_is_delivered_or_discarded() {
    check("now_getter", 3, || {
        let queue = queue(2);
        queue.add(1);
        let getter = spawn_with(&queue, work_until_the_end);
        let left = queue.shut_down_now();
        assert_eq!(queue.try_get().err(), Some(GetError::ShutDown));
        assert_eq!(getter.join().unwrap() + left.queued, 1);
        assert!(queue.shut_down_with_drain().is_finished());
    });
}

/// S8. A dirty key is delivered once more before, or not at all; the getter and the drainer end.
#[test]
fn a_dirty_key_is_delivered_again_or_discarded() {
    check("now_dirty", 3, || {
        let queue = queue(2);
        queue.add(1);
        let item = queue.try_get().unwrap();
        queue.add(1);
        let ender = spawn_with(&queue, |queue| {
            let left = queue.shut_down_now();
            assert_eq!(queue.try_get().err(), Some(GetError::ShutDown));
            left
        });
        item.done();
        let delivered = work_until_the_end(&queue);
        let left = ender.join().unwrap();
        assert!(delivered + left.queued <= 1, "{delivered}, {left:?}");
        assert!(delivered + left.queued + left.processing >= 1, "{left:?}");
        assert!(queue.shut_down_with_drain().is_finished());
    });
}

/// S8. A drain beside an adder of an idle key, with nobody who gets: it waits for no key that the
/// adder is about to push.
#[test]
fn a_drain_does_not_wait_for_a_key_that_is_discarded_before_it_is_pushed() {
    check("now_adder", 3, || {
        let queue = queue(2);
        let handle = queue.handle(1);
        let adder = spawn(move || handle.add().is_accepted());
        let left = queue.shut_down_now();
        assert!(queue.shut_down_with_drain().is_finished());
        assert_eq!(usize::from(adder.join().unwrap()), left.queued);
        assert!(queue.shut_down().is_nothing());
        assert!(queue.get().is_none());
        assert!(queue.is_empty());
    });
}

/// S3, S8. A drainer returns once the last item is done, whoever counts last.
#[test]
fn a_drainer_returns_when_the_rest_is_discarded() {
    check("now_drainer", 2, || {
        let queue = queue(2);
        queue.add(1);
        queue.add(2);
        let item = queue.try_get().unwrap();
        let drainer = spawn_with(&queue, |queue| block_on(queue.drain_async()));
        let ender = spawn_with(&queue, WorkQueue::shut_down_now);
        item.done();
        assert_eq!(ender.join().unwrap().queued, 1);
        assert!(drainer.join().unwrap().is_finished());
    });
}
