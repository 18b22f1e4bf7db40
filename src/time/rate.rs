//! A token bucket as a virtual schedule: the generic cell rate algorithm (GCRA, ITU-T I.371).
//!
//! The only state of a bucket is the time at which it is full again, if nothing more is taken. Its owner
//! keeps that; here is what the time changes to.
//!
//! ```text
//!     full' = max(full, now) + token         token: the time to refill one token
//!     next  = full - (burst - 1) * token     when the bucket has a token
//! ```
//!
//! # Units
//!
//! One token must be a whole number of time units; otherwise each token would be rounded, and the errors
//! would add up. So time is counted in units that divide a token evenly. A unit is slightly shorter
//! than a nanosecond, or exactly one nanosecond if the rate divides a second:
//!
//! ```text
//!     T = 10^9 / rate        nanoseconds per token, in general not a whole number
//!     token = ceil(T)        units per token, exact
//!     scale = token / T      units per nanosecond, from 1 to 2, as a 64-bit fixed-point number
//!     now in units = floor(nanoseconds since the clock's start * scale)
//! ```
//!
//! `full` is some `now` plus a whole number of tokens, so only exact numbers accumulate. The rate itself is
//! as precise as an `f64`: 1 ns in 52 days. If the bucket takes more than 146 years to fill, the unit is
//! longer, so that the whole burst fits in 64 bits.

/// The longest time in units that a whole burst may take: a quarter of the range of `full`.
const LONGEST_BURST: f64 = (1_u64 << 62) as f64;

/// `scale` is a fixed-point number with this many fractional bits.
const SCALE_BITS: u32 = 62;
const SCALE_ONE: u64 = 1 << SCALE_BITS;

/// The settings of a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Units per token, at least 1.
    token: u64,
    /// Units of a full bucket: `burst * token`.
    burst: u64,
    /// Units per nanosecond, in fixed point; never zero.
    scale: u64,
}

