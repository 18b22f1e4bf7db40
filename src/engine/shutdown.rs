//! Shutting down: how a queue without a global lock knows exactly when it is empty and at rest.
//!
//! While the queue is open, no thread counts anything. A shut-down closes the keys one by one, and
//! each key's own word decides whether an add came before it or after:
//!
//! 1. `begun` is set. From here on a new key is refused, or was inserted before the walk locks its
//!    shard and is found by it. The timer is ended: with `drain_delays` every pending delay fires.
//! 2. The *walk*: shard by shard, under the shard's lock, each node gets its closed flag. The
//!    write that sets the flag reads the key's state at that moment, and a key that is not idle is
//!    counted: in `unfinished`, and in `undelivered` too if it will be delivered (queued or dirty).
//!    A delay that is still pending is dropped or, with `drain_delays`, delivered now.
//! 3. From then on a key only moves towards idle, because adds are refused: dirty, queued,
//!    processing, idle. `begin` and `finish` read the closed flag in the word that they change
//!    anyway, and lower the counters. This costs an open queue nothing.
//!
//! The walk holds a mutex. A shut-down that is not the first waits for the walk, so it finds every
//! key closed and every dropped delay counted. So does a worker whose retry is refused. No user code runs under
//! the mutex. In a queue with values a dropped delay counts only if it has a value to deliver; to see that, the walk waits for a
//! merge function that runs on it.
//!
//! # Abandoning
//!
//! [`Core::abandon`] ends a queue without delivering what is queued. It closes the keys, and then
//! walks once more. Again each key's own word decides, now whether a delivery began before it:
//!
//! ```text
//! queued        sets abandoned: the thread that pops the entry reads it in its `begin`, and
//!               discards the entry instead of delivering it
//! dirty         becomes processing: its `done` makes it idle
//! otherwise     unchanged: no delivery follows
//! ```
//!
//! After this walk no delivery begins, and getters end at once: not only when the thread that has begun the
//! last delivery has counted it (below). The thread that abandons then pops and discards all entries,
//! and lowers both counters by what *it* has abandoned; the threads that discard lower none. An
//! adder may still be about to push the entry of an abandoned key. No thread waits for it: it is
//! counted already, and the next `take` discards it, or the queue's drop.
//!
//! # Counters
//!
//! Both counters start too high by [`WALKING`]. At its end the walk subtracts that, and adds what
//! it has counted. So no counter reads 0 before the walk is complete, and each reaches 0 exactly
//! once:
//!
//! * `undelivered` 0: nothing is queued and nothing will be. `get` returns `None` from here on,
//!   forever, and every waiting getter is woken.
//! * `unfinished` 0: no key is held by a worker either. Every drainer is woken.
//!
//! A key that was dirty when the queue was shut down still counts as undelivered, so getters wait
//! for it: a `None` is final.
//!
//! # Redelivery
//!
//! A drain that delivers what is delayed also delivers the keys again that workers retry meanwhile
//! ([`super::left`]). As long as one does, `undelivered` is one too high, so that getters wait for all
//! workers. The word `redelivers` counts these drains, under its lock:
//!
//! ```text
//!     0 -> 1          a drain begins the shut-down, in a queue that is set to this
//!     n -> n + 1      another drain begins, if n > 0
//!     n -> n - 1      a drain is out of time, or is dropped, if n > 0
//!     n -> 0          another kind of end, or the last key is finished
//! ```
//!
//! It never leaves 0 again, because getters may have ended by then. So a drain that is not counted, or not
//! any more, finds 0 when it ends, and changes nothing. A retry marks the key dirty and counts it while that
//! word is locked, so a thread that has brought it to 0 finds every such key dirty and counted.

use super::Core;
use crate::added::Remaining;
use crate::keys::visit::Census;
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sync::{Mutex, SpinLock};
use crate::wait::WaitList;

/// Far above any number of keys, far below overflow.
const WALKING: usize = usize::MAX / 2;

/// A shut-down has begun.
const BEGUN: u8 = 1;
/// Adds have more to do than to add: they are recorded, or supersede delays.
const SPECIAL: u8 = 1 << 1;
/// What is queued has been abandoned: no delivery begins any more.
const ABANDONED: u8 = 1 << 2;

