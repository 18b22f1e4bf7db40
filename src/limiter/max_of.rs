//! Several limiters combined: the longest delay counts.

use std::fmt;
use std::time::Duration;

use super::RateLimiter;

/// Combines several limiters, and returns the longest of their delays.
///
/// Every call charges every child. [`num_requeues`](RateLimiter::num_requeues) returns the largest
/// of their counts, and [`forget`](RateLimiter::forget) is passed on to all of them. Without
/// children, every delay is zero.
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
/// ]);
/// assert_eq!(limiter.when("key"), Duration::from_millis(5));
/// assert_eq!(limiter.when("key"), Duration::from_secs(3));
/// # Ok(())
/// # }
/// ```
pub struct MaxOf<K: ?Sized> {
    limiters: Vec<Box<dyn RateLimiter<K>>>,
}

impl<K: ?Sized> MaxOf<K> {
    /// Creates a limiter from any number of others.
    #[must_use]
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn RateLimiter<K>>>) -> Self {
        let limiters = limiters.into_iter().collect();
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
