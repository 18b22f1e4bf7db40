//! The public face of the queue. Adding is in [`adding`], getting in [`get`], what finds a key by a borrowed form in
//! [`lookup`], shutting down in [`end`], inspection in [`snapshot`].

mod adding;
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

use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::DefaultHasher;
use crate::engine::Core;
use crate::queue::open::Open;
use crate::sync::Arc;
use crate::wait::room::Room;

/// A keyed work queue.
///
/// Add a key as often as you like: it is delivered once, to one worker at a time, first in, first
/// out, and no add is lost. [`docs::semantics`](crate::docs::semantics) has every promise.
///
/// * `K` is the key: anything `Hash + Eq + Send + Sync + 'static`. It need not be `Clone`; it is
///   moved into the queue once and lent to workers. Its `Hash` and `Eq` must not call the queue.
/// * `V` is the value that a key carries, for a queue that is built with [`merge`](crate::Builder::merge). Without it there
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
    /// For queues built with [`manual_timers`](crate::Builder::manual_timers): their delays end only in
    /// this call, in the calling thread. So do the time that a getter [lingers](crate::UpTo::linger) and the limit of an async
    /// verb ([`within`](crate::Entry::within)), which do not count. With other queues it is harmless. See
    /// [`add_after`](Self::add_after) for an example.
    ///
    /// Finds each delay that was set before, by a call that has returned. A worker has set the delay of a retry when its key is idle
    /// again.
    ///
    /// In a queue with [`group_by`](crate::Builder::group_by), keys whose delays two threads end at the same time
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
            watch.tally.report(&*self.core, true);
        }
    }

    /// Drops the idle keys and releases their memory immediately.
    ///
    /// Otherwise idle keys are dropped a little later: when new keys are added, or when workers
    /// wait. Keys that are queued, processing or delayed, or kept by a [`KeyHandle`](crate::KeyHandle) or a snapshot,
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