pub(crate) struct Closing {
    /// [`BEGUN`], [`SPECIAL`] and [`ABANDONED`], in one word that an add reads once.
    mode: AtomicU8,
    /// Locked during the walk.
    pub(super) walk: Mutex<()>,
    pub(super) undelivered: AtomicUsize,
    unfinished: AtomicUsize,
    /// The drains that deliver keys again that are retried. No other lock is taken under this one.
    pub(super) redelivers: SpinLock<usize>,
    /// The retries that were refused.
    pub(super) refused: AtomicUsize,
    /// Raised by each `shut_down`: a drainer that sees it rise returns at once.
    releases: AtomicUsize,
    /// The delays that the shut-down has dropped.
    dropped: AtomicUsize,
    /// Those who wait for the begin of a shut-down, too.
    pub(crate) drainers: WaitList,
}

impl Closing {
    /// `special` says that adds have more to do than to add.
    pub(crate) fn new(special: bool) -> Self {
        Closing {
            mode: AtomicU8::new(u8::from(special) * SPECIAL),
            walk: Mutex::new(()),
            undelivered: AtomicUsize::new(WALKING),
            unfinished: AtomicUsize::new(WALKING),
            redelivers: SpinLock::new(0),
            refused: AtomicUsize::new(0),
            releases: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            drainers: WaitList::default(),
        }
    }

