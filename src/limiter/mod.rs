//! Rate limiters: how long a key waits before it is tried again.
//!
//! Call [`when`](RateLimiter::when) at each failure of a key to get its delay, and
//! [`forget`](RateLimiter::forget) when the key succeeds. The names and formulas are those of
//! client-go's workqueue, without its overflows and without memory that grows until `forget`.
//!
//! | limiter | delays by | remembers |
//! | --- | --- | --- |
//! | [`NoLimit`] | zero | nothing |
//! | [`ItemExponentialFailure`] | min(base * 2^failures, max) | each key |
//! | [`ItemFastSlow`] | fast for the first failures, then slow | each key |
//! | [`PerKeyLimiter`] | what your own [`Policy`] returns | each key |
//! | [`Bucket`] | the wait for a token, from one bucket for all keys | one number |
//! | [`MaxOf`] | the longest of its children's delays | what its children do |
//! | [`WithMaxWait`] | the inner limiter's delay, up to a maximum | what the inner limiter does |
//! | [`Jittered`] | a random part of the inner limiter's delay | what the inner limiter does |
//!
//! A queue that is built without a limiter has an [`ItemExponentialFailure`] from 5 ms to 1000 s (L15).
//!
//! A queue that does not use a delay gives it back ([`reserve`](RateLimiter::reserve), L14): adding a key
//! whose delay is pending spends no token of a bucket.
//!
//! No limiter clones or stores keys. Those that remember each key are [`PerKeyLimiter`]s, and
//! forget a key once it has been idle for longer than twice their longest delay.
//!
//! # Examples
//!
//! ```
//! use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
//! use std::time::Duration;
//!
//! let (base, max) = (Duration::from_millis(5), Duration::from_secs(1000));
//! let limiter = ItemExponentialFailure::<str>::new(base, max)?;
//! assert_eq!(limiter.when("pod/a"), base);
//! assert_eq!(limiter.when("pod/a"), base * 2);
//! assert_eq!(limiter.when("pod/b"), base);
//! assert_eq!(limiter.num_requeues("pod/a"), 2);
//!
//! limiter.forget("pod/a");
//! assert_eq!(limiter.when("pod/a"), base);
//! # Ok::<(), keyqueue::ConfigError>(())
//! ```

mod bucket;
mod exponential;
mod fast_slow;
mod jittered;
mod max_of;
mod max_wait;
mod per_key;
pub(crate) mod unset;

use std::hash::Hash;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

pub use bucket::Bucket;
pub use exponential::{Exponential, ItemExponentialFailure};
pub use fast_slow::{FastSlow, ItemFastSlow};
pub use jittered::{Jitter, Jittered};
pub use max_of::MaxOf;
pub use max_wait::WithMaxWait;
pub use per_key::{PerKeyLimiter, Policy};

use crate::Clock;
use crate::sync::catch_panic::{catch_payload, drop_payload};

/// Decides how long a key waits before it is tried again.
///
/// Any thread may call any method at any time.
pub trait RateLimiter<K: ?Sized>: Send + Sync {
    /// Returns the delay after which `key` may be tried again, and charges the limiter: records one
    /// failure, or spends one token, whether or not the caller waits.
    fn when(&self, key: &K) -> Duration;

    /// Charges the limiter as [`when`](Self::when) does, calls `used` with the delay, once, and
    /// gives back what was reserved if that returns false: the delay is not used (L14). Returns what
    /// `used` returned.
    ///
    /// Failures stay counted: only tokens are given back. The provided method gives nothing back. A
    /// limiter that asks another one passes the call on, as in the example, and holds no lock while
    /// it calls `used`, which may add the key to its queue. What `used` has done stays done if the limiter panics after it: only
    /// the panic hook reports that.
    ///
    /// ```
    /// use keyqueue::Clock;
    /// use keyqueue::limiter::{Bucket, RateLimiter};
    /// use std::time::Duration;
    ///
    /// /// Doubles the delays of a bucket.
    /// struct Twice(Bucket);
    ///
    /// impl<K: ?Sized> RateLimiter<K> for Twice { // of any keys
    ///     fn when(&self, key: &K) -> Duration {
    ///         self.0.when(key) * 2
    ///     }
    ///
    ///     fn reserve(&self, key: &K, used: &mut dyn FnMut(Duration) -> bool) -> bool {
    ///         self.0.reserve(key, &mut |delay| used(delay * 2))
    ///     }
    ///
    ///     fn forget(&self, _: &K) {}
    ///
    ///     fn num_requeues(&self, _: &K) -> u32 {
    ///         0
    ///     }
    /// }
    ///
    /// let limiter = Twice(Bucket::new(10.0, 1)?.with_clock(Clock::mock().0));
    /// assert!(limiter.when("a").is_zero());
    /// for is_used in [false, false, true] {
    ///     limiter.reserve("a", &mut |delay| {
    ///         assert_eq!(delay.as_millis(), 200);
    ///         is_used
    ///     });
    /// }
    /// assert_eq!(limiter.when("a").as_millis(), 400);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    fn reserve(&self, key: &K, used: &mut dyn FnMut(Duration) -> bool) -> bool {
        used(self.when(key))
    }

    /// Clears the limiter's record of `key`. Does nothing if there is none.
    ///
    /// Call it when the key has succeeded or is given up.
    fn forget(&self, key: &K);

    /// Returns the number of failures of `key` since it was last forgotten, by a call or because it
    /// was idle. Returns zero if the limiter does not count failures.
    fn num_requeues(&self, key: &K) -> u32;
}

