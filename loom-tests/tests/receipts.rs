//! A receipt ends whatever way it is waited for, and shows what was done before it was fired.
//!
//! A lost wake-up shows as a deadlock, which loom reports.
#![cfg(keyqueue_loom)]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keyqueue::Ended;
use keyqueue::internals::{Obligation, receipt};
use keyqueue_loom_tests::{check, spawn};
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread::JoinHandle;

/// Fires in another thread.
fn fire(obligation: Obligation) -> JoinHandle<()> {
    spawn(move || obligation.fire(Ended::Done))
}

/// Interleaving: the waiter finds no outcome; the obligation stores it and finds no waker; the
/// waiter stores its waker and sleeps.
#[test]
fn a_fired_receipt_ends_the_wait_of_a_thread() {
    check("receipt_thread", 5, || {
        let (obligation, receipt) = receipt();
        let firing = fire(obligation);
        assert_eq!(receipt.wait(), Ended::Done);
        firing.join().unwrap();
    });
}

/// Interleaving: as above, with the waker of the first poll instead of none.
#[test]
fn a_fired_receipt_wakes_the_task_that_polled_it_last() {
    check("receipt_task", 5, || {
        let (obligation, mut receipt) = receipt();
        let firing = fire(obligation);
        let mut context = Context::from_waker(Waker::noop());
        let ended = match Pin::new(&mut receipt).poll(&mut context) {
            Poll::Ready(ended) => ended,
            Poll::Pending => block_on(receipt),
        };
        assert_eq!(ended, Ended::Done);
        firing.join().unwrap();
    });
}

#[test]
fn a_dropped_obligation_ends_the_wait_of_a_thread() {
    check("receipt_dropped", 5, || {
        let (obligation, receipt) = receipt();
        let dropping = spawn(move || drop(obligation));
        assert_eq!(receipt.wait(), Ended::Dropped);
        dropping.join().unwrap();
    });
}

/// Interleaving: the obligation takes the waker of the wait that is over; the next wait stores it
/// again and sleeps.
#[test]
fn a_receipt_that_timed_out_ends_the_next_wait() {
    check("receipt_timed_out", 5, || {
        let (obligation, mut receipt) = receipt();
        let firing = fire(obligation);
        if receipt.wait_timeout(Duration::ZERO).is_none() {
            assert_eq!(receipt.wait(), Ended::Done);
        }
        firing.join().unwrap();
    });
}

/// Not by a wake-up, which would order the two threads by itself.
#[test]
fn a_thread_that_sees_the_outcome_sees_what_was_done_before() {
    check("receipt_sees", 5, || {
        let (obligation, receipt) = receipt();
        let work = Arc::new(AtomicUsize::new(0));
        let firing = spawn({
            let work = Arc::clone(&work);
            move || {
                // Ordering: Relaxed; the receipt orders it.
                work.store(1, Ordering::Relaxed);
                obligation.fire(Ended::Done);
            }
        });
        if receipt.ended().is_some() {
            // Ordering: Relaxed; the receipt orders it.
            assert_eq!(work.load(Ordering::Relaxed), 1);
        }
        firing.join().unwrap();
    });
}
