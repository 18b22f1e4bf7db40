//! client-go's test of its rate-limiting queue, and the cases about delays that its suite leaves
//! open. The test advances the clock.
//!
//! What Go tests of its delaying queue is in `clock.rs` (TestSimpleQueue, TestAddTwoFireEarly,
//! TestCopyShifting) and in `rules.rs` (TestDeduping).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, MS, NS, after, ms, secs, timed};
use crate::common::{eventually, watchdog};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::{Added, Clock, MockClock, TryGetError, WorkQueue};

/// A queue that backs off from 1 ms.
fn limited() -> (
    WorkQueue<&'static str, ItemExponentialFailure<&'static str>>,
    MockClock,
) {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(MS, secs(1)).expect("in range");
    let limiter = limiter.with_clock(clock.clone());
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    (builder.rate_limiter(limiter).build().unwrap(), time)
}

#[test] // L1 L2
fn test_rate_limiting_queue() {
    let (queue, time) = limited();
    queue.add_rate_limited("one"); // ready at 1 ms
    assert!(after(&queue, &time, MS - NS).is_empty());
    assert_eq!(after(&queue, &time, NS), ["one"]);
    queue.add_rate_limited("one"); // 2 ms from now
    assert!(after(&queue, &time, MS).is_empty());
    assert_eq!(after(&queue, &time, MS), ["one"]);
    assert_eq!(queue.num_requeues(&"one"), 2);

    queue.add_rate_limited("two");
    queue.add_rate_limited("two");
    assert_eq!(after(&queue, &time, MS), ["two"], "earlier than 2 ms");
    assert_eq!(queue.num_requeues(&"two"), 2);

    queue.forget(&"one");
    assert_eq!(queue.num_requeues(&"one"), 0);
    assert_eq!(queue.num_requeues(&"two"), 2);
    queue.add_rate_limited("one");
    assert_eq!(after(&queue, &time, MS), ["one"], "1 ms again");
}

// ---- what upstream does not test ------------------------------------------------------------

#[test] // S1
fn add_after_on_a_queue_that_is_shut_down_is_refused() {
    for delay in [Duration::ZERO, NS, ms(5), Duration::MAX] {
        let (queue, time) = timed();
        queue.add("held");
        let item = queue.get().unwrap();
        queue.shut_down();
        assert_eq!(queue.add_after("foo", delay), Added::ShutDown);
        assert_eq!(queue.add_rate_limited("foo"), Added::ShutDown);
        assert_eq!(item.retry_after(delay), Added::ShutDown);
        queue.shut_down_with_drain();
        assert_eq!(queue.add_after("foo", delay), Added::ShutDown, "drained");
        time.advance(HOUR);
        assert_eq!(queue.fire_due(), 0);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    }
}

#[test] // D7 S5: client-go's channel of 1000 is full here, and its callers are stuck forever
fn add_after_never_waits_for_room() {
    let _watchdog = watchdog(60);
    for drain in [false, true] {
        // No thread ever takes what is registered.
        let (queue, _time) = timed();
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..4 {
                let (queue, accepted) = (&queue, &accepted);
                scope.spawn(move || {
                    let mut key = n;
                    while queue.add_after(key, HOUR) == Added::Delayed {
                        key += 4;
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            eventually("a lot is delayed", || {
                accepted.load(Ordering::SeqCst) > 20_000
            });
            if drain {
                queue.shut_down_with_drain();
            } else {
                queue.shut_down();
            }
        });
        let delayed = queue.shut_down().delayed;
        if drain {
            assert!(delayed >= 20_000, "{delayed}");
        } else {
            assert_eq!(delayed, accepted.into_inner());
        }
    }
}

#[test] // L1
fn the_limiter_is_not_charged_after_a_shut_down() {
    let (queue, _time) = limited();
    queue.add("foo");
    let item = queue.get().unwrap();
    assert_eq!(queue.add_rate_limited("bar"), Added::Delayed);
    queue.shut_down();
    assert_eq!(queue.add_rate_limited("bar"), Added::ShutDown);
    assert_eq!(item.retry(), Added::ShutDown);
    let charged = ["foo", "bar"].map(|key| queue.num_requeues(&key));
    assert_eq!(charged, [0, 1]);
}
