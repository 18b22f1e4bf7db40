//! Failures are counted once and forgotten as a whole, also where a limiter does without its lock
//! (L2).
#![cfg(keyqueue_loom)]

use std::time::Duration;

use keyqueue::Clock;
use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue_loom_tests::{check, spawn_with};
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
