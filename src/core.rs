//! The queue without its public face: the parts put together.
//!
//! # Who does what to a key
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
//! Exactly one thread turns a key into queued, and that thread owes the FIFO its one entry, with
//! the notification after it. Between the change of state and the push another thread's add of
//! the key is answered with "merged" although the key cannot be popped yet; it will be, in a
//! moment, by the first thread's doing.
//!
//! A delivered key costs: the node's line, the line of its slot in the ring, and for the adder
//! its shard. `get` and `done` take no lock and write nothing else.

use std::time::Instant;

use crate::closing::{Census, Closing};
use crate::fifo::Fifo;
use crate::keys::Keys;
use crate::node::{self, Held, Pin, Queued};
use crate::outcome::{Added, Remaining};
use crate::sync;
use crate::wait::{WaitList, Waiter};

pub(crate) struct Core<K> {
    keys: Keys<K>,
    fifo: Fifo<Queued<K>>,
    getters: WaitList,
    closing: Closing,
}

/// What a look at the FIFO found.
pub(crate) enum Taken<K> {
    Key(Held<K>),
    /// Nothing is queued now.
    Empty,
    /// The queue is shut down and nothing will ever be queued again.
    Ended,
}

impl<K> Core<K> {
    pub(crate) fn new(shards: usize, ring: usize) -> Self {
        Core {
            keys: Keys::new(shards),
            fifo: Fifo::new(ring),
            getters: WaitList::new(),
            closing: Closing::new(),
        }
    }

    // ---- adding -----------------------------------------------------------------------------

    /// Adds `key`, whose hash is `hash`. `announce` is whether to notify a getter, too.
    #[inline]
    pub(crate) fn add(&self, hash: u64, key: K, announce: bool) -> Added
    where
        K: Eq,
    {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let mut shard = self.keys.lock(hash);
        if let Some(added) = shard.add(hash, |interned| *interned == key) {
            drop(shard);
            // `key` is dropped on return, when nothing is owed to anybody any more.
            return self.settle(added, announce);
        }
        // Decided under the shard's lock, which the shut-down takes after it has begun: either
        // the walk finds the new node, or this finds that it has begun.
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let (entry, swept) = shard.insert_queued(hash, key);
        drop(shard);
        self.enqueue(entry, announce);
        drop(swept);
        Added::Queued
    }

