//! The public face of the queue: adding, delaying, retrying, cancelling. Getting is in [`get`], what
//! finds a key by a borrowed form in [`lookup`], shutting down in [`end`], inspection in [`snapshot`].

pub(crate) mod batch;
pub(crate) mod builder;
mod clear;
pub(crate) mod drain;
pub(crate) mod end;
pub(crate) mod entry;
pub(crate) mod get;
pub(crate) mod get_batch;
pub(crate) mod groups;
pub(crate) mod handle;
pub(crate) mod item;
pub(crate) mod iter;
mod leaving;
mod left;
mod lookup;
pub(crate) mod open;
mod order;
mod owned;
pub(crate) mod page;
mod pause;
pub(crate) mod retry_on_drop;
mod run_now;
pub(crate) mod snapshot;
#[cfg(feature = "futures-core")]
pub(crate) mod stream;
#[cfg(feature = "metrics")]
mod totals;

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::engine::many::in_chunks;
use crate::engine::{Core, Settings};
use crate::keys::hash::hash_of;
use crate::keys::node::Pinned;
use crate::limiter::{NoLimit, charge};
use crate::queue::open::Open;
use crate::sync::{Arc, assert_unlocked};
use crate::wait::room::Room;
use crate::{Added, Builder, DefaultHasher, KeyHandle};

/// A keyed work queue.
///
/// Add a key as often as you like: it is delivered once, to one worker at a time, first in, first
/// out, and no add is lost. [`docs::semantics`](crate::docs::semantics) has every promise.
///
/// * `K` is the key: anything `Hash + Eq + Send + Sync + 'static`. It need not be `Clone`; it is
///   moved into the queue once and lent to workers. Its `Hash` and `Eq` must not call the queue.
/// * `V` is the value that a key carries, for a queue that is built with [`merge`](Builder::merge). Without it there
///   is none, and `V` is `()`.
/// * `S` is the hasher.
///
/// A function over any queue is generic over all three. To get keys one by one it needs no bounds; to add them, those of
/// `K`, `V: Send + 'static` and `S: BuildHasher`; to run [workers](crate::worker), the first two.
///
/// Share it between threads by reference or in an [`Arc`]. Dropping it shuts it down, unless
/// [workers](crate::worker) or [owned items](crate::Item::into_owned) still keep it open.
///
/// ```
/// use keyqueue::{Added, WorkQueue};
///
/// let queue = WorkQueue::new();
/// assert_eq!(queue.add("a"), Added::Queued);
/// assert_eq!(queue.add("b"), Added::Queued);
/// assert_eq!(queue.add("a"), Added::Merged);
///
/// let item = queue.get().unwrap();
/// assert_eq!(*item, "a");
/// assert_eq!(queue.add("a"), Added::Deferred); // it is being processed: once more, later
/// assert_eq!(queue.add("a"), Added::Merged); // however often it is added
/// assert_eq!(queue.len(), 1); // "b"; processing and dirty keys are not counted
/// item.done();
///
/// queue.shut_down();
/// assert_eq!(queue.add("c"), Added::ShutDown);
/// assert_eq!(*queue.get().unwrap(), "b");
/// assert_eq!(*queue.get().unwrap(), "a");
/// assert!(queue.get().is_none());
/// ```
pub struct WorkQueue<K, V = (), S = DefaultHasher> {
    /// The one of `open`, without a way round.
    pub(crate) core: Arc<Core<K, V>>,
    pub(crate) open: Arc<Open<K, V>>,
    pub(crate) hasher: S,
}

