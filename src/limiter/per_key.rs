//! A key's `Hash` runs, and the clock is read, before a lock is taken, so no user code can panic or
//! call back under a lock.

mod counts;

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::time::Duration;

use super::RateLimiter;
use crate::DefaultHasher;
use crate::time::clock::Clock;
use crate::time::nanos;
use counts::Counts;

/// How long a limiter whose delays are all zero remembers an idle key.
const MEMORY_WITHOUT_DELAY: Duration = Duration::from_secs(60);

/// Computes the delay of a key from its number of failures, for a [`PerKeyLimiter`].
pub trait Policy: Send + Sync {
    /// Returns the delay after a failure of a key that had failed `failures` times before.
    fn delay(&self, failures: u32) -> Duration;

    /// Returns the longest delay. The limiter remembers an idle key for twice that.
    fn max(&self) -> Duration;
}

/// Delays each key according to the number of its failures: see
/// [`ItemExponentialFailure`](super::ItemExponentialFailure) and
/// [`ItemFastSlow`](super::ItemFastSlow), or implement your own [`Policy`].
///
/// A key that has been idle for longer than twice the longest delay is forgotten. Idle counts from
/// the key's last [`when`](RateLimiter::when), so it includes the delay itself and the time that
/// the next try takes: see [`remember_for`](Self::remember_for).
///
/// The limiter stores randomly seeded 64-bit hashes of keys, not the keys. Keys with the same hash
/// share a count; among a million failing keys, such a pair has a probability of 1 in 37 million.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{PerKeyLimiter, Policy, RateLimiter};
/// use std::time::Duration;
///
/// /// A second more with each failure, up to a minute.
/// struct Linear;
///
/// impl Policy for Linear {
///     fn delay(&self, failures: u32) -> Duration {
///         Duration::from_secs(u64::from(failures) + 1).min(self.max())
///     }
///
///     fn max(&self) -> Duration {
///         Duration::from_secs(60)
///     }
/// }
///
/// let limiter = PerKeyLimiter::<str, _>::with_policy(Linear);
/// assert_eq!([0; 3].map(|_| limiter.when("key").as_secs()), [1, 2, 3]);
/// ```
pub struct PerKeyLimiter<K: ?Sized, P> {
    policy: P,
    hasher: DefaultHasher,
    counts: Counts,
    clock: Clock,
    // Keys are only borrowed, so the limiter is `Send` and `Sync` whatever K is.
    keys: PhantomData<fn(&K)>,
}

impl<K: ?Sized, P: Policy> PerKeyLimiter<K, P> {
    /// Creates a limiter with the delays of `policy`.
    #[must_use]
    pub fn with_policy(policy: P) -> Self {
        let memory = match policy.max() {
            Duration::ZERO => MEMORY_WITHOUT_DELAY,
            max => max.saturating_mul(2),
        };
        Self {
            policy,
            hasher: DefaultHasher::default(),
            counts: Counts::new(nanos::saturating(memory)),
            clock: Clock::new(),
            keys: PhantomData,
        }
    }
}

impl<K: ?Sized, P> PerKeyLimiter<K, P> {
    /// Measures idle time by `clock`. Call it only on a new limiter.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Remembers an idle key for `idle`, if that is longer than twice the longest delay.
    ///
    /// Set it if a failing try, including its wait in the queue, may take longer than that: the
    /// failures would be forgotten meanwhile, and the delays would never grow.
    #[must_use]
    pub fn remember_for(mut self, idle: Duration) -> Self {
        self.counts.memory = self.counts.memory.max(nanos::saturating(idle));
        self
    }

    /// Returns the number of keys with failures, including idle ones that later calls will drop.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.counts.failing()
    }

    fn now(&self) -> u64 {
        self.clock.rough_nanos()
    }
}

impl<K: Hash + ?Sized, P> PerKeyLimiter<K, P> {
    /// Counts a failure whose retry waits for this long, and remembers it for that long besides.
    pub(crate) fn count(&self, key: &K, wait: Duration) {
        let wait = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        let hash = self.hasher.hash_one(key);
        self.counts.record_waiting(hash, self.now(), wait);
    }

    /// Remembers the failures of a key that is tried again after this time for that long besides.
    pub(crate) fn postpone(&self, key: &K, wait: Duration) {
        let wait = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        self.counts
            .postpone(self.hasher.hash_one(key), || self.now(), wait);
    }
}

impl<K: Hash + ?Sized, P: Policy> RateLimiter<K> for PerKeyLimiter<K, P> {
    fn when(&self, key: &K) -> Duration {
        let now = self.now();
        let failures = self.counts.record(self.hasher.hash_one(key), now);
        self.policy.delay(failures)
    }

    fn forget(&self, key: &K) {
        self.counts.forget(self.hasher.hash_one(key), || self.now());
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.counts.get(self.hasher.hash_one(key), || self.now())
    }
}

impl<K: ?Sized, P: fmt::Debug> fmt::Debug for PerKeyLimiter<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKeyLimiter")
            .field("policy", &self.policy)
            .field("tracked", &self.tracked())
            .field("memory", &Duration::from_nanos(self.counts.memory))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
