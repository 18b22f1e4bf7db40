//! The queue without its public face: the parts put together.
//!
//! # Which thread does what to a key
//!
//! ```text
//!            adder                      FIFO                     worker
//!     shard lock: find or intern
//!     idle -> queued
//!     unlock
//!     push  ----------------------->  [Queued]
//!     notify a getter                     |
//!                                         +-------------->  pop
//!                                                           queued -> processing
//!                                                           ... works ...
//!                                     [Queued]  <---------  processing-dirty -> queued: push,
//!                                                           notify a getter
//!                                                           processing -> idle: nothing else
//! ```
//!
//! Exactly one thread makes a key queued. That thread must push the key's one entry to the FIFO,
//! and notify a getter after that. Between the change of state and the push, another thread's add
//! of the key returns `Merged` although the key cannot be popped yet; the first thread is about to
//! push it.
//!
//! A delivered key costs the node's cache line, its slot in the ring, the ring's tail or head, and
//! for the adder its shard. While the ring has room and no getter waits, `get` and `done` take no
//! lock and write nothing else.

pub(crate) mod driver;
#[cfg(feature = "metrics")]
pub(crate) mod scan;
pub(crate) mod shutdown;
pub(crate) mod timing;
mod waiting;

use std::time::Duration;

use crate::engine::shutdown::Closing;
use crate::engine::timing::{Event, Watch};
use crate::fifo::Fifo;
use crate::keys::delay::DelayPolicy;
use crate::keys::node::{self, Held, Node, Pin, Queued};
use crate::keys::state::Begun;
use crate::keys::{Keys, PackedShard, Shard};
use crate::metrics::{Recorder, Tally};
use crate::queue::added::Added;
use crate::sync::Arc;
use crate::time::clock::Clock;
use crate::time::nanos;
use crate::timer::Timer;
use crate::wait::WaitList;
use driver::Driver;

pub(crate) struct Core<K> {
    pub(crate) keys: Keys<K>,
    fifo: Fifo<K>,
    pub(crate) getters: WaitList,
    pub(crate) closing: Closing,
    /// `None` unless the queue is timed.
    watch: Option<Box<Watch>>,
    /// Whether a plain add cancels the pending delay of its key (D5).
    supersede: bool,
    /// Whether a drain delivers the pending delays.
    pub(crate) drain_delays: bool,
    name: Option<Box<str>>,
    pub(crate) timer: Timer<K>,
    pub(crate) driver: Driver,
}

/// The settings of a core. [`Builder::build`](crate::Builder::build) checks that they are in range.
pub(crate) struct Settings {
    pub(crate) name: Option<Box<str>>,
    pub(crate) shards: usize,
    pub(crate) ring: usize,
    /// `None` for the queue's own clock.
    pub(crate) clock: Option<Clock>,
    pub(crate) tick: Duration,
    pub(crate) policy: DelayPolicy,
    pub(crate) supersede: bool,
    pub(crate) drain_delays: bool,
    pub(crate) manual: bool,
    /// `None` records times if the queue has a name.
    pub(crate) timing: Option<bool>,
    pub(crate) recorder: Recorder,
}

/// The result of taking a key from the FIFO.
pub(crate) enum Taken<K> {
    Key(Held<K>),
    /// Nothing is queued now.
    Empty,
    /// The queue is shut down and nothing will ever be queued again.
    Ended,
}

impl<K> Taken<K> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Taken::Empty)
    }

    /// Takes again if nothing was queued.
    #[inline]
    pub(crate) fn or_else(self, take: impl FnOnce() -> Self) -> Self {
        if self.is_empty() { take() } else { self }
    }
}

impl<K> Core<K> {
    pub(crate) fn new(mut settings: Settings) -> Arc<Self>
    where
        K: Send + Sync + 'static,
    {
        if !settings.timing.unwrap_or(settings.name.is_some()) {
            return Arc::new(Self::with(settings, None));
        }
        Arc::new_cyclic(|core| {
            let recorder = std::mem::take(&mut settings.recorder);
            let tally = Tally::new(settings.name.as_deref(), recorder, settings.manual, core);
            // The core and its watch use the same clock.
            let watch = Watch::new(settings.clock.get_or_insert_default().clone(), tally);
            Self::with(settings, Some(watch))
        })
    }

