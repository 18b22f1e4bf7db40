//! Retries with the queue's limiter (L1, L2): failures counted, waited for and forgotten, and a
//! back-off that adds do not inflate. The test advances the clock, and does not sleep.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::timed::{NS, ms};
use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::{Added, Clock, MockClock, WorkQueue};

type Queue = WorkQueue<u32>;

/// A queue with back-off from 5 ms, on a clock that stands still.
fn exponential(max: Duration) -> (Queue, MockClock) {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(5), max).unwrap();
    let builder = WorkQueue::builder().rate_limiter(limiter.with_clock(clock.clone()));
    let builder = builder.clock(clock).manual_timers();
    (builder.build().unwrap(), time)
}

/// Whether the only delayed key is queued after `d` and not before.
fn comes_after(queue: &Queue, time: &MockClock, d: Duration) -> bool {
    time.advance(d - NS);
    let early = queue.fire_due();
    time.advance(NS);
    (early, queue.fire_due()) == (0, 1)
}

#[test] // L1 L2 L3; with the next, client-go's TestRateLimitingQueue
fn a_retry_waits_as_long_as_the_limiter_says() {
    let (queue, time) = exponential(ms(40));
    queue.add(1);
    for (failures, delay) in (1..).zip([5, 10, 20, 40, 40]) {
        let item = queue.try_get().expect("its time has come");
        assert_eq!(item.retry(), Added::Delayed);
        assert_eq!(queue.num_requeues(&1), failures);
        assert!(comes_after(&queue, &time, ms(delay)), "{failures}");
    }
    queue.forget(&1);
    assert_eq!(queue.try_get().unwrap().retry(), Added::Delayed);
    assert!(comes_after(&queue, &time, ms(5)));
    drop(queue.try_get());
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
    assert!(comes_after(&queue, &time, ms(10)));
}

#[test] // L15
fn a_queue_without_a_limiter_backs_off_by_its_own_clock() {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue: Queue = builder.build().unwrap();
    queue.forget(&1);
    assert_eq!(queue.num_requeues(&1), 0);
    queue.add(1);
    for failures in 0..20 {
        assert_eq!(queue.try_get().unwrap().retry(), Added::Delayed);
        let delay = ms(5 << failures).min(ms(1_000_000));
        assert!(comes_after(&queue, &time, delay), "{failures}");
    }
    // L12: twice the longest delay.
    assert_eq!(queue.num_requeues(&1), 20);
    time.advance(ms(1_000_000) + NS);
    assert_eq!(queue.num_requeues(&1), 0);
    queue.add_rate_limited(1);
    queue.forget(&1);
    assert_eq!(queue.num_requeues(&1), 0);

    let queue = Queue::new();
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
}

// An event adds a key that waits for its back-off, and it fails again; it fails once more after its
// back-off has passed.
#[test] // L1 L2
fn each_failure_counts_also_while_a_backoff_is_pending() {
    let (queue, time) = exponential(ms(1000));
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
    assert_eq!(counts, [1, 2, 3, 4]);
    queue.forget(&1);
    assert_eq!([1, 2].map(|key| queue.num_requeues(&key)), [0, 1]);
}

// ---- a user's limiter -----------------------------------------------------------------------

/// Delays by a tenth of a second for each letter, and records its calls.
#[derive(Default)]
struct Letters {
    calls: Mutex<Vec<(&'static str, String)>>,
}

impl Letters {
    fn note(&self, call: &'static str, key: &str) {
        self.calls.lock().unwrap().push((call, key.to_owned()));
    }

    fn calls(&self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl RateLimiter<String> for Letters {
    fn when(&self, key: &String) -> Duration {
        self.note("when", key);
        ms(100) * key.len() as u32
    }

    fn forget(&self, key: &String) {
        self.note("forget", key);
    }

    fn num_requeues(&self, key: &String) -> u32 {
        self.note("num_requeues", key);
        7
    }
}

#[test] // L1 L2
fn a_limiter_of_ones_own_is_asked_once_and_not_by_a_queue_that_is_shut_down() {
    let (clock, time) = Clock::mock();
    let limiter = Arc::new(Letters::default());
    let builder = WorkQueue::builder().rate_limiter(Arc::clone(&limiter));
    let queue = builder.clock(clock).manual_timers().build().unwrap();
    let key = || "four".to_owned();
    assert_eq!(queue.add_rate_limited(key()), Added::Delayed);
    assert_eq!(limiter.calls(), [("when", key())]);
    time.advance(ms(400) - NS);
    assert_eq!(queue.fire_due(), 0);
    time.advance(NS);
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(queue.num_requeues(&key()), 7);
    queue.forget(&key());
    let calls = [("num_requeues", key()), ("forget", key())];
    assert_eq!(limiter.calls(), calls);

    queue.add("held".to_owned());
    queue.shut_down();
    assert_eq!(queue.add_rate_limited(key()), Added::ShutDown);
    while let Some(item) = queue.get() {
        assert_eq!(item.retry(), Added::ShutDown);
    }
    assert_eq!(limiter.calls(), []);
}
