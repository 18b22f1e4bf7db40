//! Randomised delays, so that keys that failed together are not retried together.

use std::sync::PoisonError;
use std::time::Duration;

use super::RateLimiter;
use crate::sync::Mutex;
use crate::time::nanos;

/// How much of a delay [`Jittered`] randomises.
///
/// The names are those of the AWS Architecture Blog, "Exponential Backoff And Jitter".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Jitter {
    /// All of it: a delay of `d` becomes a random one from zero to `d`. Spreads retries the most.
    Full,
    /// Half of it: a delay of `d` becomes a random one from `d / 2` to `d`. Never retries
    /// immediately.
    Equal,
}

/// Randomises the delays of another limiter, and never exceeds them.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemExponentialFailure, Jitter, Jittered, RateLimiter};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let (base, max) = (Duration::from_secs(1), Duration::from_secs(1000));
/// let inner = ItemExponentialFailure::<str>::new(base, max)?;
/// let limiter = Jittered::new(inner, Jitter::Equal);
/// for n in 0..5 {
///     let exact = Duration::from_secs(1 << n);
///     let delay = limiter.when("key");
///     assert!(exact / 2 <= delay && delay <= exact);
/// }
/// assert_eq!(limiter.num_requeues("key"), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Jittered<L> {
    inner: L,
    jitter: Jitter,
    random: Mutex<fastrand::Rng>,
}

impl<L> Jittered<L> {
    /// Creates a limiter that randomises the delays of `inner`, from a random seed.
    #[must_use]
    pub fn new(inner: L, jitter: Jitter) -> Self {
        Self {
            inner,
            jitter,
            random: Mutex::new(fastrand::Rng::new()),
        }
    }

    /// Seeds the random numbers with `seed`: the same sequence of calls gets the same delays.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.random = Mutex::new(fastrand::Rng::with_seed(seed));
        self
    }

    /// Returns a random whole number of nanoseconds from `shortest` to `longest`.
    fn between(&self, shortest: u128, longest: u128) -> Duration {
        // No panic under the lock can leave the generator unusable.
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        nanos::duration(random.u128(shortest..=longest))
    }
}

impl<K: ?Sized, L: RateLimiter<K>> RateLimiter<K> for Jittered<L> {
    fn when(&self, key: &K) -> Duration {
        let longest = self.inner.when(key).as_nanos();
        match self.jitter {
            Jitter::Full => self.between(0, longest),
            Jitter::Equal => self.between(longest.div_ceil(2), longest),
        }
    }

    fn forget(&self, key: &K) {
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.inner.num_requeues(key)
    }
}
