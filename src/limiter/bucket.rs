//! A token bucket over all keys, in one atomic: [`crate::time::rate`] with reservations. Converting the time
//! and the returned delay rounds by less than 2 ns per call.

use std::fmt;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::RateLimiter;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::time::rate::Rate;
use crate::{Clock, ConfigError};

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
    rate: Rate,
    clock: Clock,
    /// When the bucket is full again, in units since the clock's start. Every call writes it, so it
    /// has a cache line to itself.
    full: CachePadded<AtomicU64>,
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
        Ok(Self {
            per_second,
            burst,
            rate: Rate::new(per_second, burst),
            clock: Clock::new(),
            full: CachePadded::new(AtomicU64::new(0)),
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
        let rate = self.rate;
        let now = rate.units(self.clock.nanos_of_this_core());
        let reserve = |full| Some(rate.take(full, now));
        // Ordering: Relaxed, both; read-modify-writes of one atomic are totally ordered, and it
        // publishes only its own value.
        let (Ok(full) | Err(full)) =
            self.full
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        Duration::from_nanos(rate.nearest_nanos(rate.next(full).saturating_sub(now)))
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

    // L5, L13
    #[test]
    fn the_most_extreme_settings_are_sound() {
        for rate in [f64::MIN_POSITIVE, 5e-324, 1e-12, 1.0 / 3.0, 1e12, f64::MAX] {
            for burst in [1, 3, u32::MAX] {
                let bucket = Bucket::new(rate, burst).unwrap();
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
            // As if all but one token of the burst had been taken.
            let others = u64::MAX - bucket.rate.next(u64::MAX);
            // Ordering: Relaxed; one thread.
            bucket.full.store(others, Ordering::Relaxed);
            prop_assert_eq!(bucket.reserve(), Duration::ZERO);
            prop_assert!(bucket.reserve() > Duration::ZERO);
        }
    }
}
