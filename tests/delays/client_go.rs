//! client-go's tests of its delaying and rate-limiting queues, by their names, and after them the
//! cases about delays that its suite leaves open. The test advances the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{after, built_of, ms};
use crate::common::watchdog;
use keyqueue::limiter::{ItemExponentialFailure, NoLimit, RateLimiter};
use keyqueue::{Added, Clock, MockClock, TryGetError, WorkQueue};

const HOUR: Duration = Duration::from_secs(3600);

fn queue() -> (WorkQueue<&'static str>, MockClock) {
    limited(|_| NoLimit)
}

fn limited<L>(limiter: impl FnOnce(Clock) -> L) -> (WorkQueue<&'static str, L>, MockClock) {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder()
        .rate_limiter(limiter(clock.clone()))
        .clock(clock)
        .manual_timers()
        .build();
    (queue.expect("in range"), time)
}

// ---- delaying_queue_test.go -----------------------------------------------------------------

#[test] // D1
fn test_simple_queue() {
    let (queue, time) = queue();
    queue.add_after("foo", ms(50));
    assert_eq!(queue.len(), 0);
    assert_eq!(after(&queue, &time, ms(49)), Vec::<&str>::new());
    assert_eq!(after(&queue, &time, ms(11)), ["foo"]);
    // Go steps past the heartbeat of its loop; there is none here.
    assert!(after(&queue, &time, Duration::from_secs(10)).is_empty());
    assert_eq!(queue.len(), 0);
}

#[test] // D3
fn test_deduping() {
    let (queue, time) = queue();
    queue.add_after("foo", ms(50));
    queue.add_after("foo", ms(70));
    assert_eq!(after(&queue, &time, ms(60)), ["foo"]);
    assert!(after(&queue, &time, ms(20)).is_empty(), "not added twice");

    queue.add_after("foo", ms(50));
    queue.add_after("foo", ms(30));
    assert_eq!(after(&queue, &time, ms(40)), ["foo"], "the earlier wins");
    assert!(after(&queue, &time, ms(20)).is_empty(), "not added twice");
}

#[test] // D8
fn test_add_two_fire_early() {
    let (queue, time) = queue();
    queue.add_after("foo", Duration::from_secs(1));
    queue.add_after("bar", ms(50));
    assert_eq!(queue.len(), 0);
    assert_eq!(after(&queue, &time, ms(60)), ["bar"]);
    queue.add_after("baz", Duration::from_secs(2));
    assert_eq!(after(&queue, &time, Duration::from_secs(1)), ["foo"]);
    assert_eq!(after(&queue, &time, Duration::from_secs(2)), ["baz"]);
}

#[test] // D8
fn test_copy_shifting() {
    let (queue, time) = queue();
    queue.add_after("foo", Duration::from_secs(1));
    queue.add_after("bar", ms(500));
    queue.add_after("baz", ms(250));
    assert_eq!(
        after(&queue, &time, Duration::from_secs(2)),
        ["baz", "bar", "foo"]
    );
}

// ---- rate_limiting_queue_test.go ------------------------------------------------------------

#[test] // L1 L2
fn test_rate_limiting_queue() {
    let (queue, time) = limited(|clock| {
        let limiter = ItemExponentialFailure::new(ms(1), Duration::from_secs(1));
        limiter.expect("in range").with_clock(clock)
    });
    queue.add_rate_limited("one"); // ready at 1 ms
    assert_eq!(
        after(&queue, &time, ms(1) - Duration::from_nanos(1)),
        Vec::<&str>::new()
    );
    assert_eq!(after(&queue, &time, Duration::from_nanos(1)), ["one"]);
    queue.add_rate_limited("one"); // 2 ms from now
    assert!(after(&queue, &time, ms(1)).is_empty());
    assert_eq!(after(&queue, &time, ms(1)), ["one"]);
    assert_eq!(queue.num_requeues(&"one"), 2);

    queue.add_rate_limited("two");
    queue.add_rate_limited("two");
    assert_eq!(
        after(&queue, &time, ms(1)),
        ["two"],
        "1 ms is earlier than 2 ms"
    );
    assert_eq!(queue.num_requeues(&"two"), 2);

    queue.forget(&"one");
    assert_eq!(queue.num_requeues(&"one"), 0);
    assert_eq!(queue.num_requeues(&"two"), 2);
    queue.add_rate_limited("one");
    assert_eq!(after(&queue, &time, ms(1)), ["one"], "1 ms again");
}