    /// Adds the key for which `eq` holds, if it is interned.
    #[inline]
    pub(crate) fn add_interned(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Added> {
        if self.closing.has_begun() {
            return Some(Added::ShutDown);
        }
        let shard = self.keys.lock(hash);
        let added = shard.add(hash, eq)?;
        drop(shard);
        Some(self.settle(added, true))
    }

    #[inline]
    pub(crate) fn add_pinned(&self, pin: &Pin<K>) -> Added {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        self.settle(pin.add(), true)
    }

    /// Pins the node of `key`, interning it first if need be. Answers also the key if it was not
    /// taken over: dropping it is user code, so the caller first puts the pin where a panic gives
    /// it back.
    pub(crate) fn pin(&self, hash: u64, key: K) -> (Pin<K>, Option<K>)
    where
        K: Eq,
    {
        let mut shard = self.keys.lock(hash);
        if let Some(pin) = shard.pin(hash, |interned| *interned == key) {
            return (pin, Some(key));
        }
        // As in `add`: a node that the walk does not find is born closed.
        let closed = self.closing.has_begun();
        let (pin, swept) = shard.insert_pinned(hash, key, closed);
        drop(shard);
        drop(swept);
        (pin, None)
    }

    #[inline]
    fn settle(&self, added: node::Added<K>, announce: bool) -> Added {
        match added {
            node::Added::Queued(entry) => {
                self.enqueue(entry, announce);
                Added::Queued
            }
            node::Added::Deferred => Added::Deferred,
            node::Added::Merged => Added::Merged,
            node::Added::Closed => Added::ShutDown,
        }
    }

    #[inline]
    fn enqueue(&self, entry: Queued<K>, announce: bool) {
        self.fifo.push(entry);
        if announce {
            self.getters.notify(1);
        }
    }

    /// Notifies getters of `pushed` keys that were added without announcing them.
    pub(crate) fn announce(&self, pushed: usize) {
        self.getters.notify(pushed);
    }

    // ---- getting ----------------------------------------------------------------------------

    /// Takes the key at the head of the FIFO.
    #[inline]
    pub(crate) fn take(&self) -> Taken<K> {
        match self.fifo.pop() {
            Some(entry) => Taken::Key(self.begin(entry)),
            None if self.closing.all_delivered() => Taken::Ended,
            None => Taken::Empty,
        }
    }

    #[inline]
    fn begin(&self, entry: Queued<K>) -> Held<K> {
        let (held, closed) = entry.begin();
        if closed && self.closing.delivered() {
            self.getters.notify_all();
        }
        held
    }

    /// Takes the key at the head of the FIFO, and if there is none, waits for one or for
    /// `deadline`. [`Taken::Empty`] means that the deadline has passed.
    #[inline]
    pub(crate) fn take_wait(&self, deadline: Option<Instant>) -> Taken<K> {
        match self.take() {
            Taken::Empty => self.wait(deadline),
            taken => taken,
        }
    }

    #[cold]
    fn wait(&self, deadline: Option<Instant>) -> Taken<K> {
        sync::ThreadParker::with(|parker| {
            loop {
                self.keys.sweep_if_due();
                let taken = self.spin();
                if !matches!(taken, Taken::Empty) {
                    return taken;
                }
                let waiter = self.getters.register(parker.waker());
                let taken = self.take();
                if !matches!(taken, Taken::Empty) {
                    self.leave(waiter);
                    return taken;
                }
                self.keys.note_sleep();
                let mut in_time = true;
                while in_time && !waiter.is_notified(parker.waker()) {
                    parker.park(deadline);
                    in_time = deadline.is_none_or(|deadline| Instant::now() < deadline);
                }
                if !in_time {
                    // A notification that came at the last moment is not wasted: look again,
                    // now off the list. If it was about a key, that key is here or taken.
                    self.getters.cancel(waiter);
                    return self.take();
                }
                let taken = self.take();
                if !matches!(taken, Taken::Empty) {
                    return taken;
                }
            }
        })
    }

    /// Looks for a key for a little while before going to the trouble of sleeping.
    fn spin(&self) -> Taken<K> {
        for _ in 0..sync::LOOKS_SPINNING {
            for _ in 0..sync::PAUSES_PER_LOOK {
                sync::pause();
            }
            let taken = self.take();
            if !matches!(taken, Taken::Empty) {
                return taken;
            }
        }
        for _ in 0..sync::LOOKS_YIELDING {
            sync::yield_now();
            let taken = self.take();
            if !matches!(taken, Taken::Empty) {
                return taken;
            }
        }
        Taken::Empty
    }

    /// The list of getters, for tasks that wait by themselves.
    pub(crate) fn getters(&self) -> &WaitList {
        &self.getters
    }

    pub(crate) fn keys(&self) -> &Keys<K> {
        &self.keys
    }

    /// Takes a getter off the list that does not want to wait any longer, and passes on a
    /// notification that it may have got.
    pub(crate) fn leave(&self, waiter: Waiter) {
        if self.getters.cancel(waiter) && self.fifo.len() > 0 {
            self.getters.notify(1);
        }
    }

    /// Ends the processing of a key.
    #[inline]
    pub(crate) fn finish(&self, held: Held<K>) {
        match held.finish() {
            (Some(entry), _) => self.enqueue(entry, true),
            (None, false) => {}
            (None, true) => {
                if self.closing.finished() {
                    self.closing.drainers.notify_all();
                }
            }
        }
    }

    /// The number of queued keys.
    pub(crate) fn len(&self) -> usize {
        self.fifo.len()
    }

    // ---- shutting down ----------------------------------------------------------------------

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.closing.has_begun()
    }

    /// Refuses adds from now on, and says what is left to do. Harmless when done again.
    pub(crate) fn close(&self) -> Remaining {
        let mut census = Census::default();
        if self.closing.begin() {
            for shard in self.keys.shards() {
                shard.for_each(|state, _| {
                    if let Some(phase) = state.close() {
                        census.count(phase);
                    }
                });
            }
            let (delivered, finished) = self.closing.walked(&census);
            if delivered {
                self.getters.notify_all();
            }
            if finished {
                self.closing.drainers.notify_all();
            }
        } else {
            self.count(&mut census);
        }
        Remaining {
            queued: census.queued,
            processing: census.processing + census.dirty,
            delayed: 0,
        }
    }

    fn count(&self, census: &mut Census) {
        for shard in self.keys.shards() {
            shard.for_each(|state, _| census.count(state.phase()));
        }
    }

    /// What is queued and what is being processed, as of some moment for each key.
    pub(crate) fn remaining(&self) -> Remaining {
        let mut census = Census::default();
        self.count(&mut census);
        Remaining {
            queued: census.queued,
            processing: census.processing + census.dirty,
            delayed: 0,
        }
    }

    pub(crate) fn closing(&self) -> &Closing {
        &self.closing
    }
}
