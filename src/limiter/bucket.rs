//! A token bucket over all keys, in one atomic.
//!
//! This is the generic cell rate algorithm (GCRA, ITU-T I.371) with reservations. Its only state is
//! the theoretical arrival time: the time at which all tokens spent so far will have been refilled.
//!
//! ```text
//!     arrival' = max(arrival, now) + token        token: the time to refill one token
//!     delay    = max(0, arrival' - burst * token - now)
//! ```
//!
//! # Units
//!
//! One token must be a whole number of time units; otherwise each call would round, and the errors
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
//! The arrival time is some `now` plus a whole number of tokens, so only exact numbers accumulate.
//! Converting `now` and the returned delay rounds by less than 2 ns per call. The rate itself is as
//! precise as an `f64`: 1 ns in 52 days. If the bucket takes more than 146 years to fill, the unit
//! is longer, so that the whole burst fits in 64 bits.

use std::fmt;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::RateLimiter;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Clock, ConfigError};

/// The longest time in units that a whole burst may take: a quarter of the range of `arrival`.
const LONGEST_BURST: f64 = (1_u64 << 62) as f64;

/// `scale` is a fixed-point number with this many fractional bits.
const SCALE_BITS: u32 = 62;
const SCALE_ONE: u64 = 1 << SCALE_BITS;

/// A token bucket for all keys together: at most `burst` calls at once, `per_second` in the long
/// run.
///
/// Each call reserves a token, and returns how long it takes until that token is available. So
/// reservations queue up: with 10 a second and a burst of 100, the 10 000th call at the same moment
/// waits 990 s. [`WithMaxWait`](super::WithMaxWait) limits the delay.
///
/// It counts nothing per key: [`num_requeues`](RateLimiter::num_requeues) is zero.
///
/// Delays are exact to 2 ns and do not drift. Rates above one token per nanosecond count as that,
/// rates below one token in 584 years as that.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::limiter::{Bucket, RateLimiter};
/// use std::time::Duration;
///
/// let (clock, mock) = Clock::mock();
/// let bucket = Bucket::new(10.0, 2)?.with_clock(clock);
/// let delays = ["a", "b", "c", "d"].map(|key| bucket.when(key).as_millis());
/// assert_eq!(delays, [0, 0, 100, 200]);
///
/// mock.advance(Duration::from_millis(300));
/// assert_eq!(bucket.when("e"), Duration::ZERO);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub struct Bucket {
    per_second: f64,
    burst: u32,
    /// Units per token, at least 1.
    token: u64,
    /// Units of a full bucket: `burst * token`.
    full: u64,
    /// Units per nanosecond, in fixed point; never zero.
    scale: u64,
    clock: Clock,
    /// The theoretical arrival time, in units since the clock's start. Every call writes it, so it
    /// has a cache line to itself.
    arrival: CachePadded<AtomicU64>,
}

