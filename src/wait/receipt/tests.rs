//! Receipts fired, dropped and waited for, in one thread and in races.

use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::thread;

use super::*;
use crate::scaled::scaled;
use crate::wait::tests::Bell;

fn poll(receipt: &mut Receipt, waker: &Waker) -> Poll<Ended> {
    Pin::new(receipt).poll(&mut Context::from_waker(waker))
}

#[track_caller]
fn assert_ended(mut receipt: Receipt, ended: Ended) {
    for _ in 0..2 {
        assert_eq!(receipt.ended(), Some(ended));
        assert_eq!(poll(&mut receipt, Waker::noop()), Poll::Ready(ended));
        assert_eq!(receipt.wait_timeout(Duration::ZERO), Some(ended));
    }
    assert_eq!(receipt.wait(), ended);
}

#[test]
fn a_receipt_returns_what_it_was_fired_with_each_time() {
    for ended in ENDS {
        let (obligation, receipt) = receipt();
        obligation.fire(ended);
        assert_ended(receipt, ended);
    }
}

#[test]
fn a_dropped_obligation_fires() {
    let (obligation, mut receipt) = receipt();
    let bell = Bell::default();
    assert!(poll(&mut receipt, &bell.waker()).is_pending());
    drop(obligation);
    assert_eq!(bell.rings(), 1);
    assert_ended(receipt, Ended::Dropped);
}

#[test]
fn a_receipt_waits_until_it_is_fired_and_wakes_the_last_waker_once() {
    let (obligation, mut receipt) = receipt();
    let [earlier, later] = [(); 2].map(|()| Bell::default());
    assert_eq!(format!("{receipt:?}"), "Receipt(None)");
    assert_eq!(receipt.ended(), None);
    assert!(poll(&mut receipt, &earlier.waker()).is_pending());
    assert!(poll(&mut receipt, &later.waker()).is_pending());
    obligation.fire(Ended::Done);
    assert_eq!((earlier.rings(), later.rings()), (0, 1));
    assert_eq!(format!("{receipt:?}"), "Receipt(Some(Done))");
}

#[test]
fn a_receipt_that_timed_out_can_be_waited_for_again() {
    let (obligation, mut receipt) = receipt();
    assert_eq!(receipt.wait_timeout(Duration::ZERO), None);
    assert_eq!(receipt.wait_timeout(Duration::from_millis(1)), None);
    thread::scope(|scope| {
        scope.spawn(|| obligation.fire(Ended::GivenUp));
        assert_eq!(receipt.wait_timeout(Duration::MAX), Some(Ended::GivenUp));
    });
}

#[test]
fn a_waker_that_panics_does_not_stop_the_thread_that_fires() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("the task is broken"));
        }
    }
    let waker = Waker::from(Arc::new(Panics));
    let pairs = [(); 3].map(|()| receipt());
    let ended = pairs.map(|(obligation, mut receipt)| {
        assert!(poll(&mut receipt, &waker).is_pending());
        obligation.fire(Ended::Done);
        receipt.ended()
    });
    assert_eq!(ended, [Some(Ended::Done); 3]);
}

// The delivery may be far away.
#[test]
fn a_dropped_receipt_releases_its_waker() {
    let (obligation, mut receipt) = receipt();
    let bell = Bell::default();
    assert!(poll(&mut receipt, &bell.waker()).is_pending());
    assert!(bell.has_waker());
    drop(receipt);
    assert!(!bell.has_waker());
    obligation.fire(Ended::Done);
    assert_eq!(bell.rings(), 0);
}

/// Waits in one thread while another fires, in a race, many times.
#[track_caller]
fn race(wait: impl Fn(Receipt) -> Ended) {
    const ROUNDS: usize = scaled(20_000);
    let (send, obligations) = mpsc::channel::<(Obligation, Ended)>();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (obligation, ended) in obligations {
                obligation.fire(ended);
            }
        });
        for round in 0..ROUNDS {
            let (obligation, receipt) = receipt();
            let ended = ENDS[round % ENDS.len()];
            send.send((obligation, ended)).unwrap();
            assert_eq!(wait(receipt), ended);
        }
        drop(send);
    });
}

#[test]
fn no_thread_misses_a_receipt() {
    race(Receipt::wait);
}

#[test]
fn no_thread_with_a_time_limit_misses_a_receipt() {
    race(|mut receipt| {
        loop {
            if let Some(ended) = receipt.wait_timeout(Duration::from_micros(1)) {
                return ended;
            }
        }
    });
}

#[test]
fn no_task_misses_a_receipt() {
    race(pollster::block_on);
}
