use std::time::Duration;

use super::RateLimiter;

/// Limits the delays of another limiter to a maximum.
///
/// The inner limiter is charged in full: retries may exceed the rate of an inner
/// [`Bucket`](super::Bucket), which spends a token for each.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemExponentialFailure, RateLimiter, WithMaxWait};
/// use std::time::Duration;
///
/// let (base, max) = (Duration::from_secs(1), Duration::from_secs(1000));
/// let inner = ItemExponentialFailure::<str>::new(base, max)?;
/// let limiter = WithMaxWait::new(inner, Duration::from_secs(3));
/// let delays: Vec<u64> = (0..4).map(|_| limiter.when("key").as_secs()).collect();
/// assert_eq!(delays, [1, 2, 3, 3]);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct WithMaxWait<L> {
    inner: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// Creates a limiter that returns the delays of `inner`, but at most `max`.
    #[must_use]
    pub fn new(inner: L, max: Duration) -> Self {
        Self { inner, max }
    }
}

impl<K: ?Sized, L: RateLimiter<K>> RateLimiter<K> for WithMaxWait<L> {
    fn when(&self, key: &K) -> Duration {
        self.inner.when(key).min(self.max)
    }

    fn reserve(&self, key: &K, used: &mut dyn FnMut(Duration) -> bool) -> bool {
        self.inner
            .reserve(key, &mut |delay| used(delay.min(self.max)))
    }

    fn forget(&self, key: &K) {
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.inner.num_requeues(key)
    }
}
