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
    /// All of it: a delay of `d` becomes a random one from zero to `d`.
    Full,
    /// Half of it: a delay of `d` becomes a random one from `d / 2` to `d`.
    Equal,
}

/// Randomises the delays of another limiter, and never exceeds them: keys that failed together are
/// not retried together.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemExponentialFailure, Jitter, Jittered, RateLimiter};
/// use std::time::Duration;
///
/// let (base, max) = (Duration::from_secs(1), Duration::from_secs(1000));
/// let inner = ItemExponentialFailure::<str>::new(base, max)?;
/// let limiter = Jittered::new(inner, Jitter::Equal);
/// for exact in [base, base * 2, base * 4] {
///     assert!((exact / 2..=exact).contains(&limiter.when("key")));
/// }
/// # Ok::<(), keyqueue::ConfigError>(())
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

    fn randomise(&self, delay: Duration) -> Duration {
        let longest = delay.as_nanos();
        let shortest = match self.jitter {
            Jitter::Full => 0,
            Jitter::Equal => longest.div_ceil(2),
        };
        nanos::duration(self.random.lock().u128(shortest..=longest))
    }
}

impl<K: ?Sized, L: RateLimiter<K>> RateLimiter<K> for Jittered<L> {
    fn when(&self, key: &K) -> Duration {
        self.randomise(self.inner.when(key))
    }

    fn reserve(&self, key: &K, used: &mut dyn FnMut(Duration) -> bool) -> bool {
        self.inner
            .reserve(key, &mut |delay| used(self.randomise(delay)))
    }

    fn forget(&self, key: &K) {
        self.inner.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.inner.num_requeues(key)
    }
}
