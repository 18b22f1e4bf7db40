use std::time::Duration;

use super::{PerKeyLimiter, Policy};
use crate::ConfigError;

/// Doubles a key's delay at each failure: `min(base * 2^n, max)` after `n` earlier failures.
///
/// The delay is exact for every `n`. (client-go computes in floating point; one product passes its
/// overflow guard and becomes an immediate retry.) A key that has been idle for longer than twice
/// `max` is forgotten; see [`PerKeyLimiter`].
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
/// use std::time::Duration;
///
/// let (base, max) = (Duration::from_secs(1), Duration::from_secs(5));
/// let limiter = ItemExponentialFailure::<u64>::new(base, max)?;
/// assert_eq!([0; 5].map(|_| limiter.when(&42).as_secs()), [1, 2, 4, 5, 5]);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub type ItemExponentialFailure<K> = PerKeyLimiter<K, Exponential>;

/// The delays of [`ItemExponentialFailure`].
#[derive(Clone, Copy, Debug)]
pub struct Exponential {
    base: Duration,
    max: Duration,
}

impl<K: ?Sized> ItemExponentialFailure<K> {
    /// Creates a limiter that starts at `base` and ends at `max`.
    ///
    /// With a `base` of zero, every delay is zero, whatever `max` is.
    ///
    /// # Errors
    ///
    /// Refuses a `max` below `base`.
    pub fn new(base: Duration, max: Duration) -> Result<Self, ConfigError> {
        if max < base {
            let requirement = format!("must not be below `base`, {base:?}");
            return Err(ConfigError::new("rate limiter", "max", requirement, max));
        }
        Ok(Self::with_policy(Exponential { base, max }))
    }
}

impl Policy for Exponential {
    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        let mut delay = self.base;
        // A nanosecond doubled 94 times exceeds `Duration::MAX`.
        let mut doublings = failures.min(94);
        while doublings > 0 && delay < self.max {
            let step = doublings.min(31);
            delay = delay.saturating_mul(1 << step);
            doublings -= step;
        }
        delay.min(self.max)
    }

    fn max(&self) -> Duration {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::nanos;
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
            prop_assert_eq!(Exponential { base, max }.delay(n), doubled(base, max, n));
        }
    }

    // L3: multiples of a power of two are the first to become zero when shifted too far.
    #[test]
    fn no_doubling_shifts_a_delay_away() {
        let max = Duration::MAX;
        for base in [1, 2, 3, 5_000_000, 1 << 40, 3 << 60, 1 << 63] {
            let base = Duration::from_nanos(base);
            for n in (0..=130).chain([u32::MAX]) {
                let delay = Exponential { base, max }.delay(n);
                assert_eq!(delay, doubled(base, max, n), "{base:?}, {n}");
            }
        }
        let base = Duration::ZERO;
        let none = Exponential { base, max };
        assert_eq!(none.delay(u32::MAX), Duration::ZERO);
    }
}
