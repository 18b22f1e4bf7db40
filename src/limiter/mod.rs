//! Rate limiters: how long a key waits before it is tried again.
//!
//! A limiter is asked with [`when`](RateLimiter::when) at each failure of a key, and told to
//! [`forget`](RateLimiter::forget) the key when it succeeds. The names and formulae are those of
//! client-go's workqueue; where it has a trap (an overflow into a negative delay, memory that grows
//! until `forget`), the limiter's page says what happens here.
//!
//! | limiter | delays by | remembers |
//! | --- | --- | --- |
//! | [`NoLimit`] | nothing | nothing |
//! | [`ItemExponentialFailure`] | min(base * 2^failures, max) | each key |
//! | [`ItemFastSlow`] | fast for the first failures, then slow | each key |
//! | [`Bucket`] | what a token bucket over all keys says | one number |
//! | [`MaxOf`] | the longest of its children's delays | what they do |
//! | [`WithMaxWait`] | the inner delay, cut at a maximum | what the inner does |
//! | [`Jittered`] | a random part of the inner delay | what the inner does |
//!
//! No limiter needs keys to be cloned or kept. The per-key ones drop what they know of a key that has
//! been idle for longer than twice their longest delay, `forget` or not: never earlier, and if that is ten
//! seconds or more, up to a 64th of it later.
//!
//! # Examples
//!
//! ```
//! use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), keyqueue::ConfigError> {
//! let limiter = ItemExponentialFailure::<str>::new(Duration::from_millis(5), Duration::from_secs(1000))?;
//! assert_eq!(limiter.when("pod/a"), Duration::from_millis(5));
//! assert_eq!(limiter.when("pod/a"), Duration::from_millis(10));
//! assert_eq!(limiter.when("pod/b"), Duration::from_millis(5));
//! assert_eq!(limiter.num_requeues("pod/a"), 2);
//!
//! limiter.forget("pod/a");
//! assert_eq!(limiter.when("pod/a"), Duration::from_millis(5));
//! # Ok(())
//! # }
//! ```

mod bucket;
mod exponential;
mod fast_slow;
mod jittered;
mod max_of;
mod max_wait;
mod per_key;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

pub use bucket::Bucket;
pub use exponential::ItemExponentialFailure;
pub use fast_slow::ItemFastSlow;
pub use jittered::{Jitter, Jittered};
pub use max_of::MaxOf;
pub use max_wait::WithMaxWait;

use crate::Clock;

/// Says how long a key waits before it is tried again.
///
/// Any thread may call any method at any time.
pub trait RateLimiter<K: ?Sized>: Send + Sync {
    /// Returns the delay after which `key` may be tried again, and charges it.
    ///
    /// Each call counts: it records one failure, or spends one token, whether or not the caller waits.
    fn when(&self, key: &K) -> Duration;

    /// Clears what the limiter knows about `key`; nothing happens if it does not know it.
    ///
    /// Call it when a key has succeeded, or is given up.
    fn forget(&self, key: &K);

    /// Returns how many failures of `key` have been recorded since it was last forgotten.
    ///
    /// Zero for a limiter that does not count, and for a key that has been idle for so long that the
    /// limiter forgot it.
    fn num_requeues(&self, key: &K) -> u32;
}

/// Implements the trait for what points to a limiter.
macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<K: ?Sized, L: RateLimiter<K> + ?Sized> RateLimiter<K> for $pointer {
            fn when(&self, key: &K) -> Duration {
                (**self).when(key)
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

/// No limit: every delay is zero, and nothing is counted.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{NoLimit, RateLimiter};
/// use std::time::Duration;
///
/// assert_eq!(NoLimit.when("key"), Duration::ZERO);
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

/// Returns client-go's default for controllers: each key backs off from 5 ms to 1000 s, and all keys
/// together are retried at most 10 times a second, with a burst of 100.
///
/// The bucket queues reservations up: ten thousand failures at once spread over a quarter of an hour. If
/// the queue shall protect against a failing key only, use [`ItemExponentialFailure`] alone.
///
/// # Examples
///
/// ```
/// use keyqueue::limiter::{RateLimiter, default_controller};
/// use std::time::Duration;
///
/// let limiter = default_controller::<str>();
/// assert_eq!(limiter.when("key"), Duration::from_millis(5));
/// assert_eq!(limiter.when("key"), Duration::from_millis(10));
/// assert_eq!(limiter.when("other"), Duration::from_millis(5));
/// ```
#[must_use]
pub fn default_controller<K: Hash + ?Sized + 'static>() -> MaxOf<K> {
    default_controller_with_clock(Clock::new())
}

/// [`default_controller`] on a clock of the caller's.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::limiter::{RateLimiter, default_controller_with_clock};
/// use std::time::Duration;
///
/// let (clock, _mock) = Clock::mock();
/// let limiter = default_controller_with_clock::<u32>(clock);
/// for key in 0..100 {
///     limiter.when(&key);
/// }
/// assert_eq!(limiter.when(&100), Duration::from_millis(100));
/// ```
#[must_use]
pub fn default_controller_with_clock<K: Hash + ?Sized + 'static>(clock: Clock) -> MaxOf<K> {
    let exponential =
        ItemExponentialFailure::<K>::of(Duration::from_millis(5), Duration::from_secs(1000));
    let bucket = Bucket::of(10.0, 100);
    MaxOf::of(vec![
        Box::new(exponential.with_clock(clock.clone())),
        Box::new(bucket.with_clock(clock)),
    ])
}
