//! No wake-up is lost, whoever waits and whoever gives up half-way (C9).
//!
//! A lost wake-up shows as a deadlock, which loom reports.
#![cfg(keyqueue_loom)]

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keyqueue::GetTimeoutError;
use keyqueue_loom_tests::{check, queue};
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

/// Interleaving: the getter finds the FIFO empty; the adder pushes and finds no waiter; the getter
/// registers and sleeps.
///
/// Fails without either fence of `wait.rs`, and without the second look after registering.
#[test]
fn an_add_wakes_a_thread() {
    check("wake_thread", 5, || {
        let queue = queue(2);
        let adder = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.add(1))
        };
        assert_eq!(queue.get().map(|item| *item), Some(1));
        adder.join().unwrap();
    });
}

/// Fails as the model above, and without the acquiring look at `notified` after the waker is
/// stored.
#[test]
fn an_add_wakes_a_task() {
    check("wake_task", 5, || {
        let queue = queue(2);
        let adder = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.add(1))
        };
        assert_eq!(block_on(queue.get_async()).map(|item| *item), Some(1));
        adder.join().unwrap();
    });
}

/// Fails when `add` of a second key notifies nobody, or `notify` does not take the waiter off.
#[test]
fn two_adds_wake_two_waiters() {
    check("two_waiters", 2, || {
        let queue = queue(2);
        let task = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                block_on(queue.get_async()).expect("not shut down").done();
            })
        };
        let adder = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.add(1);
                queue.add(2);
            })
        };
        queue.get().expect("not shut down").done();
        task.join().unwrap();
        adder.join().unwrap();
    });
}

/// Interleaving: the task registers; the add notifies it; it is dropped unpolled; the thread
/// sleeps beside the key.
///
/// Fails when `GetAsync`'s drop does not pass the notification on.
#[test]
fn a_dropped_task_passes_its_wake_up_on() {
    check("dropped_task", 2, || {
        let queue = queue(2);
        let task = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let future = pin!(queue.get_async());
                let mut context = Context::from_waker(Waker::noop());
                if let Poll::Ready(item) = future.poll(&mut context) {
                    // It was quick: then there must be another key for the other one.
                    drop(item);
                    queue.add(2);
                }
            })
        };
        let adder = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.add(1))
        };
        queue.get().expect("not shut down").done();
        task.join().unwrap();
        adder.join().unwrap();
    });
}

/// Interleaving: as above, with a thread whose time is over in place of the task.
///
/// Fails when a getter that times out neither looks again nor passes its notification on.
#[test]
fn a_timed_out_thread_keeps_no_wake_up() {
    check("timed_out", 2, || {
        let queue = queue(2);
        let timed = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match queue.get_timeout(Duration::ZERO) {
                Ok(item) => {
                    drop(item);
                    queue.add(2);
                }
                Err(error) => assert_eq!(error, GetTimeoutError::Timeout),
            })
        };
        let adder = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.add(1))
        };
        queue.get().expect("not shut down").done();
        timed.join().unwrap();
        adder.join().unwrap();
    });
}

/// A `done` that queues a dirty key again wakes a waiter like an add.
///
/// Fails when `finish` pushes without notifying.
#[test]
fn a_done_that_queues_again_wakes_a_waiter() {
    check("requeue_wakes", 5, || {
        let queue = queue(2);
        queue.add(1);
        let worker = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                if let Ok(item) = queue.try_get() {
                    queue.add(1);
                    item.done();
                }
            })
        };
        queue.get().expect("not shut down").done();
        worker.join().unwrap();
    });
}
