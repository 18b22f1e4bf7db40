//! Exponential back-off per key, in whole nanoseconds.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::RateLimiter;
use super::per_key::PerKey;
use crate::nanos;
use crate::{Clock, ConfigError};

/// Doubles a key's delay at each failure: `min(base * 2^n, max)` after `n` earlier failures.
///
/// Exact for every `n`, and saturating: once at `max`, a key stays there. (client-go computes in floating
/// point, where one product slips through its overflow guard and becomes an immediate retry.)
///
/// A key that has been idle for longer than twice `max` is forgotten. Idle counts from the key's last
/// [`when`](RateLimiter::when), so it includes the delay itself and the time that the next try takes; if
/// that can be long beside `max`, see [`remember_for`](Self::remember_for).
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let limiter = ItemExponentialFailure::<u64>::new(Duration::from_secs(1), Duration::from_secs(5))?;
/// let delays: Vec<u64> = (0..5).map(|_| limiter.when(&42).as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 5, 5]);
/// assert_eq!(limiter.num_requeues(&42), 5);
/// # Ok(())
/// # }
/// ```
pub struct ItemExponentialFailure<K: ?Sized> {
    base: Duration,
    max: Duration,
    /// `base` in nanoseconds, if it has so few.
    short_base: u64,
    /// The delays after fewer failures than this are products of `short_base`, not above `max` and in range.
    short_delays: u32,
    failures: PerKey<K>,
}

impl<K: ?Sized> ItemExponentialFailure<K> {
    /// Creates a limiter that starts at `base` and ends at `max`.
    ///
    /// A `base` of zero never delays, whatever `max` is.
    ///
    /// # Errors
    ///
    /// Refuses a `max` below `base`.
    pub fn new(base: Duration, max: Duration) -> Result<Self, ConfigError> {
        if max < base {
            let requirement = format!("must not be below `base`, {base:?}");
            return Err(ConfigError::new("rate limiter", "max", requirement, max));
        }
        Ok(Self::of(base, max))
    }

    /// [`new`](Self::new) for settings that are known to be valid.
    pub(super) fn of(base: Duration, max: Duration) -> Self {
        let short_base = u64::try_from(base.as_nanos()).unwrap_or(0);
        let products = nanos::saturating(max).checked_div(short_base);
        let short_delays = products
            .and_then(u64::checked_ilog2)
            .map_or(0, |doublings| doublings + 1);
        Self {
            base,
            max,
            short_base,
            short_delays,
            failures: PerKey::new(max),
        }
    }

    /// Tells idle time by `clock`; for a new limiter.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.failures = self.failures.with_clock(clock);
        self
    }

    /// Remembers an idle key for `idle`, if that is longer than twice `max`.
    ///
    /// To be set if a failing try, with its wait in the queue, may take longer than twice `max`: its
    /// failures would otherwise be forgotten while it runs, and would never add up.
    #[must_use]
    pub fn remember_for(mut self, idle: Duration) -> Self {
        self.failures = self.failures.remember_for(idle);
        self
    }

    /// Returns how many keys take up memory.
    ///
    /// Keys that have been idle for too long may still be among them, until later calls free their place.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.failures.tracked()
    }

    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        if failures < self.short_delays {
            Duration::from_nanos(self.short_base << failures)
        } else {
            self.long_delay(failures)
        }
    }

    /// As [`delay`](Self::delay), in 128 bits.
    #[inline(never)]
    fn long_delay(&self, failures: u32) -> Duration {
        let base = self.base.as_nanos();
        // A shift by fewer places than there are leading zeros loses no bit; and zero stays zero.
        if failures < base.leading_zeros() || base == 0 {
            let delay = base.checked_shl(failures).unwrap_or(0);
            nanos::duration(delay).min(self.max)
        } else {
            self.max
        }
    }
}

impl<K: Hash + ?Sized> RateLimiter<K> for ItemExponentialFailure<K> {
    fn when(&self, key: &K) -> Duration {
        self.delay(self.failures.record(key))
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.count(key)
    }
}

impl<K: ?Sized> fmt::Debug for ItemExponentialFailure<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemExponentialFailure")
            .field("base", &self.base)
            .field("max", &self.max)
            .field("failures", &self.failures)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The formula, by repeated doubling.
    fn doubled(base: Duration, max: Duration, n: u32) -> Duration {
        let mut delay = base;
        for _ in 0..n {
            delay = delay.saturating_mul(2);
            if delay >= max {
                return max;
            }
        }
        delay.min(max)
    }

    proptest! {
        // L3
        #[test]
        fn the_delay_is_exact_for_every_count(
            secs in 0..=u64::MAX,
            below in 0..1_000_000_000_u32,
            shrink in 0..94_u32,
            max_more in any::<(u64, u32)>(),
            n in prop_oneof![0..130_u32, any::<u32>().prop_map(|n| n.saturating_sub(1) % 4096)],
        ) {
            let base = nanos::duration(Duration::new(secs, below).as_nanos() >> shrink);
            let more = Duration::from_secs(max_more.0 >> (max_more.1 % 64));
            let max = base.saturating_add(more);
            let limiter = ItemExponentialFailure::<u8>::of(base, max);
            prop_assert_eq!(limiter.delay(n), doubled(base, max, n));
        }
    }

    // L3: a multiple of a power of two is the first to become nothing when it is shifted too far.
    #[test]
    fn no_doubling_shifts_a_delay_away() {
        let max = Duration::MAX;
        for base in [1, 2, 3, 5_000_000, 1 << 40, 3 << 60, 1 << 63] {
            let base = Duration::from_nanos(base);
            let limiter = ItemExponentialFailure::<u8>::of(base, max);
            for n in 0..=130 {
                assert_eq!(limiter.delay(n), doubled(base, max, n), "{base:?}, {n}");
            }
        }
    }

    // L3
    #[test]
    fn the_largest_count_still_gives_the_maximum() {
        let longest = ItemExponentialFailure::<u8>::of(Duration::from_nanos(1), Duration::MAX);
        assert_eq!(longest.delay(63), Duration::from_nanos(1 << 63));
        assert_eq!(longest.delay(u32::MAX), Duration::MAX);
        let none = ItemExponentialFailure::<u8>::of(Duration::ZERO, Duration::MAX);
        assert_eq!(none.delay(u32::MAX), Duration::ZERO);
    }
}
