//! Trying again as the queue's limiter says (L1): failures counted, waited for and forgotten. By a
//! clock that is moved by hand; nothing here sleeps.

mod common;

use common::timed::{NS, after, ms};
use keyqueue::limiter::{ItemExponentialFailure, ItemFastSlow};
use keyqueue::{Added, Clock, WorkQueue};

#[test] // L1 L3
fn a_retry_waits_as_long_as_the_limiter_says() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(5), ms(40)).unwrap();
    let queue = WorkQueue::<u32>::builder()
        .rate_limiter(limiter.with_clock(clock.clone()))
        .clock(clock)
        .manual_timers()
        .build()
        .unwrap();
    queue.add(1);
    for (failures, delay) in (1..).zip([5, 10, 20, 40, 40]) {
        let item = queue.try_get().expect("its time has come");
        assert_eq!(item.retry(), Added::Delayed);
        assert_eq!(queue.num_requeues(&1), failures);
        time.advance(ms(delay) - NS);
        assert_eq!(queue.fire_due(), 0, "failure {failures}");
        time.advance(NS);
        assert_eq!(queue.fire_due(), 1, "failure {failures}");
    }
    queue.forget(&1);
    assert_eq!(queue.try_get().unwrap().retry(), Added::Delayed);
    assert_eq!(after(&queue, &time, ms(5)), [1]);
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
    assert_eq!(after(&queue, &time, ms(10)), [1]);
}

#[test] // L1 L4
fn a_retry_with_a_fast_and_slow_limiter() {
    let (clock, time) = Clock::mock();
    let limiter = ItemFastSlow::new(ms(5), ms(1000), 2).unwrap();
    let queue = WorkQueue::<u32>::builder()
        .rate_limiter(limiter.with_clock(clock.clone()))
        .clock(clock)
        .manual_timers()
        .build()
        .unwrap();
    queue.add(1);
    for delay in [5, 5, 1000] {
        queue.try_get().unwrap().retry();
        time.advance(ms(delay) - NS);
        assert_eq!(queue.fire_due(), 0);
        time.advance(NS);
        assert_eq!(queue.fire_due(), 1);
    }
}

/// The failures counted, as an event adds a key that waits for its back-off and it fails again,
/// and after its back-off has passed and it fails once more.
fn failures_by_events(steady: bool) -> Vec<u32> {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(5), ms(1000)).unwrap();
    let queue = WorkQueue::<u32>::builder()
        .rate_limiter(limiter.with_clock(clock.clone()))
        .clock(clock)
        .manual_timers()
        .steady_backoff(steady)
        .build()
        .unwrap();
    let mut counts = Vec::new();
    let mut fail = || {
        assert_eq!(queue.try_get().expect("queued").retry(), Added::Delayed);
        counts.push(queue.num_requeues(&1));
    };
    queue.add(1);
    fail();
    queue.add(1); // an event, before the back-off is over
    fail();
    queue.add_rate_limited(2); // another key is no matter
    time.advance(ms(5));
    queue.fire_due();
    fail();
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
    counts.push(queue.num_requeues(&1));
    counts
}

#[test] // L1
fn a_steady_backoff_counts_a_failure_for_each_backoff_that_was_waited_for() {
    assert_eq!(failures_by_events(true), [1, 1, 2, 2]);
    assert_eq!(failures_by_events(false), [1, 2, 3, 4]);
}
