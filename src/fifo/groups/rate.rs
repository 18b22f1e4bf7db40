//! A token bucket as a virtual schedule (GCRA, ITU-T I.371): its state is the time at which it is full
//! again.

use crate::ConfigError;

/// What a builder was told: tokens a second, and how many a full bucket has.
pub(crate) type PerSecond = (f64, u32);

/// The longest that an empty bucket may take to fill, in seconds: 100 years. Times in nanoseconds end after 584.
const LONGEST: f64 = 100.0 * 365.0 * 86_400.0;

/// The settings of a bucket. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Between two tokens.
    interval: u64,
    /// What a full bucket is worth, but for one token.
    tolerance: u64,
}

impl Rate {
    /// Returns the rate of this setting, which [`check`] has accepted.
    pub(super) fn new((per_second, burst): PerSecond) -> Self {
        // Rounded up, so never faster.
        let interval = (1e9 / per_second).ceil().max(1.0) as u64;
        Rate {
            interval,
            tolerance: interval * u64::from(burst - 1),
        }
    }

    pub(super) fn interval(self) -> u64 {
        self.interval
    }

    /// Returns when the bucket that is full at `full` has a token.
    pub(super) fn next(self, full: u64) -> u64 {
        full.saturating_sub(self.tolerance)
    }

    /// Takes a token of a bucket that has one, and returns when it is full again.
    pub(super) fn take(self, full: u64, now: u64) -> u64 {
        full.max(now).saturating_add(self.interval)
    }
}

/// Checks a setting of the builder.
pub(super) fn check(field: &'static str, rate: Option<PerSecond>) -> Result<(), ConfigError> {
    match rate {
        Some((per_second, _)) if !(per_second > 0.0 && per_second.is_finite()) => {
            let rule = "must be above 0 and finite, per second";
            Err(ConfigError::new("queue", field, rule, per_second))
        }
        Some((_, 0)) => Err(ConfigError::new(
            "queue",
            field,
            "must have a burst above 0",
            0,
        )),
        Some((per_second, burst)) if f64::from(burst) / per_second > LONGEST => {
            let rule = "must fill the bucket within 100 years";
            let seconds = f64::from(burst) / per_second;
            Err(ConfigError::new("queue", field, rule, seconds))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // T1 G5
    fn a_bucket_gives_its_burst_and_then_one_token_an_interval() {
        let rate = Rate::new((10.0, 3));
        let mut full = 0;
        for now in [0, 0, 0, 100_000_000, 200_000_000] {
            assert!(rate.next(full) <= now, "{now}");
            full = rate.take(full, now);
            if now > 0 {
                assert_eq!(rate.next(full), now + 100_000_000);
            }
        }
        // A second later it is full.
        let now = full + 1_000_000_000;
        for _ in 0..3 {
            assert!(rate.next(full) <= now);
            full = rate.take(full, now);
        }
        assert_eq!(rate.next(full), now + 100_000_000);
    }

    #[test] // T1
    fn a_rate_is_never_rounded_up() {
        let rate = Rate::new((3.0, 1));
        assert_eq!(rate.take(0, 0), 333_333_334);
        assert_eq!(Rate::new((1e12, 1)).take(5, 0), 6);
    }

    #[test]
    fn a_rate_that_is_none_is_refused() {
        for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(check("group_rate", Some((per_second, 1))).is_err());
        }
        assert!(check("group_rate", Some((1.0, 0))).is_err());
        assert!(check("group_rate", Some((1e-9, 100))).is_err());
        assert!(check("group_rate", Some((0.1, 1))).is_ok());
        assert!(check("group_rate", None).is_ok());
    }
}
