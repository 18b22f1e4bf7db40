//! How long drains deliver keys again that are retried: the last one that is out of time or is dropped ends that, for
//! all of them (S11, S16).

use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

use crate::common::timed::HOUR;
use crate::common::{Task, poll};
use keyqueue::{Added, LeftReason, Remaining, WorkQueue};

type Queue = WorkQueue<u64>;

/// A drain, to be polled by hand.
type Drain<'q> = Pin<Box<dyn Future<Output = Remaining> + 'q>>;

fn queue() -> Queue {
    let queue = WorkQueue::builder().drain_delays(true).build().unwrap();
    queue.add(1);
    queue
}

/// Begins two drains.
fn drains(queue: &Queue) -> [Drain<'_>; 2] {
    let mut drains: [Drain<'_>; 2] = [(); 2].map(|()| Box::pin(queue.drain_async()) as _);
    for drain in &mut drains {
        assert!(poll(drain, Waker::noop()).is_pending());
    }
    drains
}

fn assert_refused(queue: &Queue, added: Added) {
    assert_eq!(added, Added::ShutDown);
    assert!(queue.get().is_none());
    let left = queue.take_left();
    assert_eq!((left.len(), left[0].reason), (1, LeftReason::Refused));
}

#[test] // S11 S16
fn a_drain_that_is_dropped_delivers_nothing_again() {
    let queue = queue();
    let item = queue.get().unwrap();
    let mut drain = Box::pin(queue.drain_async());
    assert!(poll(&mut drain, Waker::noop()).is_pending());
    let mut getter = Task::waiting(queue.get_async());
    drop(drain);
    assert_eq!(getter.wakes(), 1, "nothing will come");
    assert!(getter.output().is_none());
    assert_refused(&queue, item.retry_after(HOUR));
}

#[test] // S11 S16
fn a_drain_that_was_not_polled_ends_no_redelivery() {
    let queue = queue();
    let mut item = queue.get().unwrap();
    let [first, second] = drains(&queue);
    drop(queue.drain_async());
    drop(second);
    assert_eq!(item.retry(), Added::Deferred);
    item = queue.get().unwrap();
    drop(first);
    assert_refused(&queue, item.retry());
}

#[test] // S11 S16
fn of_several_drains_the_last_that_ends_or_is_dropped_ends_the_redelivery() {
    for reversed in [false, true] {
        let queue = queue();
        let mut drains = Vec::from(drains(&queue));
        if reversed {
            drains.reverse();
        }
        while !drains.is_empty() {
            // A probe ends neither.
            let probed = queue.drain_timeout(Duration::ZERO);
            assert!(!probed.is_finished());
            assert_eq!(queue.get().unwrap().retry_after(HOUR), Added::Deferred);
            drop(drains.remove(0));
        }
        let item = queue.get().unwrap();
        // It does not come back: getters may have ended.
        let mut late = Box::pin(queue.drain_async());
        assert!(poll(&mut late, Waker::noop()).is_pending());
        assert_refused(&queue, item.retry());
        assert!(poll(&mut late, Waker::noop()).is_ready());
    }
}

#[test] // S4 S11 S16
fn a_drain_that_is_dropped_after_another_end_changes_nothing() {
    let queue = queue();
    let item = queue.get().unwrap();
    let [first, second] = drains(&queue);
    queue.shut_down();
    let [third, fourth] = [(); 2].map(|()| {
        let mut drain = Box::pin(queue.drain_async());
        assert!(poll(&mut drain, Waker::noop()).is_pending());
        drain
    });
    drop((first, third));
    assert_refused(&queue, item.retry());
    drop((second, fourth));
    assert!(queue.drain_timeout(HOUR).is_finished());
}