impl Bucket {
    /// Creates a full bucket of `burst` tokens that is refilled at `per_second` tokens a second.
    ///
    /// # Errors
    ///
    /// Refuses a `per_second` that is not above zero and finite, and a `burst` of zero.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, ConfigError> {
        let part = "rate limiter";
        if !(per_second > 0.0 && per_second.is_finite()) {
            let rule = "must be above 0 and finite";
            return Err(ConfigError::new(part, "per_second", rule, per_second));
        }
        if burst == 0 {
            return Err(ConfigError::new(part, "burst", "must be above 0", burst));
        }
        let nanos_per_token = (1e9 / per_second).clamp(1.0, u64::MAX as f64);
        let nanos_per_unit = (nanos_per_token * f64::from(burst) / LONGEST_BURST).max(1.0);
        let token = (nanos_per_token / nanos_per_unit).ceil();
        let scale = token / nanos_per_token * SCALE_ONE as f64;
        // All three values to cast are above zero and below 2^64.
        let token = token as u64;
        Ok(Self {
            per_second,
            burst,
            token,
            full: token.saturating_mul(u64::from(burst)),
            scale: scale as u64,
            clock: Clock::new(),
            arrival: CachePadded::new(AtomicU64::new(0)),
        })
    }

    /// Reads the time from `clock`. Call it only on a new bucket.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Reserves one token, and returns how long it takes until it is available.
    fn reserve(&self) -> Duration {
        let now = self.units(self.clock.nanos_of_this_core());
        let next = |arrival: u64| arrival.max(now).saturating_add(self.token);
        let reserve = |arrival| Some(next(arrival));
        // Ordering: Relaxed, both; read-modify-writes of one atomic are totally ordered, and it
        // publishes only its own value.
        let (Ok(arrival) | Err(arrival)) =
            self.arrival
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        self.time(next(arrival).saturating_sub(self.full).saturating_sub(now))
    }

    /// Converts nanoseconds to units. Rounds down, so that no token is available early.
    fn units(&self, nanos: u64) -> u64 {
        let units = (u128::from(nanos) * u128::from(self.scale)) >> SCALE_BITS;
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Converts units to nanoseconds, rounded to the nearest.
    fn time(&self, units: u64) -> Duration {
        if self.scale == SCALE_ONE || units == 0 {
            return Duration::from_nanos(units);
        }
        let scale = u128::from(self.scale);
        let nanos = ((u128::from(units) << SCALE_BITS) + scale / 2) / scale;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl<K: ?Sized> RateLimiter<K> for Bucket {
    fn when(&self, _: &K) -> Duration {
        self.reserve()
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("per_second", &self.per_second)
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Asserts that no setting makes a factor zero or overflows.
    fn assert_sound(bucket: &Bucket) {
        assert!(bucket.token >= 1, "{bucket:?}: token {}", bucket.token);
        assert!(bucket.scale >= 1, "{bucket:?}: scale {}", bucket.scale);
        let full = u128::from(bucket.token) * u128::from(bucket.burst);
        assert_eq!(u128::from(bucket.full), full, "{bucket:?} saturates");
    }

    #[test]
    fn a_rate_that_divides_a_second_counts_in_nanoseconds() {
        for rate in [0.1, 1.0, 10.0, 64.0, 100.0, 1000.0, 1e9] {
            let bucket = Bucket::new(rate, 1).unwrap();
            assert_eq!(bucket.scale, SCALE_ONE, "{rate}");
            assert_eq!(bucket.token as f64, 1e9 / rate, "{rate}");
        }
    }

    // L5, L13
    #[test]
    fn the_most_extreme_settings_are_sound() {
        for rate in [f64::MIN_POSITIVE, 5e-324, 1e-12, 1.0 / 3.0, 1e12, f64::MAX] {
            for burst in [1, 3, u32::MAX] {
                let bucket = Bucket::new(rate, burst).unwrap();
                assert_sound(&bucket);
                assert_eq!(bucket.reserve(), Duration::ZERO, "{rate}, {burst}");
            }
        }
        let (clock, _mock) = Clock::mock();
        let slowest = Bucket::new(f64::MIN_POSITIVE, 1).unwrap().with_clock(clock);
        slowest.reserve();
        for _ in 0..10 {
            assert!(slowest.reserve() > Duration::from_secs(500 * 365 * 86_400));
        }
    }

    // L5
    #[test]
    fn a_delay_is_rounded_to_the_nearest_nanosecond() {
        let bucket = Bucket::new(0.001, u32::MAX).unwrap();
        assert!(bucket.scale < SCALE_ONE, "{}", bucket.scale);
        for units in 1..1000 {
            let nanos = bucket.time(units).as_nanos();
            let off = (nanos * u128::from(bucket.scale)).abs_diff(u128::from(units) << SCALE_BITS);
            assert!(
                2 * off <= u128::from(bucket.scale),
                "{units} units, {nanos} ns"
            );
        }
    }

    proptest! {
        // L5
        #[test]
        fn every_setting_is_sound_and_gives_its_burst_at_once(
            bits in any::<u64>(),
            burst in 1..=u32::MAX,
        ) {
            let rate = f64::from_bits(bits >> 1);
            prop_assume!(rate > 0.0 && rate.is_finite());
            let (clock, _mock) = Clock::mock();
            let bucket = Bucket::new(rate, burst).unwrap().with_clock(clock);
            assert_sound(&bucket);
            // As if all but one token of the burst had been taken.
            // Ordering: Relaxed; one thread.
            bucket.arrival.store(bucket.full - bucket.token, Ordering::Relaxed);
            prop_assert_eq!(bucket.reserve(), Duration::ZERO);
            prop_assert!(bucket.reserve() > Duration::ZERO);
        }
    }
}
