//! A limit to another limiter's delays.

use std::time::Duration;

use super::RateLimiter;
use crate::ConfigError;

/// Cuts the delays of another limiter at a maximum.
///
/// The inner limiter is charged in full: a [`Bucket`](super::Bucket) inside still spends a token for
/// each call, so with a maximum it no longer holds its rate.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemExponentialFailure, RateLimiter, WithMaxWait};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let inner = ItemExponentialFailure::<str>::new(Duration::from_secs(1), Duration::from_secs(1000))?;
/// let limiter = WithMaxWait::new(inner, Duration::from_secs(3))?;
/// let delays: Vec<u64> = (0..4).map(|_| limiter.when("key").as_secs()).collect();
/// assert_eq!(delays, [1, 2, 3, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WithMaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// Creates a limiter that answers what `inner` does, but `max` at most.
    ///
    /// # Errors
    ///
    /// None today: a `Result` as every limiter's `new` returns.
    pub fn new(inner: L, max: Duration) -> Result<Self, ConfigError> {
        Ok(Self { inner, max })
    }
}

impl<K: ?Sized, L: RateLimiter<K>> RateLimiter<K> for WithMaxWait<L> {
    fn when(&self, key: &K) -> Duration {
        self.inner.when(key).min(self.max)
    }

    fn forget(&self, key: &K) {
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.inner.num_requeues(key)
    }
}
