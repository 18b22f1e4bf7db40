//! Back-off: apimachinery's tables under their names, then the promises.

use std::time::Duration;

use crate::common::timed::{NS, ms, secs};
use keyqueue::backoff::{Backoff, ExponentialBackoffManager, jitter, retry_with};
use keyqueue::{Clock, MockClock};
use proptest::prelude::*;

pub(crate) fn doubling(duration: Duration, steps: u32) -> Backoff {
    Backoff {
        duration,
        factor: 2.0,
        steps,
        ..Backoff::default()
    }
}

fn steps(backoff: &Backoff, n: usize) -> Vec<Duration> {
    let mut backoff = backoff.clone();
    (0..n).map(|_| backoff.step()).collect()
}

#[test] // L9
fn test_backoff_step() {
    // Factor, steps, cap in seconds, jitter, and the delays in seconds.
    let rows: &[(f64, u32, u64, f64, &[u64])] = &[
        (0.0, 0, 0, 0.0, &[1, 1, 1]),
        (0.0, 1, 0, 0.0, &[1, 1, 1]),
        (1.0, 1, 0, 0.0, &[1, 1, 1]),
        (2.0, 3, 0, 0.0, &[1, 2, 4, 8, 8, 8]),
        (2.0, 3, 3, 0.0, &[1, 2, 3, 3, 3]),
        (2.0, 2, 3, 0.5, &[1, 2, 3, 3]),
        (2.0, 6, 0, 4.0, &[1, 2, 4, 8, 16, 32]),
    ];
    assert_eq!(steps(&Backoff::default(), 4), [Duration::ZERO; 4]);
    for seed in 0..5 {
        fastrand::seed(seed);
        for &(factor, count, cap, jitter, expected) in rows {
            let (duration, cap) = (secs(1), secs(cap));
            let backoff = Backoff {
                duration,
                factor,
                jitter,
                steps: count,
                cap,
            };
            for (got, &seconds) in steps(&backoff, expected.len()).into_iter().zip(expected) {
                let most = secs(seconds).mul_f64(1.0 + backoff.jitter);
                let in_range = secs(seconds) <= got && got <= most;
                assert!(in_range, "{got:?} for {seconds} s of {backoff:?}");
            }
        }
    }
}

#[test] // L9: apimachinery gives up after four of these.
fn reaching_the_cap_does_not_end_the_retries() {
    let backoff = Backoff {
        cap: ms(8),
        ..doubling(ms(1), 1000)
    };
    let delays: Vec<_> = backoff.clone().collect();
    assert_eq!(delays.len(), 1000);
    assert_eq!(delays[..4], [1, 2, 4, 8].map(ms));
    assert!(delays[4..].iter().all(|&delay| delay == ms(8)));
    let mut slept = 0;
    let outcome = retry_with(backoff, || Err::<(), _>(()), |_| slept += 1);
    assert_eq!((outcome, slept), (Err(()), 999));
}

#[test] // L9
fn an_iterator_gives_as_many_delays_as_there_are_steps() {
    let mut backoff = doubling(ms(1), 3);
    assert_eq!(backoff.size_hint(), (3, Some(3)));
    assert_eq!(backoff.by_ref().collect::<Vec<_>>(), [1, 2, 4].map(ms));
    assert_eq!((backoff.next(), backoff.next()), (None, None));
    assert_eq!(backoff.step(), ms(8), "a step goes on forever");
    assert_eq!(doubling(ms(1), 0).next(), None);
}

#[test] // L9
fn jitter_adds_less_than_its_factor() {
    let random: Vec<_> = (0..10_000).map(|_| jitter(secs(10), 0.5)).collect();
    assert!(random.iter().all(|d| (secs(10)..secs(15)).contains(d)));
    assert!(random.iter().any(|d| *d < ms(10_100)));
    assert!(random.iter().any(|d| *d > ms(14_900)));
}

#[test] // L9
fn test_jitter_until_negative_factor() {
    for factor in [0.0, -0.0, -1.0, f64::NEG_INFINITY, f64::NAN] {
        assert_eq!(jitter(secs(1), factor), secs(1));
    }
}

/// A duration of any magnitude.
fn duration() -> impl Strategy<Value = Duration> {
    let magnitudes = (any::<u64>(), 0..64_u32).prop_map(|(n, shift)| n >> shift);
    prop_oneof![
        4 => magnitudes.prop_map(Duration::from_nanos),
        1 => any::<Duration>(),
    ]
}

/// A factor, and now and then anything that an `f64` can be.
fn factor() -> impl Strategy<Value = f64> {
    prop_oneof![
        2 => 0.0..4.0,
        2 => (0..10_u32).prop_map(f64::from),
        1 => any::<u64>().prop_map(f64::from_bits),
    ]
}

/// The least and the most that the delay after `delay` may be, without a cap, in nanoseconds.
fn grown(delay: u128, factor: f64) -> (u128, u128) {
    let longest = Duration::MAX.as_nanos();
    if factor.is_nan() || factor <= 0.0 {
        return (delay, delay);
    }
    if factor.fract() == 0.0 && factor < 1e9 {
        let exact = delay.saturating_mul(factor as u128).min(longest);
        return (exact, exact);
    }
    let product = delay as f64 * factor;
    // Two roundings of an `f64`, and the fraction that is cut off.
    let off = product / f64::from(1 << 30) / f64::from(1 << 20) + 1.0;
    let [least, most] = [product - off, product + off].map(|nanos| nanos.max(0.0) as u128);
    (least.min(longest), most.min(longest))
}