impl<K: Hash + Eq + Send + Sync + 'static> WorkQueue<K> {
    /// Creates an empty queue with the default settings. Starts no thread.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        let core = Core::new(Settings::default(), Box::new(NoLimit), None, None);
        WorkQueue::over(core, DefaultHasher::default())
    }

    /// Returns a builder for a queue with other settings.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    #[inline]
    pub(crate) fn over(core: Arc<Core<K, V>>, hasher: S) -> Self {
        let open = Open {
            core: Arc::clone(&core),
        };
        let open = Arc::new(open);
        WorkQueue { core, open, hasher }
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> WorkQueue<K, V, S> {
    /// Adds a key at the tail of the queue, unless it is queued already, or processing: then it is
    /// queued once more when it is done. Returns which of these happened: see [`Added`].
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
        if core.is_shutting_down() {
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
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> WorkQueue<K, V, S> {
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
        if self.core.is_shutting_down() {
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

    /// Clears the rate limiter's record of a key (L2), but changes neither the key's state nor its
    /// pending delay. Call it when the key has succeeded.
    pub fn forget(&self, key: &K) {
        self.core.limiter.forget(key);
    }

    /// Returns the number of failures of a key since it was last forgotten, as counted by the rate
    /// limiter (L2).
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.core.limiter.num_requeues(key)
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns the number of queued keys: not processing, dirty or delayed ones (C8).
    ///
    /// The number is a snapshot; do not decide by it whether to call [`get`](Self::get). While more
    /// keys are queued than the ring holds, the call may wait until a consumer has moved up to 128
    /// of them there.
    #[doc(alias("depth", "size"))]
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Returns the number of queued keys of each level, as [`len`](Self::len) does for all of them: of
    /// level 0 only, if the queue has no [levels](Builder::levels) (P4).
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::builder().levels(3).build()?;
    /// queue.add_all(["a", "b"]);
    /// queue.entry("c").level(0).add();
    /// assert_eq!(queue.len_by_level(), [1, 2, 0]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn len_by_level(&self) -> Vec<usize> {
        self.core.len_by_level()
    }

    /// Returns whether no key is queued. A snapshot, like [`len`](Self::len), but never waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.core.is_empty()
    }

    /// Returns the name the queue was built with.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.core.name()
    }

    /// Adds the keys whose delays are over now, in due order, and returns the number of these
    /// delays.
    ///
    /// For queues built with [`manual_timers`](Builder::manual_timers): their delays end only in
    /// this call, in the calling thread. With other queues it is harmless. See
    /// [`add_after`](Self::add_after) for an example.
    ///
    /// In a queue with [`group_by`](Builder::group_by), keys whose delays two threads end at the same time
    /// may come out in either order.
    pub fn fire_due(&self) -> usize {
        self.core.fire_due()
    }

    /// Updates the exported series. Does nothing if the queue has no name.
    ///
    /// The reporter does so every [`INTERVAL`](crate::metrics::INTERVAL). Visits every key, and
    /// calls the recorder. Does nothing if a recorder calls it during a report.
    #[cfg(feature = "metrics")]
    pub fn report(&self) {
        if let Some(watch) = self.core.watch() {
            watch.tally().report(&*self.core, true);
        }
    }

    /// Drops the idle keys and releases their memory immediately.
    ///
    /// Otherwise idle keys are dropped a little later: when new keys are added, or when workers
    /// wait. Keys that are queued, processing or delayed, or kept by a [`KeyHandle`] or a snapshot,
    /// stay.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::sync::Arc;
    /// let queue = WorkQueue::new();
    /// let key = Arc::new("a");
    /// queue.add(Arc::clone(&key));
    /// drop(queue.get());
    /// queue.shrink();
    /// assert_eq!(Arc::strong_count(&key), 1);
    /// ```
    pub fn shrink(&self) {
        let core = &self.core;
        let ended = core.closing.all_delivered();
        if ended {
            core.discard_abandoned();
        }
        core.timer.shrink();
        if let Some(groups) = core.groups() {
            groups.shrink(ended);
        }
        core.keys.shrink();
    }
}

// Operations leave the queue consistent if user code panics in them (the key's hash, comparison and
// drop, the limiter, wakers), so the queue can be used after a caught panic.
impl<K, V, S> UnwindSafe for WorkQueue<K, V, S> {}
impl<K, V, S> RefUnwindSafe for WorkQueue<K, V, S> {}

impl<K, V, S> fmt::Debug for WorkQueue<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("name", &self.name())
            .field("len", &self.len())
            .field("waiting", &self.core.getters.len())
            .field("waiting_adds", &self.core.bound().map_or(0, Room::waiting))
            .field("timed", &self.core.watch().is_some())
            .field("shutting_down", &self.is_shutting_down())
            .finish_non_exhaustive()
    }
}
