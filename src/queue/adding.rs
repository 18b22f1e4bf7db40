//! The public face of adding: a new queue, and what adds keys to it now or later, with or without the rate limiter.
//!
//! The first module of [`super`], so that rustdoc shows it first.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::engine::many::in_chunks;
use crate::engine::{Core, Settings};
use crate::keys::hash::hash_of;
use crate::keys::node::Pinned;
use crate::limiter::charge;
use crate::sync::{Arc, assert_unlocked};
use crate::{Added, Builder, DefaultHasher, KeyHandle, WorkQueue};

impl<K: Hash + Eq + Send + Sync + 'static> WorkQueue<K> {
    /// Creates an empty queue with the default settings. Starts no thread.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        let core = Core::new(Settings::default(), None, None, None);
        WorkQueue::over(core, DefaultHasher::default())
    }

    /// Returns a builder for a queue with other settings.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> WorkQueue<K, V, S> {
    /// Adds a key at the tail of the queue, unless it is queued already, or processing: then it is
    /// queued once more when it is done. Returns which of these happened: see [`Added`].
    ///
    /// In a queue with values use [`put`](Self::put): a key that has no value is not delivered (V2).
    ///
    /// May wait briefly for another operation on the same shard.
    ///
    /// # Panics
    ///
    /// Panics if the key's `Hash` or `Eq` panics; then nothing was added and the queue is as
    /// before. Panics if the key is already known and the `Drop` of `key` panics; then the add
    /// has happened.
    #[doc(alias("enqueue", "insert", "push", "send"))]
    #[inline]
    pub fn add(&self, key: K) -> Added {
        self.core.add(hash_of(&self.hasher, &key), key)
    }

    /// Adds many keys, in order. Returns the number of keys that became queued; the others were
    /// merged, deferred, or refused after a shut-down.
    ///
    /// Costs less for each than [`add`](Self::add) does, in a queue of many keys (C14). For that it takes up to 128
    /// keys before it adds them, as many as the iterator says that it has ([`Iterator::size_hint`]). Of an iterator that does not
    /// know, such as that of a channel, each key is added, and a getter is woken for it, before `next` is called
    /// again; so it may block.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// assert_eq!(queue.add_all([1, 2, 2, 3]), 3);
    /// assert_eq!(queue.len(), 3);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) or the iterator panics. If the iterator or `Hash` does, the keys before it are added. If
    /// `Eq` or a `Drop` does, each key was added or not.
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) -> usize {
        let core = &*self.core;
        let (mut single, mut together) = (0, 0);
        in_chunks(
            keys.into_iter().map(|key| (key, ())),
            || core.adds_chunks(),
            |key| hash_of(&self.hasher, key),
            |hash, key, ()| single += usize::from(core.add(hash, key) == Added::Queued),
            |chunk| together += core.add_chunk(chunk),
        );
        single + together
    }

    /// Returns a handle to a key, which adds it without hashing and without the table.
    ///
    /// The key stays interned while the handle lives. This call does not add it.
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) would, or if 2^25 handles to the key are alive.
    #[must_use = "the key stays interned while the handle lives, and is not added by this"]
    pub fn handle(&self, key: K) -> KeyHandle<K, V> {
        let core = &self.core;
        let hash = hash_of(&self.hasher, &key);
        let (pin, known) = core.pin(hash, key);
        let handle = KeyHandle::new(Arc::clone(core), pin);
        drop(known);
        handle.granted()
    }

    /// Adds a key after `delay`: no earlier, and at most a tick (1 ms by default) plus scheduling
    /// later (promises D1 to D8).
    ///
    /// When the delay is over, the key is added as by [`add`](Self::add), whatever its state is. A
    /// key has at most one pending delay; if one is pending already, the queue's
    /// [`DelayPolicy`](crate::DelayPolicy) decides, and by default the earlier one wins.
    ///
    /// Returns [`Added::Delayed`], or [`Added::ShutDown`] if the queue is shut down. A delay of
    /// zero is a plain [`add`](Self::add), in this thread; one of more than 100 years counts as 100
    /// years.
    ///
    /// Never waits for room or for the timer; like [`add`](Self::add) it may wait for another
    /// operation on the same shard. The first delay starts a thread, unless the queue was built
    /// with [`manual_timers`](Builder::manual_timers).
    ///
    /// Delays use the queue's clock, which is monotonic. While the machine is suspended, whether it
    /// advances depends on the operating system; after a jump, all due keys are added at once, in
    /// due order.
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) would.
    ///
    /// ```
    /// # use keyqueue::{Added, Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).manual_timers().build()?;
    /// assert_eq!(queue.add_after("a", Duration::from_secs(5)), Added::Delayed);
    /// assert_eq!(queue.add_after("a", Duration::from_secs(9)), Added::Delayed); // 5 s counts
    /// assert_eq!(queue.add_after("b", Duration::ZERO), Added::Queued);
    ///
    /// time.advance(Duration::from_secs(5));
    /// assert_eq!(queue.fire_due(), 1);
    /// assert_eq!(queue.len(), 2);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("debounce", "requeue_after", "schedule"))]
    pub fn add_after(&self, key: K, delay: Duration) -> Added {
        let core = &self.core;
        if core.closing.has_begun() {
            return Added::ShutDown;
        }
        let hash = hash_of(&self.hasher, &key);
        let (pin, known) = core.pin(hash, key);
        let (added, _) = core.delay(pin, core.default_level(), delay, false);
        drop(known);
        added
    }

    /// Cancels the pending delay of a key, and returns whether there was one (D6).
    ///
    /// Never touches a queued or processing key: an add whose delay is over is not revoked.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::<String>::new();
    /// queue.add_after("a".into(), Duration::from_secs(3600));
    /// assert!(queue.cancel("a"));
    /// assert!(!queue.cancel("a"));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics; then nothing was cancelled.
    pub fn cancel<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        self.core.cancel(hash, |known| known.borrow() == key)
    }

    /// Adds a key after the delay that the rate limiter returns: [`add_after`](Self::add_after) of
    /// `limiter.when(&key)` (L1).
    ///
    /// With most limiters each call counts as a failure of the key. A queue that is shut down
    /// refuses the key and does not charge the limiter. If the delay is not used, because the key is
    /// queued or its pending delay is kept, a [`Bucket`](crate::limiter::Bucket) gets its token back
    /// (L14): however often a key is added, the bucket delivers at its rate.
    ///
    /// ```
    /// # use keyqueue::limiter::ItemExponentialFailure;
    /// # use keyqueue::{Added, Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let (base, max) = (Duration::from_millis(5), Duration::from_secs(1000));
    /// let limiter = ItemExponentialFailure::new(base, max)?;
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
    /// let _ = item.retry(); // 10 ms
    /// assert_eq!(queue.num_requeues(&"a"), 2);
    /// queue.forget(&"a");
    /// assert_eq!(queue.num_requeues(&"a"), 0);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) would, or if the limiter panics.
    #[doc(alias("requeue", "throttle"))]
    pub fn add_rate_limited(&self, key: K) -> Added {
        if self.core.closing.has_begun() {
            return Added::ShutDown;
        }
        assert_unlocked();
        let core = &self.core;
        let hash = hash_of(&self.hasher, &key);
        let (pin, known) = core.pin(hash, key);
        let pinned = Pinned(pin);
        let add = |delay| core.delay(pinned.0.clone(), core.default_level(), delay, false);
        let added = charge(&core.limiter, pinned.0.key(), add);
        drop(pinned);
        drop(known);
        added
    }

    /// Clears the rate limiter's record of a key (L2), and the retries that workers have counted, but changes neither the key's
    /// state nor its pending delay. Call it when the key has succeeded.
    pub fn forget(&self, key: &K) {
        self.core.forget(key);
    }

    /// Returns the number of failures of a key since it was last forgotten, as counted by the rate
    /// limiter (L2).
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.core.limiter.num_requeues(key)
    }
}
