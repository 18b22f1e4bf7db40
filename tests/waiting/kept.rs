//! Futures of a get that are kept and not polled: their notifications are passed on (C9).

use std::sync::LazyLock;
use std::task::{Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;

use crate::common::{Task, eventually, poll, waiting, watchdog};
use keyqueue::WorkQueue;

#[test] // C9
fn a_future_that_is_kept_unpolled_delays_a_key_until_the_next_add_at_most() {
    let queue = WorkQueue::<u64>::new();
    let mut tasks = [(); 3].map(|()| Task::waiting(queue.get_async()));
    let [kept, first, second] = &mut tasks;
    // The kept future is notified of the first key, and does not act on it.
    queue.add(1);
    assert_eq!([first.wakes(), second.wakes()], [0, 0]);
    queue.add(2);
    assert_eq!([first.wakes(), second.wakes()], [1, 0]);
    assert_eq!(*first.output().unwrap(), 1);
    // The first waiter has overtaken the kept future, and makes up for it.
    assert_eq!(second.wakes(), 1);
    assert_eq!(*second.output().unwrap(), 2);
    kept.assert_pending();
}

#[test] // C9
fn a_forgotten_future_costs_threads_no_key() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u64>::new();
    // Neither polled nor dropped before the end.
    let _forgotten = [(); 10].map(|()| Task::waiting(queue.get_async()));
    thread::scope(|scope| {
        let worker = scope.spawn(|| queue.iter().count());
        eventually("the worker waits", || waiting(&queue) == 11);
        for key in 0..100 {
            queue.add(key);
        }
        eventually("all are delivered", || queue.is_empty());
        queue.shut_down();
        assert_eq!(worker.join().expect("no panic"), 100);
    });
}

#[test] // C9 S1: no add comes after a shut-down that would make up for the kept future.
fn a_shut_down_wakes_those_who_wait_behind_a_future_that_is_kept_unpolled() {
    let queue = WorkQueue::<u64>::new();
    queue.add(1);
    let item = queue.try_get().expect("a key is queued");
    queue.add(1);
    let _kept = Task::waiting(queue.get_async());
    let mut waiter = Task::waiting(queue.get_async());
    // The kept future is notified of this key.
    queue.add(2);
    assert_eq!(waiter.wakes(), 0);
    queue.shut_down();
    assert_eq!(waiter.wakes(), 1);
    assert_eq!(*waiter.output().unwrap(), 2);
    let mut waiter = Task::waiting(queue.get_async());
    // A key that was dirty at the shut-down wakes the getter that still waits.
    item.done();
    assert_eq!(waiter.wakes(), 1);
    assert_eq!(*waiter.output().unwrap(), 1);
}

/// The queue of the waker below.
static QUEUE: LazyLock<WorkQueue<u64>> = LazyLock::new(WorkQueue::new);

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

#[test] // C9
fn a_finished_future_that_is_kept_takes_no_notification() {
    let mut kept = QUEUE.get_async();
    // It finds the key at its second look.
    let Poll::Ready(Some(item)) = poll(&mut kept, &adds_when_cloned()) else {
        panic!("a key was added")
    };
    item.done();
    let waiter = Task::waiting(QUEUE.get_async());
    QUEUE.add(2);
    assert_eq!(waiter.wakes(), 1);
    drop(kept);
}