/// Implements the trait for pointers to a limiter.
macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<K: ?Sized, L: RateLimiter<K> + ?Sized> RateLimiter<K> for $pointer {
            fn when(&self, key: &K) -> Duration {
                (**self).when(key)
            }

            fn reserve(&self, key: &K, used: &mut dyn FnMut(Duration) -> bool) -> bool {
                (**self).reserve(key, used)
            }

            fn forget(&self, key: &K) {
                (**self).forget(key);
            }

            fn num_requeues(&self, key: &K) -> u32 {
                (**self).num_requeues(key)
            }
        }
    )*};
}

forward!(&L, Box<L>, Arc<L>);

/// Charges a limiter and runs `add` with its delay. That also returns whether the delay is used (L14). If the limiter panics,
/// the panic goes on unless the key was added.
#[inline]
pub(crate) fn charge<K: ?Sized, T>(
    limiter: &impl RateLimiter<K>,
    key: &K,
    mut add: impl FnMut(Duration) -> (T, bool),
) -> T {
    let mut result = None;
    let reserve = || {
        limiter.reserve(key, &mut |delay| {
            let (added, used) = add(delay);
            result = Some(added);
            used
        })
    };
    let reserved = catch_payload(reserve);
    match (result, reserved) {
        (None, Err(panic)) => resume_unwind(panic),
        // A limiter that breaks its promise to call the closure loses no key.
        (None, Ok(_)) => add(Duration::ZERO).0,
        (Some(added), reserved) => {
            reserved.err().into_iter().for_each(drop_payload);
            added
        }
    }
}

/// No limit: every delay is zero, and nothing is counted.
///
/// ```
/// use keyqueue::limiter::{NoLimit, RateLimiter};
///
/// assert!(NoLimit.when("key").is_zero());
/// assert_eq!(NoLimit.num_requeues("key"), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLimit;

impl<K: ?Sized> RateLimiter<K> for NoLimit {
    fn when(&self, _: &K) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

/// Returns client-go's default for controllers: each key backs off from 5 ms to 1000 s, and all
/// keys together are retried at most 10 times a second, with a burst of 100.
///
/// The bucket's reservations queue up: ten thousand simultaneous failures are spread over a quarter
/// of an hour. If you only need per-key back-off, use [`ItemExponentialFailure`] alone.
///
/// The failures of a key are forgotten a day after its last one; client-go keeps them until `forget`.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{RateLimiter, default_controller};
///
/// let limiter = default_controller::<str>();
/// assert_eq!([0; 3].map(|_| limiter.when("key").as_millis()), [5, 10, 20]);
/// ```
#[must_use]
pub fn default_controller<K: Hash + ?Sized + 'static>() -> MaxOf<K> {
    default_controller_with_clock(Clock::new())
}

/// Like [`default_controller`], with the time read from `clock`.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::limiter::{RateLimiter, default_controller_with_clock};
/// use std::time::Duration;
///
/// let limiter = default_controller_with_clock::<u32>(Clock::mock().0);
/// (0..100).for_each(|key| _ = limiter.when(&key));
/// assert_eq!(limiter.when(&100), Duration::from_millis(100));
/// ```
#[must_use]
pub fn default_controller_with_clock<K: Hash + ?Sized + 'static>(clock: Clock) -> MaxOf<K> {
    let bucket = Bucket::new(10.0, 100).expect("these are in range");
    // The bucket's delay has no end, and a key that waits for it counts as idle.
    let exponential = usual_backoff(clock.clone()).remember_for(Duration::from_secs(24 * 3600));
    let exponential: Box<dyn RateLimiter<K>> = Box::new(exponential);
    MaxOf::new([exponential, Box::new(bucket.with_clock(clock))])
}

/// The back-off of client-go's default.
fn usual_backoff<K: ?Sized>(clock: Clock) -> ItemExponentialFailure<K> {
    let (base, max) = (Duration::from_millis(5), Duration::from_secs(1000));
    let exponential = ItemExponentialFailure::new(base, max).expect("these are in range");
    exponential.with_clock(clock)
}