    /// Returns whether a shut-down has begun.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        // Ordering: Acquire; pairs with the AcqRel in `begin`. Outside a shard's lock it is a
        // hint: the key's word decides.
        self.mode.load(Ordering::Acquire) & BEGUN != 0
    }

    /// Returns whether an add has nothing to do but to add: no shut-down has begun, the queue is not
    /// timed, and adds do not supersede delays.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        // Ordering: Acquire; as in `has_begun`.
        self.mode.load(Ordering::Acquire) == 0
    }

    /// Begins a shut-down. Returns true to the one caller that has to walk. Counts a drain that is to
    /// `redeliver`.
    fn begin(&self, redeliver: bool) -> bool {
        let mut redelivers = self.redelivers.lock();
        // Ordering: AcqRel; pairs with the Acquire in `has_begun`. For new keys the pairing is
        // by the shard's lock, which the walker takes after this.
        let is_first = self.mode.fetch_or(BEGUN, Ordering::AcqRel) & BEGUN == 0;
        if is_first && redeliver {
            // Ordering: AcqRel; as in `walked`.
            self.undelivered.fetch_add(1, Ordering::AcqRel);
        }
        if redeliver && (is_first || *redelivers > 0) {
            *redelivers += 1;
        }
        is_first
    }

    /// Returns the number of delays that the shut-down has dropped; 0 before the walk has ended.
    pub(crate) fn dropped(&self) -> usize {
        // Ordering: Relaxed; a caller that has shut down is ordered by the mutex of the walk.
        self.dropped.load(Ordering::Relaxed)
    }

    /// Ends the walk.
    fn walked(&self, census: &Census) {
        // Ordering: Relaxed; ordered by the mutex of the walk.
        self.dropped.store(census.delayed, Ordering::Relaxed);
        let undelivered = census.queued + census.dirty;
        let unfinished = undelivered + census.processing;
        // Ordering: AcqRel; pairs with the other changes of the counter and the Acquire loads
        // below: a thread that reads 0 sees everything that was done to the keys.
        self.undelivered
            .fetch_sub(WALKING - undelivered, Ordering::AcqRel);
        // Ordering: AcqRel; as above.
        self.unfinished
            .fetch_sub(WALKING - unfinished, Ordering::AcqRel);
    }

    /// Counts what was abandoned: it will not be delivered, and what was queued is finished.
    fn abandoned(&self, census: &Census) {
        // Ordering: AcqRel; as in `walked`.
        self.undelivered
            .fetch_sub(census.queued + census.dirty, Ordering::AcqRel);
        // Ordering: AcqRel; as in `walked`.
        self.unfinished.fetch_sub(census.queued, Ordering::AcqRel);
        // Ordering: Release; pairs with the Acquire in `all_delivered`.
        self.mode.fetch_or(ABANDONED, Ordering::Release);
    }

    /// Counts the delivery of a closed key. Returns whether it was the last.
    pub(crate) fn delivered(&self) -> bool {
        // Ordering: AcqRel; as in `walked`.
        self.undelivered.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Counts a closed key that has become idle. Returns whether it was the last.
    pub(crate) fn finished(&self) -> bool {
        // Ordering: AcqRel; as in `walked`.
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns whether nothing is queued and nothing will be.
    pub(crate) fn all_delivered(&self) -> bool {
        // Ordering: Acquire; pairs with the AcqRel in `begin` and the Release in `abandoned`.
        let mode = self.mode.load(Ordering::Acquire);
        // Ordering: Acquire; pairs with the AcqRel of `walked` and `delivered`.
        let delivered = || self.undelivered.load(Ordering::Acquire) == 0 || self.all_finished();
        mode & BEGUN != 0 && (mode & ABANDONED != 0 || delivered())
    }

    /// Returns whether nothing is queued or held by a worker, and nothing will be.
    pub(crate) fn all_finished(&self) -> bool {
        // Ordering: Acquire; pairs with the AcqRel of `walked` and `finished`.
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Releases every drainer that waits now.
    pub(crate) fn release(&self) {
        // Ordering: Relaxed; the fences of waiter and waker order it, see [`crate::wait`].
        self.releases.fetch_add(1, Ordering::Relaxed);
        self.drainers.notify_all();
    }

    /// Returns the number of retries that were refused.
    pub(crate) fn refused(&self) -> usize {
        // Ordering: Relaxed; a count.
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn releases(&self) -> usize {
        // Ordering: Relaxed; as above.
        self.releases.load(Ordering::Relaxed)
    }
}

impl<K, V> Core<K, V> {
    /// Shuts the queue down without waiting.
    pub(crate) fn shut_down(&self) -> Remaining {
        let remaining = self.close(false);
        self.end_redelivery();
        self.closing.release();
        remaining
    }

    /// Refuses adds from now on, and returns what is left to do. Another call is harmless.
    ///
    /// Pending delays are dropped, or with `deliver` their keys are added now. A drain that calls this with
    /// `deliver` calls [`leave_redelivery`](Self::leave_redelivery) once, when it ends.
    pub(crate) fn close(&self, deliver: bool) -> Remaining {
        let walk = self.closing.walk.lock();
        if !self.closing.begin(deliver) {
            drop(walk);
            return self.remaining();
        }
        // From here on no delay fires. The walk finds every delay that is still pending, those
        // set meanwhile included.
        let mut owed = Vec::new();
        let ended = self.end_timer(deliver, |added| owed.push(added));
        let mut census = Census::default();
        for shard in self.keys.shards() {
            shard.close(deliver, &mut census, |added| owed.push(added));
        }
        let dropped = census.delayed;
        if let (Some(values), true) = (self.values(), dropped > 0) {
            census.delayed -= self.count_empty_delays(values);
        }
        self.timer.clear(ended);
        self.closing.walked(&census);
        drop(walk);
        // Unlocked, because pushes may run user code. These keys are counted as undelivered, so getters
        // wait for them.
        for added in owed {
            let _ = self.after_add_unannounced(added);
        }
        // If every key is delivered, every getter must end. If not, there may be keys whose
        // delays ended just now; and a getter that was notified before may be a future that is
        // kept and not polled, for which no later add makes up.
        self.getters.notify_all();
        // The drainers, if nothing is left, and those who wait for the begin.
        self.closing.drainers.notify_all();
        if let Some(room) = self.bound() {
            room.close();
        }
        if let Some(values) = self.values()
            && dropped > 0
        {
            self.drop_receipts_of_delayed(values);
        }
        self.remaining_of(&census)
    }

    /// Refuses adds from now on, and ends all deliveries. Returns the number of keys that this call
    /// has discarded as queued, and what is still processing. Another call is harmless.
    pub(crate) fn abandon(&self) -> Remaining {
        self.close(false);
        self.end_redelivery();
        // Locked until the keys that this walk abandons are counted: another caller, whose walk
        // finds them idle, would return before the getters can end.
        let walk = self.closing.walk.lock();
        let mut census = Census::default();
        let receipts = match self.values() {
            None => {
                for shard in self.keys.shards() {
                    shard.for_each(|node| census.count(node.state.abandon()));
                }
                Vec::new()
            }
            Some(values) => self.abandon_with_values(values, &mut census),
        };
        self.closing.abandoned(&census);
        drop(walk);
        drop(receipts); // ends the receipts, which runs wakers
        self.discard_abandoned();
        self.getters.notify_all();
        self.closing.drainers.notify_all();
        census.delayed = self.closing.dropped();
        self.remaining_of(&census)
    }

    fn remaining_of(&self, census: &Census) -> Remaining {
        Remaining {
            refused: self.closing.refused(),
            ..census.remaining()
        }
    }

    /// Returns the numbers of queued, processing and delayed keys, as of some moment for each key.
    /// The delays that a shut-down has dropped count as delayed.
    pub(crate) fn remaining(&self) -> Remaining {
        let mut census = Census::default();
        for shard in self.keys.shards() {
            shard.for_each(|node| {
                census.count(node.state.phase());
                census.delayed += usize::from(node.delay.due().is_some());
            });
        }
        census.delayed += self.closing.dropped();
        self.remaining_of(&census)
    }
}
