//! Futures of a get that are kept and not polled: their notifications are passed on (C9).

use std::sync::LazyLock;
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;

use crate::common::{WakeCount, eventually, poll, waiting, watchdog};
use keyqueue::WorkQueue;

// C9
#[test]
fn a_future_that_is_kept_unpolled_delays_a_key_until_the_next_add_at_most() {
    let queue = WorkQueue::new();
    let mut kept = queue.get_async();
    assert!(poll(&mut kept, Waker::noop()).is_pending());
    let (counts, wakers): (Vec<_>, Vec<_>) = (0..2).map(|_| WakeCount::new()).unzip();
    let mut waiters = [queue.get_async(), queue.get_async()];
    for (waiter, waker) in waiters.iter_mut().zip(&wakers) {
        assert!(poll(waiter, waker).is_pending());
    }
    // The kept future is notified of the first key, and does not act on it.
    queue.add(1);
    assert_eq!([counts[0].get(), counts[1].get()], [0, 0]);
    queue.add(2);
    assert_eq!([counts[0].get(), counts[1].get()], [1, 0]);
    let Poll::Ready(Some(first)) = poll(&mut waiters[0], &wakers[0]) else {
        panic!("two keys are queued")
    };
    assert_eq!(*first, 1);
    // The first waiter has overtaken the kept future, and makes up for it.
    assert_eq!(counts[1].get(), 1);
    let Poll::Ready(Some(second)) = poll(&mut waiters[1], &wakers[1]) else {
        panic!("a key is queued")
    };
    assert_eq!(*second, 2);
    assert!(poll(&mut kept, Waker::noop()).is_pending());
}

// C9
#[test]
fn a_forgotten_future_costs_threads_no_key() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    for _ in 0..10 {
        let mut forgotten = queue.get_async();
        assert!(poll(&mut forgotten, Waker::noop()).is_pending());
        std::mem::forget(forgotten);
    }
    thread::scope(|scope| {
        let worker = scope.spawn(|| std::iter::from_fn(|| queue.get()).count());
        eventually("the worker waits", || waiting(&queue) == 11);
        for key in 0..100 {
            queue.add(key);
        }
        eventually("all are delivered", || queue.is_empty());
        queue.shut_down();
        assert_eq!(worker.join().expect("no panic"), 100);
    });
}

// C9 S1: no add comes after a shut-down that would make up for the kept future.
#[test]
fn a_shut_down_wakes_those_who_wait_behind_a_future_that_is_kept_unpolled() {
    let queue = WorkQueue::new();
    queue.add(1);
    let item = queue.try_get().expect("a key is queued");
    queue.add(1);
    let mut kept = queue.get_async();
    assert!(poll(&mut kept, Waker::noop()).is_pending());
    let (count, waker) = WakeCount::new();
    let mut waiter = queue.get_async();
    assert!(poll(&mut waiter, &waker).is_pending());
    // The kept future is notified of this key.
    queue.add(2);
    assert_eq!(count.get(), 0);
    queue.shut_down();
    assert_eq!(count.get(), 1);
    let Poll::Ready(Some(second)) = poll(&mut waiter, &waker) else {
        panic!("a key is queued")
    };
    assert_eq!(*second, 2);
    let mut waiter = queue.get_async();
    assert!(poll(&mut waiter, &waker).is_pending());
    // A key that was dirty at the shut-down wakes the getter that still waits.
    item.done();
    assert_eq!(count.get(), 2);
    let Poll::Ready(Some(first)) = poll(&mut waiter, &waker) else {
        panic!("a key is queued")
    };
    assert_eq!(*first, 1);
    drop(kept);
}

/// The queue of the waker below.
static QUEUE: LazyLock<WorkQueue<u32>> = LazyLock::new(WorkQueue::new);

/// A waker that adds a key when it is cloned: when a future stores it, after it has found the queue
/// empty and before it is on the list.
fn adds_when_cloned() -> Waker {
    const VTABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});
    fn clone(_: *const ()) -> RawWaker {
        QUEUE.add(1);
        RawWaker::new(std::ptr::null(), &VTABLE)
    }
    // SAFETY: none of the functions uses the pointer.
    unsafe { Waker::new(std::ptr::null(), &VTABLE) }
}

// C9
#[test]
fn a_finished_future_that_is_kept_takes_no_notification() {
    let mut kept = QUEUE.get_async();
    // It finds the key at its second look.
    let Poll::Ready(Some(item)) = poll(&mut kept, &adds_when_cloned()) else {
        panic!("a key was added")
    };
    item.done();
    let (count, waker) = WakeCount::new();
    let mut waiter = QUEUE.get_async();
    assert!(poll(&mut waiter, &waker).is_pending());
    QUEUE.add(2);
    assert_eq!(count.get(), 1);
    drop((kept, waiter));
}
