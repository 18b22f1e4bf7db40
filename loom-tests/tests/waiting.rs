//! No wake-up is lost, whatever waits and whatever gives up half-way (C9).
//!
//! A lost wake-up shows as a deadlock, which loom reports.
#![cfg(keyqueue_loom)]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use keyqueue::GetError;
use keyqueue::internals::Stopper;
use keyqueue_loom_tests::{check, queue, spawn, spawn_with};
use loom::future::block_on;
use loom::sync::Arc;

/// Interleaving: the getter finds the FIFO empty; the adder pushes and finds no waiter; the getter
/// registers and sleeps.
///
/// Does not show the fence in `register`: a ring found empty has had a full fence. For the drainers, which have
/// none, see `a_drain_waits_for_what_is_queued_and_processed`.
#[test]
fn an_add_wakes_a_thread() {
    check("wake_thread", 5, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add(1));
        assert_eq!(queue.get().map(|item| *item), Some(1));
        adder.join().unwrap();
    });
}

#[test]
fn an_add_wakes_a_task() {
    check("wake_task", 5, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add(1));
        assert_eq!(block_on(queue.get_async()).map(|item| *item), Some(1));
        adder.join().unwrap();
    });
}

/// Interleaving: the task is polled with a new waker, and looks whether it has been notified; the
/// add notifies it and runs the waker of the first poll; the task stores the new one and sleeps.
#[test]
fn an_add_wakes_a_task_through_the_waker_of_its_last_poll() {
    check("new_waker", 5, || {
        let queue = queue(2);
        let adder = spawn_with(&queue, |queue| queue.add(1));
        let mut task = queue.get_async();
        let mut context = Context::from_waker(Waker::noop());
        let item = match pin!(&mut task).poll(&mut context) {
            Poll::Ready(item) => item,
            Poll::Pending => block_on(task),
        };
        assert_eq!(item.map(|item| *item), Some(1));
        adder.join().unwrap();
    });
}

/// Whether a waker was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two adds wake two waiters, with a ring for this many keys.
fn two_adds_wake(name: &str, preemptions: usize, ring: usize) {
    check(name, preemptions, move || {
        let queue = queue(ring);
        let task = spawn_with(&queue, |queue| {
            block_on(queue.get_async()).expect("not shut down").done();
        });
        let adder = spawn_with(&queue, |queue| {
            queue.add(1);
            queue.add(2);
        });
        queue.get().expect("not shut down").done();
        task.join().unwrap();
        adder.join().unwrap();
    });
}

#[test]
fn two_adds_wake_two_waiters() {
    two_adds_wake("two_waiters", 2, 2);
}

#[test]
fn an_add_that_overflows_wakes_a_waiter() {
    two_adds_wake("two_waiters_overflow", 1, 1);
}

/// Interleaving: the task registers, then the thread; the add notifies the task; it is dropped
/// unpolled; the thread sleeps beside the key.
#[test]
fn a_dropped_task_passes_its_wake_up_on() {
    check("dropped_task", 2, || {
        let queue = queue(2);
        let getter = spawn_with(&queue, |queue| queue.get().expect("not shut down").done());
        let adder = spawn_with(&queue, |queue| queue.add(1));
        let mut task = queue.get_async();
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(item) = pin!(&mut task).poll(&mut context) {
            // It was quick: then there must be another key for the other one.
            drop(item);
            queue.add(2);
        }
        drop(task);
        getter.join().unwrap();
        adder.join().unwrap();
    });
}

/// Interleaving: three adds notify three tasks of four. Two of them take a key each, the second of
/// which moves the third key from the overflow to the ring; meanwhile the third task is dropped,
/// looks at the ring (empty yet), and at the overflow (empty already).
#[test]
fn a_task_dropped_during_a_refill_passes_its_wake_up_on() {
    check("dropped_refill", 5, || {
        let queue = queue(1);
        let woken = std::sync::Arc::new(Woken::default());
        let waker = Waker::from(std::sync::Arc::clone(&woken));
        let wakers = [Waker::noop(), Waker::noop(), Waker::noop(), &waker];
        let [one, two, dropped, _last] = wakers.map(|waker| {
            let queue = Arc::clone(&queue);
            let mut task = Box::pin(async move { queue.get_async().await.map(|item| *item) });
            let polled = task.as_mut().poll(&mut Context::from_waker(waker));
            assert_eq!(polled, Poll::Pending);
            task
        });
        (1..=3).for_each(|key| _ = queue.add(key));
        let getters = spawn(move || {
            for (mut task, key) in [(one, 1), (two, 2)] {
                let mut context = Context::from_waker(Waker::noop());
                assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(Some(key)));
            }
        });
        drop(dropped);
        getters.join().unwrap();
        assert!(
            woken.0.load(Ordering::Relaxed),
            "3 is queued, and no task was woken"
        );
    });
}

/// Interleaving: as above, with a thread whose time is over in place of the task.
#[test]
fn a_timed_out_thread_keeps_no_wake_up() {
    check("timed_out", 2, || {
        let queue = queue(2);
        let getter = spawn_with(&queue, |queue| queue.get().expect("not shut down").done());
        let adder = spawn_with(&queue, |queue| queue.add(1));
        match queue.get_timeout(Duration::ZERO) {
            Ok(item) => {
                drop(item);
                queue.add(2);
            }
            Err(error) => assert_eq!(error, GetError::Empty),
        }
        getter.join().unwrap();
        adder.join().unwrap();
    });
}

/// A `done` that queues a dirty key again wakes a waiter like an add.
#[test]
fn a_done_that_queues_again_wakes_a_waiter() {
    check("requeue_wakes", 5, || {
        let queue = queue(2);
        queue.add(1);
        let worker = spawn_with(&queue, |queue| {
            if let Ok(item) = queue.try_get() {
                queue.add(1);
                item.done();
            }
        });
        queue.get().expect("not shut down").done();
        worker.join().unwrap();
    });
}

/// Interleaving: the worker reads the flag; it is set, and the worker is woken; the worker sleeps.
#[test]
fn a_stop_wakes_a_worker_that_waits() {
    check("stop_wakes", 5, || {
        let queue = queue(2);
        let stopper = Arc::new(Stopper::new());
        let worker = spawn_with(&stopper, move |stopper| {
            assert!(stopper.get(&queue).is_none());
        });
        stopper.stop();
        worker.join().unwrap();
    });
}

/// Interleaving: the worker registers, then the thread; the add notifies the worker, which is
/// stopped before it looks at the queue.
#[test]
fn a_stopped_worker_passes_its_wake_up_on() {
    check("stopped_worker", 2, || {
        let queue = queue(2);
        let getter = spawn_with(&queue, |queue| queue.get().expect("not shut down").done());
        let stopper = Arc::new(Stopper::new());
        let worker = spawn_with(&stopper, {
            let queue = Arc::clone(&queue);
            move |stopper| {
                if let Some(item) = stopper.get(&queue) {
                    drop(item);
                    queue.add(2);
                }
            }
        });
        queue.add(1);
        stopper.stop();
        worker.join().unwrap();
        getter.join().unwrap();
    });
}
