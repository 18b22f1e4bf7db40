//! Fast retries first, slow ones then, per key.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::RateLimiter;
use super::per_key::PerKey;
use crate::{Clock, ConfigError};

/// Delays a key's first failures by a short time, and all later ones by a long time.
///
/// A key that has been idle for longer than twice the slow delay is forgotten. Idle counts from the key's
/// last [`when`](RateLimiter::when), so it includes the delay itself and the time that the next try takes;
/// if that can be long beside the slow delay, see [`remember_for`](Self::remember_for).
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemFastSlow, RateLimiter};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let limiter = ItemFastSlow::<str>::new(Duration::from_millis(5), Duration::from_secs(10), 2)?;
/// assert_eq!(limiter.when("key"), Duration::from_millis(5));
/// assert_eq!(limiter.when("key"), Duration::from_millis(5));
/// assert_eq!(limiter.when("key"), Duration::from_secs(10));
/// # Ok(())
/// # }
/// ```
pub struct ItemFastSlow<K: ?Sized> {
    fast: Duration,
    slow: Duration,
    max_fast: u32,
    failures: PerKey<K>,
}

impl<K: ?Sized> ItemFastSlow<K> {
    /// Creates a limiter that answers `fast` to the first `max_fast` failures of a key, then `slow`.
    ///
    /// With a `max_fast` of zero it is always slow.
    ///
    /// # Errors
    ///
    /// Refuses a `slow` below `fast`.
    pub fn new(fast: Duration, slow: Duration, max_fast: u32) -> Result<Self, ConfigError> {
        if slow < fast {
            let requirement = format!("must not be below `fast`, {fast:?}");
            return Err(ConfigError::new("rate limiter", "slow", requirement, slow));
        }
        Ok(Self {
            fast,
            slow,
            max_fast,
            failures: PerKey::new(slow),
        })
    }

    /// Tells idle time by `clock`; for a new limiter.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.failures = self.failures.with_clock(clock);
        self
    }

    /// Remembers an idle key for `idle`, if that is longer than twice the slow delay.
    ///
    /// To be set if a failing try, with its wait in the queue, may take longer than that: its failures
    /// would otherwise be forgotten while it runs, and would never add up.
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
}

impl<K: Hash + ?Sized> RateLimiter<K> for ItemFastSlow<K> {
    fn when(&self, key: &K) -> Duration {
        if self.failures.record(key) < self.max_fast {
            self.fast
        } else {
            self.slow
        }
    }

    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    fn num_requeues(&self, key: &K) -> u32 {
        self.failures.count(key)
    }
}

impl<K: ?Sized> fmt::Debug for ItemFastSlow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemFastSlow")
            .field("fast", &self.fast)
            .field("slow", &self.slow)
            .field("max_fast", &self.max_fast)
            .field("failures", &self.failures)
            .finish()
    }
}
