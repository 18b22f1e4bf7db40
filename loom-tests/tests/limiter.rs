//! Failures are counted once and forgotten as a whole, also where a limiter does without its lock
//! (L2). What is given back to a bucket is given out once (L14).
#![cfg(keyqueue_loom)]

use std::time::Duration;

use keyqueue::limiter::{Bucket, ItemExponentialFailure, RateLimiter};
use keyqueue::{Added, Clock, WorkQueue};
use keyqueue_loom_tests::{FixedHasher, check, spawn_with};
use loom::sync::Arc;

const KEY: u8 = 1;

/// How many failures there were before this one.
fn fail(limiter: &ItemExponentialFailure<u8>) -> u32 {
    limiter.when(&KEY).as_nanos().ilog2()
}

/// L2. One thread fails with a key and forgets it, another fails with it. What is left is what was
/// not forgotten: the other's failure, if and only if it came after that.
#[test]
fn what_fails_after_a_forget_is_counted_and_what_failed_before_is_not() {
    check("limiter_forget", 5, || {
        let limiter = ItemExponentialFailure::new(Duration::from_nanos(1), Duration::from_secs(1));
        let limiter = Arc::new(limiter.unwrap().with_clock(Clock::mock().0));
        let other = spawn_with(&limiter, fail);
        let mine = fail(&limiter);
        limiter.forget(&KEY);
        let others = other.join().unwrap();
        let left = match (mine, others) {
            (0, 0) => 1,
            (0, 1) | (1, 0) => 0,
            _ => panic!("{mine} failures before mine, {others} before the other's"),
        };
        assert_eq!(limiter.num_requeues(&KEY), left, "{mine} {others}");
        // What is counted is also forgotten.
        limiter.forget(&KEY);
        assert_eq!(fail(&limiter), 0);
    });
}

/// L15. Two threads are the first to fail in a queue without a limiter, and one of them looks before: each failure is counted,
/// and forgotten.
#[test]
fn the_first_failures_of_a_queue_without_a_limiter_are_counted_and_forgotten() {
    check("first_failures", 3, || {
        let builder = WorkQueue::<u8>::builder().hasher(FixedHasher::default());
        let builder = builder.shards(2).ring(2).clock(Clock::mock().0);
        let queue = Arc::new(builder.manual_timers().build().unwrap());
        let other = spawn_with(&queue, |queue| {
            assert_eq!(queue.add_rate_limited(KEY), Added::Delayed);
            queue.forget(&KEY);
        });
        assert!(queue.num_requeues(&KEY) <= 1);
        assert_eq!(queue.add_rate_limited(2), Added::Delayed);
        other.join().unwrap();
        assert_eq!([KEY, 2].map(|key| queue.num_requeues(&key)), [0, 1]);
    });
}

/// A bucket of one token, and one a second, on a clock that stands still.
fn bucket() -> Arc<Bucket> {
    let bucket = Bucket::new(1.0, 1).unwrap();
    Arc::new(bucket.with_clock(Clock::mock().0))
}

/// The second that a reservation gets that is used.
fn used(bucket: &Bucket) -> u64 {
    bucket.when(&KEY).as_secs()
}

/// L14. A reservation is given back while another thread makes one.
#[test]
fn a_reservation_that_is_given_back_beside_another_one_is_given_out_next() {
    check("give_back_last", 4, || {
        let bucket = bucket();
        let mut other = None;
        bucket.reserve(&KEY, &mut |_| {
            other = Some(spawn_with(&bucket, used));
            false
        });
        let others = other.unwrap().join().unwrap();
        let mut seconds = [others, used(&bucket)];
        seconds.sort_unstable();
        assert_eq!(seconds, [0, 1]);
    });
}

/// L14. The same, if a later one is used.
#[test]
fn a_reservation_below_one_that_is_used_is_given_out_next() {
    check("give_back_below", 4, || {
        let bucket = bucket();
        let mut other = None;
        bucket.reserve(&KEY, &mut |_| {
            assert_eq!(used(&bucket), 1);
            other = Some(spawn_with(&bucket, used));
            false
        });
        let others = other.unwrap().join().unwrap();
        let mut seconds = [others, used(&bucket)];
        seconds.sort_unstable();
        assert_eq!(seconds, [0, 2]);
    });
}

/// L14. Two threads reserve while two reservations become free: both may see the lower one.
#[test]
fn a_reservation_that_was_given_back_is_given_out_once() {
    check("give_out_twice", 3, || {
        let bucket = bucket();
        let giver = spawn_with(&bucket, |bucket| _ = bucket.reserve(&KEY, &mut |_| false));
        let (mut seconds, mut other) = (Vec::new(), None);
        bucket.reserve(&KEY, &mut |_| {
            seconds.push(used(&bucket));
            other = Some(spawn_with(&bucket, used));
            false
        });
        seconds.push(used(&bucket));
        seconds.push(other.unwrap().join().unwrap());
        giver.join().unwrap();
        seconds.sort_unstable();
        seconds.dedup();
        assert_eq!(seconds.len(), 3, "{seconds:?}");
    });
}

/// L14. Two threads give reservations back at the same time, perhaps below one that is used.
#[test]
fn reservations_that_are_given_back_at_the_same_time_are_both_given_out_again() {
    check("give_back_both", 4, || {
        let bucket = bucket();
        let other = spawn_with(&bucket, |bucket: &Bucket| {
            bucket.reserve(&KEY, &mut |_| false);
        });
        let mut above = 0;
        bucket.reserve(&KEY, &mut |_| {
            above = used(&bucket);
            false
        });
        other.join().unwrap();
        let mut seconds = [above, used(&bucket), used(&bucket)];
        seconds.sort_unstable();
        assert_eq!(seconds, [0, 1, 2]);
    });
}
