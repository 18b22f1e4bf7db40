//! Several limiters at once: the longest delay counts.

use std::fmt;
use std::time::Duration;

use super::RateLimiter;
use crate::ConfigError;

/// Asks several limiters and answers the longest delay.
///
/// Every child is asked, and so charged, at every call. [`num_requeues`](RateLimiter::num_requeues) is the
/// largest of theirs, and [`forget`](RateLimiter::forget) reaches all of them. Without children there is
/// no delay.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{Bucket, ItemFastSlow, MaxOf, RateLimiter};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let fast_slow = ItemFastSlow::<str>::new(Duration::from_millis(5), Duration::from_secs(3), 1)?;
/// let limiter = MaxOf::<str>::new([
///     Box::new(fast_slow) as Box<dyn RateLimiter<str>>,
///     Box::new(Bucket::new(100.0, 100)?),
/// ])?;
/// assert_eq!(limiter.when("key"), Duration::from_millis(5));
/// assert_eq!(limiter.when("key"), Duration::from_secs(3));
/// # Ok(())
/// # }
/// ```
pub struct MaxOf<K: ?Sized> {
    limiters: Vec<Box<dyn RateLimiter<K>>>,
}

impl<K: ?Sized> MaxOf<K> {
    /// Creates a limiter over any number of others.
    ///
    /// # Errors
    ///
    /// None today: a `Result` as every limiter's `new` returns.
    pub fn new(
        limiters: impl IntoIterator<Item = Box<dyn RateLimiter<K>>>,
    ) -> Result<Self, ConfigError> {
        Ok(Self::of(limiters.into_iter().collect()))
    }

    /// [`new`](Self::new) without the `Result`.
    pub(super) fn of(limiters: Vec<Box<dyn RateLimiter<K>>>) -> Self {
        Self { limiters }
    }
}

impl<K: ?Sized> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K) -> Duration {
        let delays = self.limiters.iter().map(|limiter| limiter.when(key));
        delays.max().unwrap_or(Duration::ZERO)
    }

    fn forget(&self, key: &K) {
        for limiter in &self.limiters {
            limiter.forget(key);
        }
    }

    fn num_requeues(&self, key: &K) -> u32 {
        let counts = self
            .limiters
            .iter()
            .map(|limiter| limiter.num_requeues(key));
        counts.max().unwrap_or(0)
    }
}

impl<K: ?Sized> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf")
            .field("limiters", &self.limiters.len())
            .finish()
    }
}