impl Rate {
    /// `per_second` tokens, above zero and finite; `burst` is above zero.
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        let nanos_per_token = (1e9 / per_second).clamp(1.0, u64::MAX as f64);
        let nanos_per_unit = (nanos_per_token * f64::from(burst) / LONGEST_BURST).max(1.0);
        let token = (nanos_per_token / nanos_per_unit).ceil();
        let scale = token / nanos_per_token * SCALE_ONE as f64;
        // All three values to cast are above zero and below 2^64.
        let token = token as u64;
        Rate {
            token,
            burst: token.saturating_mul(u64::from(burst)),
            scale: scale as u64,
        }
    }

    /// Takes a token of the bucket that is full at `full`, and returns when it is full again, in units.
    #[inline]
    pub(crate) fn take(self, full: u64, now: u64) -> u64 {
        full.max(now).saturating_add(self.token)
    }

    /// Gives a token back; otherwise like [`take`](Self::take).
    pub(crate) fn put_back(self, full: u64) -> u64 {
        full.saturating_sub(self.token)
    }

    /// Returns when the bucket that is full at `full` has a token, in units.
    #[inline]
    pub(crate) fn next(self, full: u64) -> u64 {
        full.saturating_sub(self.burst - self.token)
    }

    /// Returns how many tokens the bucket that is full at `full` has at a time in units.
    pub(crate) fn tokens(self, full: u64, now: u64) -> usize {
        let missing = full.saturating_sub(now).min(self.burst);
        ((self.burst - missing) / self.token) as usize
    }

    /// Converts nanoseconds to units. Rounds down, so that no token is available early.
    #[inline]
    pub(crate) fn units(self, nanos: u64) -> u64 {
        let units = (u128::from(nanos) * u128::from(self.scale)) >> SCALE_BITS;
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Converts units to nanoseconds, rounded to the nearest.
    pub(crate) fn nearest_nanos(self, units: u64) -> u64 {
        self.nanos(units, self.scale / 2)
    }

    /// Returns the first nanosecond at which these units are over.
    pub(crate) fn nanos_after(self, units: u64) -> u64 {
        self.nanos(units, self.scale - 1)
    }

    #[inline]
    fn nanos(self, units: u64, round: u64) -> u64 {
        if self.scale == SCALE_ONE || units == 0 {
            return units;
        }
        let nanos =
            ((u128::from(units) << SCALE_BITS) + u128::from(round)) / u128::from(self.scale);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// Asserts that no setting makes a factor zero or overflows.
    fn assert_sound(rate: Rate, burst: u32) {
        assert!(rate.token >= 1 && rate.scale >= 1, "{rate:?}");
        let full = u128::from(rate.token) * u128::from(burst);
        assert_eq!(u128::from(rate.burst), full, "{rate:?} saturates");
    }

    // T1 G5
    #[test]
    fn a_bucket_has_as_many_tokens_as_can_be_taken() {
        for rate in [Rate::new(10.0, 3), Rate::new(3.0, 7), Rate::new(0.7, 1)] {
            let (mut full, mut now) = (0, 0);
            for step in 0..1000 {
                now += SECOND / 9 * (step % 4);
                let units = rate.units(now);
                let mut taken = 0;
                let mut after = full;
                while rate.nanos_after(rate.next(after)) <= now {
                    after = rate.take(after, units);
                    taken += 1;
                }
                assert_eq!(rate.tokens(full, units), taken, "{rate:?} at {now}");
                if taken > 0 {
                    full = rate.take(full, units);
                }
            }
        }
    }

    // L5
    #[test]
    fn a_rate_that_divides_a_second_counts_in_nanoseconds() {
        for per_second in [0.1, 1.0, 10.0, 64.0, 100.0, 1000.0, 1e9] {
            let rate = Rate::new(per_second, 1);
            assert_eq!(rate.scale, SCALE_ONE, "{per_second}");
            assert_eq!(rate.token as f64, 1e9 / per_second, "{per_second}");
        }
    }

    // L5, L13
    #[test]
    fn the_most_extreme_settings_are_sound() {
        for per_second in [f64::MIN_POSITIVE, 5e-324, 1e-12, 1.0 / 3.0, 1e12, f64::MAX] {
            for burst in [1, 3, u32::MAX] {
                assert_sound(Rate::new(per_second, burst), burst);
            }
        }
        assert_eq!(Rate::new(1e12, 1).take(5, 0), 6);
    }

    #[test] // T1 G5
    fn a_bucket_gives_its_burst_and_then_one_token_an_interval() {
        let rate = Rate::new(10.0, 3);
        let mut full = 0;
        for now in [0, 0, 0, SECOND / 10, SECOND / 5] {
            assert!(rate.next(full) <= now, "{now}");
            full = rate.take(full, now);
            if now > 0 {
                assert_eq!(rate.next(full), now + SECOND / 10);
            }
        }
        // A second later it is full.
        let now = full + SECOND;
        for _ in 0..3 {
            assert!(rate.next(full) <= now);
            full = rate.take(full, now);
        }
        assert_eq!(rate.next(full), now + SECOND / 10);
    }

    #[test] // T1 G5 L5
    fn three_a_second_are_three_a_second() {
        let rate = Rate::new(3.0, 1);
        let (mut full, mut now) = (0, 0);
        // A token is taken as soon as there is one, for a week.
        for token in 0..3 * 7 * 86_400_u64 {
            assert_eq!(now, (token * SECOND).div_ceil(3), "token {token}");
            full = rate.take(full, rate.units(now));
            now = rate.nanos_after(rate.next(full));
        }
    }

    // L5
    #[test]
    fn a_delay_is_rounded_to_the_nearest_nanosecond() {
        let rate = Rate::new(0.001, u32::MAX);
        assert!(rate.scale < SCALE_ONE, "{}", rate.scale);
        for units in 1..1000 {
            let nanos = u128::from(rate.nearest_nanos(units));
            let off = (nanos * u128::from(rate.scale)).abs_diff(u128::from(units) << SCALE_BITS);
            let scale = u128::from(rate.scale);
            assert!(2 * off <= scale, "{units} units, {nanos} ns");
        }
    }

    proptest! {
        // T1 L5
        #[test]
        fn units_are_over_in_the_nanosecond_that_is_said(
            bits in any::<u64>(),
            burst in 1..=u32::MAX,
            units in 1..1_u64 << 60,
        ) {
            let per_second = f64::from_bits(bits >> 1);
            prop_assume!(per_second > 0.0 && per_second.is_finite());
            let rate = Rate::new(per_second, burst);
            assert_sound(rate, burst);
            let after = rate.nanos_after(units);
            prop_assert!(after == u64::MAX || rate.units(after) >= units);
            prop_assert!(rate.units(after - 1) < units);
        }
    }
}