    fn with(settings: Settings, watch: Option<Watch>) -> Self {
        Core {
            keys: Keys::new(settings.shards, watch.is_some()),
            fifo: Fifo::new(settings.ring),
            getters: WaitList::new(),
            closing: Closing::new(watch.is_some() || settings.supersede),
            watch: watch.map(Box::new),
            supersede: settings.supersede,
            drain_delays: settings.drain_delays,
            name: settings.name,
            timer: Timer::new(
                settings.clock.unwrap_or_default(),
                nanos::saturating(settings.tick),
                settings.policy,
                settings.manual,
            ),
            driver: Driver::new(),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    #[inline]
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    // ---- adding -----------------------------------------------------------------------------

    /// Locks the shard of this hash for the fast path of an add. Returns `None` if the add has more
    /// to do than to add ([`Closing::is_plain`]) or has to wait for the lock.
    ///
    /// Everything outside the fast path is in functions that are not inlined, and the fast path
    /// ends with their calls: so it saves few registers.
    #[inline(always)]
    fn lock_plain(&self, hash: u64) -> Option<Shard<'_, K>> {
        match self.closing.is_plain() {
            true => self.keys.try_lock(hash),
            false => None,
        }
    }

    #[inline]
    pub(crate) fn add(&self, hash: u64, key: K) -> Added
    where
        K: Eq,
    {
        let Some(shard) = self.lock_plain(hash) else {
            return self.add_slow(hash, key);
        };
        match shard.add(hash, |interned| *interned == key) {
            Some(added) => {
                drop(shard);
                // `key`, whose drop is user code, is dropped on return, after the push and the
                // notification.
                self.settle(added)
            }
            None => self.add_new(shard.pack(), hash, key),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_slow(&self, hash: u64, key: K) -> Added
    where
        K: Eq,
    {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let shard = self.keys.lock(hash);
        if let Some(added) = self.add_known(&shard, hash, |interned| *interned == key) {
            drop(shard);
            // As in `add`.
            return self.settle(added);
        }
        self.add_new(shard.pack(), hash, key)
    }

    /// Adds a key that is not interned to its shard.
    #[inline(never)]
    fn add_new(&self, shard: PackedShard<'_, K>, hash: u64, key: K) -> Added {
        let mut shard = self.keys.unpack(shard);
        // Read under the shard's lock, which the shut-down takes after it has begun: either the
        // walk finds the new node, or this load finds that the shut-down has begun.
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let (entry, swept) = shard.insert_queued(hash, key);
        drop(shard);
        self.enqueue(entry);
        drop(swept);
        Added::Queued
    }

    /// Adds the key for which `eq` holds; if it is not interned, returns what `unknown` does.
    #[inline(always)]
    pub(crate) fn add_interned(
        &self,
        hash: u64,
        eq: impl FnMut(&K) -> bool,
        unknown: impl FnOnce(&Self, u64) -> Added,
    ) -> Added {
        let Some(shard) = self.lock_plain(hash) else {
            return self.add_interned_slow(hash, eq, unknown);
        };
        let added = shard.add(hash, eq);
        drop(shard);
        match added {
            Some(added) => self.settle(added),
            None => unknown(self, hash),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_interned_slow(
        &self,
        hash: u64,
        eq: impl FnMut(&K) -> bool,
        unknown: impl FnOnce(&Self, u64) -> Added,
    ) -> Added {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let shard = self.keys.lock(hash);
        let added = self.add_known(&shard, hash, eq);
        drop(shard);
        match added {
            Some(added) => self.settle(added),
            None => unknown(self, hash),
        }
    }

    /// Adds the key for which `eq` holds, if it is interned. Cancels its pending delay first, if
    /// adds supersede delays, and records the add, if the queue is timed.
    fn add_known(
        &self,
        shard: &Shard<'_, K>,
        hash: u64,
        eq: impl FnMut(&K) -> bool,
    ) -> Option<node::Added<K>> {
        let added = if self.supersede {
            let (added, cancelled) = shard.add_superseding(hash, eq)?;
            if cancelled {
                self.note_cancelled();
            }
            added
        } else {
            shard.add(hash, eq)?
        };
        // SAFETY: the shard is locked.
        unsafe { self.note_added(&added) };
        Some(added)
    }

    #[inline]
    pub(crate) fn add_pinned(&self, pin: &Pin<K>, hash: u64) -> Added {
        if self.closing.is_plain() {
            self.settle(pin.add())
        } else {
            self.add_pinned_slow(pin, hash)
        }
    }

    /// Like [`add_known`](Self::add_known), for the pinned key of this hash.
    #[cold]
    fn add_pinned_slow(&self, pin: &Pin<K>, hash: u64) -> Added {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        // The lock keeps a shut-down from visiting the node in between: it would find neither
        // the delay nor the add.
        let supersedes = self.supersede && pin.delay().due().is_some();
        let shard = supersedes.then(|| self.keys.lock(hash));
        if shard.is_some() && pin.delay().cancel() {
            self.note_cancelled();
        }
        let added = pin.add();
        drop(shard);
        // SAFETY: the key is pinned.
        unsafe { self.note_added(&added) };
        self.settle(added)
    }

    /// Pins the node of `key`, and interns it first if necessary. Also returns `key` if it was
    /// interned already: dropping it is user code, so the caller first puts the pin where a panic
    /// releases it.
    pub(crate) fn pin(&self, hash: u64, key: K) -> (Pin<K>, Option<K>)
    where
        K: Eq,
    {
        let mut shard = self.keys.lock(hash);
        if let Some(pin) = shard.pin(hash, |interned| *interned == key) {
            return (pin, Some(key));
        }
        // Read under the lock, as in `add`: if the walk has passed this shard already, the node is
        // created closed.
        let closed = self.closing.has_begun();
        let (pin, swept) = shard.insert_pinned(hash, key, closed);
        drop(shard);
        drop(swept);
        (pin, None)
    }

    // Always: a call that is not needed for a merged add costs handles a seventh.
    #[inline(always)]
    fn settle(&self, added: node::Added<K>) -> Added {
        match added {
            node::Added::Queued(entry) => self.enqueue_apart(entry),
            node::Added::Deferred(_) => Added::Deferred,
            node::Added::Merged => Added::Merged,
            node::Added::Closed => Added::ShutDown,
        }
    }

    // Never: see `lock_plain`.
    #[inline(never)]
    fn enqueue_apart(&self, entry: Queued<K>) -> Added {
        self.enqueue(entry);
        Added::Queued
    }

    #[inline]
    fn enqueue(&self, entry: Queued<K>) {
        if self.watch.is_some() {
            return self.enqueue_watched(entry);
        }
        self.push(entry);
    }

    #[cold]
    fn enqueue_watched(&self, entry: Queued<K>) {
        self.enqueue_unannounced(entry);
        self.getters.notify(1);
    }

    #[inline]
    fn push(&self, entry: Queued<K>) {
        self.fifo.push(entry);
        self.getters.notify(1);
    }

    /// Queues a key without a notification: the caller notifies a getter for each key that it has
    /// queued, and runs no user code before that.
    fn enqueue_unannounced(&self, entry: Queued<K>) {
        if let Some(watch) = &self.watch {
            watch.queued(&entry);
        }
        self.fifo.push(entry);
    }

    // ---- delaying ---------------------------------------------------------------------------

    pub(crate) fn delay(self: &Arc<Self>, pin: Pin<K>, hash: u64, delay: Duration) -> Added
    where
        K: Send + Sync + 'static,
    {
        if delay.is_zero() || self.is_shutting_down() {
            // A queue that is shut down refuses this, too.
            let added = self.add_pinned(&pin, hash);
            pin.unpin();
            if added.is_accepted() {
                self.note(Event::Retried);
            }
            return added;
        }
        if !self.timer.delay(pin, delay) {
            return Added::ShutDown;
        }
        self.note(Event::Retried);
        self.driver.start(self);
        Added::Delayed
    }

    /// Cancels the pending delay of the key for which `eq` holds. Returns whether there was one.
    pub(crate) fn cancel(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> bool {
        let cancel = |node: &Node<K>| node.delay.cancel();
        let cancelled = self.keys.lock(hash).read(hash, eq, cancel) == Some(true);
        if cancelled {
            self.note_cancelled();
        }
        cancelled
    }

    // ---- getting ----------------------------------------------------------------------------

    /// Takes the key at the head of the FIFO, and discards those before it that a shut-down has
    /// abandoned.
    #[inline]
    pub(crate) fn take(&self) -> Taken<K> {
        match self.fifo.pop() {
            Some(entry) => self.begin(entry),
            None => self.nothing(),
        }
    }

    #[inline]
    fn nothing(&self) -> Taken<K> {
        match self.closing.all_delivered() {
            true => Taken::Ended,
            false => Taken::Empty,
        }
    }

    #[inline]
    fn begin(&self, entry: Queued<K>) -> Taken<K> {
        match &self.watch {
            None => self.begun(entry.begin()),
            Some(watch) => self.begun(watch.begin(entry)),
        }
    }

    #[inline]
    fn begun(&self, (held, begun): (Held<K>, Begun)) -> Taken<K> {
        match begun {
            Begun::Open => Taken::Key(held),
            Begun::Closed | Begun::Abandoned => self.begun_closed(held, begun),
        }
    }

    /// Counts the delivery of a closed key. If it is abandoned, discards it and takes the next one.
    #[cold]
    fn begun_closed(&self, mut held: Held<K>, mut begun: Begun) -> Taken<K> {
        while begun == Begun::Abandoned {
            // It is counted already, and not dirty, because adds are refused.
            held.finish();
            let Some(entry) = self.fifo.pop() else {
                return self.nothing();
            };
            (held, begun) = match &self.watch {
                None => entry.begin(),
                Some(watch) => watch.begin(entry),
            };
        }
        if self.closing.delivered() {
            self.getters.notify_all();
        }
        Taken::Key(held)
    }

    /// Ends the processing of a key.
    #[inline]
    pub(crate) fn finish(&self, held: Held<K>) {
        match &self.watch {
            None => self.finished(held.finish()),
            Some(watch) => self.finished(watch.finish(held)),
        }
    }

    #[inline]
    fn finished(&self, (entry, closed): (Option<Queued<K>>, bool)) {
        if let Some(entry) = entry {
            // Not `enqueue`: in a timed queue the entry already has its time.
            self.push(entry);
        } else if closed && self.closing.finished() {
            self.closing.drainers.notify_all();
        }
    }

    pub(crate) fn len(&self) -> usize {
        // An adder may push an entry after its key was abandoned, when no getter is left.
        if self.closing.all_delivered() {
            return 0;
        }
        self.fifo.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.closing.all_delivered() || self.fifo.is_empty()
    }
}