// ---- what upstream does not test ------------------------------------------------------------

#[test] // D4: a second run, though it is queued when it is delayed
fn add_after_of_a_queued_key_fires_later() {
    let (queue, time) = queue();
    queue.add("foo");
    assert_eq!(queue.add_after("foo", ms(5)), Added::Delayed);
    assert_eq!(after(&queue, &time, Duration::ZERO), ["foo"]);
    assert_eq!(after(&queue, &time, ms(5)), ["foo"]);
}

#[test] // S1
fn add_after_on_a_queue_that_is_shut_down_is_refused() {
    for delay in [
        Duration::ZERO,
        Duration::from_nanos(1),
        ms(5),
        Duration::MAX,
    ] {
        let (queue, time) = queue();
        queue.add("held");
        let item = queue.get().unwrap();
        queue.shut_down();
        assert_eq!(queue.add_after("foo", delay), Added::ShutDown);
        assert_eq!(queue.add_rate_limited("foo"), Added::ShutDown);
        assert_eq!(item.retry_after(delay), Added::ShutDown);
        time.advance(HOUR);
        assert_eq!(queue.fire_due(), 0);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    }
}

#[test] // S1 S3
fn add_after_on_a_drained_queue_is_refused() {
    let (queue, time) = queue();
    queue.shut_down_with_drain();
    assert_eq!(queue.add_after("foo", ms(5)), Added::ShutDown);
    assert!(after(&queue, &time, HOUR).is_empty());
    assert!(queue.get().is_none());
}

#[test] // D7: client-go's channel of 1000 is full here, and its callers are stuck forever
fn add_after_never_waits_for_room() {
    let _watchdog = watchdog(60);
    let (queue, _time) = built_of(|builder| builder);
    // No thread ever takes what is registered.
    thread::scope(|scope| {
        for n in 0..4 {
            let queue = &queue;
            scope.spawn(move || {
                for key in 0..5000 {
                    assert_eq!(queue.add_after(4 * key + n, HOUR), Added::Delayed);
                }
            });
        }
    });
    assert_eq!(queue.shut_down().delayed, 20_000);
}

#[test] // D7 S5: and none of them is stuck when the queue shuts down
fn no_add_after_is_blocked_at_a_shut_down() {
    let _watchdog = watchdog(60);
    for drain in [false, true] {
        let (queue, _time) = built_of(|builder| builder);
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
            crate::common::eventually("a lot is delayed", || {
                accepted.load(Ordering::SeqCst) > 4000
            });
            if drain {
                queue.shut_down_with_drain();
            } else {
                let left = queue.shut_down();
                assert!(left.delayed > 4000, "{left:?}");
            }
        });
    }
}

/// Counts its calls.
#[derive(Default)]
struct Counting(AtomicUsize);

impl<K: ?Sized> RateLimiter<K> for Counting {
    fn when(&self, _: &K) -> Duration {
        self.0.fetch_add(1, Ordering::SeqCst);
        ms(5)
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

#[test] // L1
fn the_limiter_is_not_charged_after_a_shut_down() {
    let limiter = Arc::new(Counting::default());
    let charged = || limiter.0.load(Ordering::SeqCst);
    let (queue, _time) = limited(|_| Arc::clone(&limiter));
    queue.add("foo");
    let item = queue.get().unwrap();
    assert_eq!(queue.add_rate_limited("bar"), Added::Delayed);
    assert_eq!(charged(), 1);
    queue.shut_down();
    assert_eq!(queue.add_rate_limited("bar"), Added::ShutDown);
    assert_eq!(item.retry(), Added::ShutDown);
    assert_eq!(charged(), 1);
}
