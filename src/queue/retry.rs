//! The public face of retrying: what the queue does with its rate limiter.

use std::hash::{BuildHasher, Hash};

use crate::limiter::RateLimiter;
use crate::{Added, Item, WorkQueue};

impl<K, L, S> WorkQueue<K, L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K>,
    S: BuildHasher,
{
    /// Adds a key after the delay that the rate limiter returns: [`add_after`](Self::add_after) of
    /// `limiter.when(&key)` (L1).
    ///
    /// With most limiters each call counts as a failure of the key. A queue that is shut down
    /// refuses the key and does not charge the limiter.
    ///
    /// ```
    /// # use keyqueue::limiter::ItemExponentialFailure;
    /// # use keyqueue::{Added, Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000))?;
    /// let queue = WorkQueue::builder()
    ///     .rate_limiter(limiter.with_clock(clock.clone()))
    ///     .clock(clock)
    ///     .manual_timers()
    ///     .build()?;
    /// assert_eq!(queue.add_rate_limited("a"), Added::Delayed); // 5 ms
    /// assert_eq!(queue.num_requeues(&"a"), 1);
    /// time.advance(Duration::from_millis(5));
    /// queue.fire_due();
    ///
    /// let item = queue.get().unwrap();
    /// item.retry(); // 10 ms
    /// assert_eq!(queue.num_requeues(&"a"), 2);
    /// queue.forget(&"a");
    /// assert_eq!(queue.num_requeues(&"a"), 0);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) would, or if the limiter panics.
    pub fn add_rate_limited(&self, key: K) -> Added {
        if self.core.is_shutting_down() {
            return Added::ShutDown;
        }
        let delay = self.limiter.when(&key);
        self.add_after(key, delay)
    }

    /// Clears the rate limiter's record of a key (L2). Call it when the key has succeeded.
    ///
    /// Changes neither the key's state nor its pending delay.
    pub fn forget(&self, key: &K) {
        self.limiter.forget(key);
    }

    /// Returns the number of failures of a key since it was last forgotten, as counted by the rate
    /// limiter (L2).
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.limiter.num_requeues(key)
    }
}

impl<K, L, S> Item<'_, K, L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K>,
    S: BuildHasher,
{
    /// Adds the key again, rate limited, because processing it failed, and finishes it. See
    /// [`WorkQueue::add_rate_limited`].
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::new(); // without a limiter, a retry is due at once
    /// queue.add("a");
    /// assert_eq!(queue.get().unwrap().retry(), Added::Deferred);
    /// assert_eq!(*queue.get().unwrap(), "a");
    /// ```
    pub fn retry(self) -> Added {
        self.add_rate_limited()
    }

    /// Like [`retry`](Self::retry), but keeps the item.
    pub(crate) fn add_rate_limited(&self) -> Added {
        let queue = self.queue;
        if queue.core.is_shutting_down() {
            return Added::ShutDown;
        }
        let delay = queue.limiter.when(self);
        self.add_after(delay)
    }
}