proptest! {
    // L9
    #[test]
    fn a_step_of_any_settings_is_a_factor_of_the_one_before_within_the_cap_and_jittered(
        duration in duration(),
        factor in factor(),
        jitter in prop_oneof![Just(0.0), factor()],
        count in prop_oneof![0..100_u32, any::<u32>()],
        cap in prop_oneof![Just(Duration::ZERO), duration()],
    ) {
        let mut backoff = Backoff { duration, factor, jitter, steps: count, cap };
        let valid = [factor, jitter].iter().all(|f| *f >= 0.0 && f.is_finite());
        prop_assert_eq!(backoff.validate().is_ok(), valid);
        let longest = if cap.is_zero() { Duration::MAX } else { cap };
        let mut bounds = (duration.as_nanos(), duration.as_nanos());
        for left in (0..100).map(|n| count.saturating_sub(n)) {
            prop_assert_eq!(backoff.steps, left);
            let exact = backoff.duration.min(longest);
            let (least, most) = (bounds.0.min(longest.as_nanos()), bounds.1.min(longest.as_nanos()));
            let nanos = exact.as_nanos();
            prop_assert!((least..=most).contains(&nanos), "{nanos} of {least}..={most}");
            let delay = backoff.step();
            // The rounding included.
            let most = nanos as f64 * (1.0 + jitter.max(0.0)) * (1.0 + 1e-12) + 1.0;
            prop_assert!(delay >= exact && (delay == exact || delay.as_nanos() as f64 <= most), "{delay:?}");
            prop_assert!(delay == exact || jitter > 0.0, "{delay:?} of {exact:?}");
            bounds = if left > 0 { grown(nanos, factor) } else { (nanos, nanos) };
        }
    }

    // L10
    #[test]
    fn a_manager_starts_over_after_more_than_its_reset(
        delays in [duration(), duration()],
        factor in 0.0..4.0,
        reset in duration(),
        pauses in prop::collection::vec(duration(), 1..50),
    ) {
        let [one, other] = delays;
        let backoff = Backoff { factor, cap: one.max(other), ..doubling(one.min(other), u32::MAX) };
        let (clock, mock) = Clock::mock();
        let manager = ExponentialBackoffManager::new(backoff.clone(), reset).unwrap();
        let mut manager = manager.with_clock(clock.clone());
        let mut expected = backoff.clone();
        for pause in pauses {
            prop_assert_eq!(manager.next(), Some(expected.step()));
            let before = clock.now();
            mock.advance(pause);
            if clock.now() - before > reset {
                expected = backoff.clone();
            }
        }
    }
}

#[test] // L13
fn invalid_settings_are_refused_by_name() {
    for (value, written) in [(-1.0, "-1.0"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        for (field, factor, jitter) in [("factor", value, 0.0), ("jitter", 2.0, value)] {
            let backoff = Backoff {
                factor,
                jitter,
                ..doubling_to(secs(1), secs(2))
            };
            for refused in [
                backoff.validate().unwrap_err(),
                ExponentialBackoffManager::new(backoff, secs(3)).unwrap_err(),
            ] {
                assert_eq!((refused.field(), refused.value()), (field, written));
            }
        }
    }
    let refused =
        ExponentialBackoffManager::new(doubling_to(secs(2), secs(1)), secs(3)).unwrap_err();
    assert_eq!((refused.field(), refused.value()), ("cap", "1s"));
    assert_eq!(
        refused.to_string(),
        "back-off `cap` must not be below `duration`, 2s, but is 1s"
    );
}

// ---- the manager

fn doubling_to(duration: Duration, cap: Duration) -> Backoff {
    Backoff {
        cap,
        ..doubling(duration, 0)
    }
}

#[test] // L10
fn a_manager_without_a_cap_grows_without_end() {
    let mut manager =
        ExponentialBackoffManager::new(doubling_to(secs(1), secs(0)), secs(9)).unwrap();
    assert_eq!(manager.nth(12), Some(secs(1 << 12)));
}

pub(crate) fn manager(reset: Duration) -> (ExponentialBackoffManager, MockClock) {
    let (clock, mock) = Clock::mock();
    let manager = ExponentialBackoffManager::new(doubling_to(secs(1), secs(10)), reset).unwrap();
    (manager.with_clock(clock), mock)
}

#[test] // L10: called every 2 s for longer than `reset`, but never idle for that long.
fn a_busy_manager_does_not_start_over() {
    let (mut manager, mock) = manager(secs(10));
    for expected in [1, 2, 4, 8, 10, 10, 10, 10, 10].map(secs) {
        assert_eq!(manager.next(), Some(expected));
        mock.advance(secs(2));
    }
    mock.advance(secs(8));
    assert_eq!(manager.next(), Some(secs(10)), "idle for exactly `reset`");
    mock.advance(secs(10) + NS);
    assert_eq!(manager.next(), Some(secs(1)));
}
