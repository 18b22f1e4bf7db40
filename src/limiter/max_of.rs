use std::fmt;
use std::time::Duration;

use super::RateLimiter;

/// Combines several limiters, and returns the longest of their delays.
///
/// Every call reaches every child. [`num_requeues`](RateLimiter::num_requeues) returns the largest
/// of their counts. Without children, every delay is zero.
///
/// A child that counts failures forgets a key that waits for longer than it remembers, also if the delay is another child's: beside
/// a [`Bucket`](super::Bucket), let it [`remember_for`](super::PerKeyLimiter::remember_for) longer.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{Bucket, ItemFastSlow, MaxOf, RateLimiter};
/// use std::time::Duration;
///
/// let (fast, slow) = (Duration::from_millis(5), Duration::from_secs(3));
/// let fast_slow: Box<dyn RateLimiter<str>> = Box::new(ItemFastSlow::new(fast, slow, 1)?);
/// let limiter = MaxOf::new([fast_slow, Box::new(Bucket::new(100.0, 100)?)]);
/// assert_eq!([limiter.when("key"), limiter.when("key")], [fast, slow]);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub struct MaxOf<K: ?Sized> {
    limiters: Vec<Box<dyn RateLimiter<K>>>,
}

impl<K: ?Sized> MaxOf<K> {
    /// Creates a limiter from any number of others.
    #[must_use]
    pub fn new(limiters: impl IntoIterator<Item = Box<dyn RateLimiter<K>>>) -> Self {
        Self {
            limiters: limiters.into_iter().collect(),
        }
    }
}

impl<K: ?Sized> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K) -> Duration {
        let delays = self.limiters.iter().map(|child| child.when(key));
        delays.max().unwrap_or(Duration::ZERO)
    }

    fn reserve(&self, key: &K, used: &mut dyn FnMut(Duration) -> bool) -> bool {
        reserve(&self.limiters, key, Duration::ZERO, used)
    }

    fn forget(&self, key: &K) {
        for child in &self.limiters {
            child.forget(key);
        }
    }

    fn num_requeues(&self, key: &K) -> u32 {
        let counts = self.limiters.iter().map(|child| child.num_requeues(key));
        counts.max().unwrap_or(0)
    }
}

/// Each child calls the next one, and the last one `used`, so each knows what it has reserved itself,
/// whichever delay is the longest.
fn reserve<K: ?Sized>(
    limiters: &[Box<dyn RateLimiter<K>>],
    key: &K,
    longest: Duration,
    used: &mut dyn FnMut(Duration) -> bool,
) -> bool {
    match limiters.split_first() {
        None => used(longest),
        Some((child, others)) => child.reserve(key, &mut |delay| {
            reserve(others, key, longest.max(delay), used)
        }),
    }
}

impl<K: ?Sized> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf")
            .field("limiters", &self.limiters.len())
            .finish()
    }
}
