//! The token bucket (L5): one for all keys, and exact for any pattern of calls.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::common::timed::{NS, ms, secs};
use crate::limiters::{delays, mocked_bucket};
use keyqueue::limiter::RateLimiter;
use proptest::prelude::*;

#[test] // L5
fn reservations_of_a_bucket_queue_up() {
    let (bucket, _mock) = mocked_bucket(10.0, 100);
    for n in 1..=10_000_u64 {
        let expected = ms(100 * n.saturating_sub(100));
        assert_eq!(bucket.when("any"), expected, "call {n}");
    }
    RateLimiter::<str>::forget(&bucket, "any");
    let next = bucket.when("any");
    assert_eq!(
        next,
        secs(990) + ms(100),
        "forgetting a key gives no token back"
    );
    assert_eq!(RateLimiter::<str>::num_requeues(&bucket, "any"), 0);
}

#[test] // L5: in many rounds, as threads seldom meet in one.
fn four_threads_get_the_same_reservations_as_one() {
    let expected: Vec<_> = (1..=10_000_u64)
        .map(|n| ms(100 * n.saturating_sub(100)))
        .collect();
    for round in 0..300 {
        let (bucket, _mock) = mocked_bucket(10.0, 100);
        let together = Barrier::new(4);
        let reserve = || {
            together.wait();
            delays(&bucket, "any", 2500)
        };
        let mut delays: Vec<Duration> = thread::scope(|scope| {
            let workers = [(); 4].map(|()| scope.spawn(reserve));
            let delays = workers.map(|worker| worker.join().unwrap());
            delays.concat()
        });
        delays.sort_unstable();
        assert_eq!(delays, expected, "round {round}");
    }
}

#[test] // L5
fn a_bucket_fills_up_to_its_burst_and_not_beyond() {
    let (bucket, mock) = mocked_bucket(10.0, 3);
    assert_eq!(
        delays(&bucket, "any", 5),
        [ms(0), ms(0), ms(0), ms(100), ms(200)]
    );
    mock.advance(ms(250));
    assert_eq!(bucket.when("any"), ms(50));
    mock.advance(secs(1_000_000));
    assert_eq!(delays(&bucket, "any", 4), [ms(0), ms(0), ms(0), ms(100)]);
}

#[test] // L5
#[cfg_attr(miri, ignore = "arithmetic")]
fn a_third_of_a_second_does_not_drift() {
    let (bucket, mock) = mocked_bucket(3.0, 1);
    bucket.when("any");
    for n in 1..=1_000_000_u64 {
        // The nearest nanosecond to n / 3 s.
        let expected = Duration::from_nanos((n * 1_000_000_000 + 1) / 3);
        let delay = bucket.when("any");
        assert!(delay.abs_diff(expected) <= NS, "call {n}: {delay:?}");
    }
    // All that was reserved comes due, and the next reservation is as exact as the first.
    mock.advance(Duration::from_nanos(1_000_000 * 1_000_000_000 / 3));
    let delay = bucket.when("any");
    assert!(
        delay.abs_diff(Duration::from_nanos(333_333_334)) <= NS * 2,
        "{delay:?}"
    );
}

proptest! {
    // L5: against the same algorithm in exact fractions of a nanosecond.
    #[test]
    fn a_bucket_of_any_whole_rate_is_exact_to_two_nanoseconds(
        rate in prop_oneof![1..100_u32, 1..=1_000_000_000_u32],
        burst in 1..50_u32,
        advances in prop::collection::vec((0..36_u32, any::<u64>()), 1..200),
    ) {
        let (bucket, mock) = mocked_bucket(f64::from(rate), burst);
        let token = 1_000_000_000_u128;
        let (mut now, mut arrival) = (0_u128, 0_u128);
        for (bits, random) in advances {
            // Half of the calls come without any time in between.
            let step = if random % 2 == 0 { 0 } else { (random >> 1) & ((1 << bits) - 1) };
            mock.advance(Duration::from_nanos(step));
            now += u128::from(step) * u128::from(rate);
            arrival = arrival.max(now) + token;
            let ahead = arrival.saturating_sub(u128::from(burst) * token + now);
            let exact = ahead as f64 / f64::from(rate);
            let delay = bucket.when("any").as_nanos() as f64;
            prop_assert!((delay - exact).abs() < 2.0, "{delay} instead of {exact}");
        }
    }
}
