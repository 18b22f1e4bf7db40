use std::time::Duration;

use super::{PerKeyLimiter, Policy};
use crate::ConfigError;

/// Delays a key's first failures by a short time, and all later ones by a long time. A key that has
/// been idle for longer than twice the slow delay is forgotten; see [`PerKeyLimiter`].
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{ItemFastSlow, RateLimiter};
/// use std::time::Duration;
///
/// let (fast, slow) = (Duration::from_millis(5), Duration::from_secs(10));
/// let limiter = ItemFastSlow::<str>::new(fast, slow, 2)?;
/// assert_eq!([0; 3].map(|_| limiter.when("key")), [fast, fast, slow]);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub type ItemFastSlow<K> = PerKeyLimiter<K, FastSlow>;

/// The delays of [`ItemFastSlow`].
#[derive(Clone, Copy, Debug)]
pub struct FastSlow {
    fast: Duration,
    slow: Duration,
    max_fast: u32,
}

impl<K: ?Sized> ItemFastSlow<K> {
    /// Creates a limiter that returns `fast` for the first `max_fast` failures of a key, then
    /// `slow`.
    ///
    /// # Errors
    ///
    /// Refuses a `slow` below `fast`.
    pub fn new(fast: Duration, slow: Duration, max_fast: u32) -> Result<Self, ConfigError> {
        if slow < fast {
            let requirement = format!("must not be below `fast`, {fast:?}");
            return Err(ConfigError::new("rate limiter", "slow", requirement, slow));
        }
        Ok(Self::with_policy(FastSlow {
            fast,
            slow,
            max_fast,
        }))
    }
}

impl Policy for FastSlow {
    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        if failures < self.max_fast {
            self.fast
        } else {
            self.slow
        }
    }

    fn max(&self) -> Duration {
        self.slow
    }
}
