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

use crate::keys::state::State;
use crate::queue::added::Remaining;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::wait::WaitList;

/// Far above any number of keys, far below overflow.
const WALKING: usize = usize::MAX / 2;

pub(crate) struct Closing {
    begun: AtomicBool,
    undelivered: AtomicUsize,
    unfinished: AtomicUsize,
    /// Raised by each `shut_down`: a drainer that sees it rise returns at once.
    releases: AtomicUsize,
    /// The delays that the shut-down has dropped.
    dropped: AtomicUsize,
    pub(crate) drainers: WaitList,
}

/// What a walk has counted.
#[derive(Default)]
pub(crate) struct Census {
    pub(crate) queued: usize,
    pub(crate) processing: usize,
    pub(crate) dirty: usize,
    /// Delays that were pending.
    pub(crate) delayed: usize,
}

impl Census {
    pub(crate) fn count(&mut self, phase: State) {
        match phase {
            State::Idle => {}
            State::Queued => self.queued += 1,
            State::Processing => self.processing += 1,
            State::Dirty => self.dirty += 1,
        }
    }

    pub(crate) fn remaining(&self) -> Remaining {
        Remaining {
            queued: self.queued,
            processing: self.processing + self.dirty,
            delayed: self.delayed,
        }
    }
}

impl Closing {
    pub(crate) fn new() -> Self {
        Closing {
            begun: AtomicBool::new(false),
            undelivered: AtomicUsize::new(WALKING),
            unfinished: AtomicUsize::new(WALKING),
            releases: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            drainers: WaitList::new(),
        }
    }

    /// Returns whether a shut-down has begun.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        // Ordering: Acquire; pairs with the AcqRel in `begin`. Outside a shard's lock it is a
        // hint: the key's word decides.
        self.begun.load(Ordering::Acquire)
    }

    /// Begins a shut-down. Returns true to the one caller that has to walk.
    pub(crate) fn begin(&self) -> bool {
        // Ordering: AcqRel; pairs with the Acquire in `has_begun`. For new keys the pairing is
        // by the shard's lock, which the walker takes after this.
        !self.begun.swap(true, Ordering::AcqRel)
    }

    /// Returns the number of delays that the shut-down has dropped; 0 before the walk has ended.
    pub(crate) fn dropped(&self) -> usize {
        // Ordering: Relaxed; a finished drain reads it after the Acquire in `all_finished`.
        // Other callers may get 0 while the walk goes on.
        self.dropped.load(Ordering::Relaxed)
    }

    /// Ends the walk. Returns whether nothing is unfinished now.
    pub(crate) fn walked(&self, census: &Census) -> bool {
        // Ordering: Relaxed; released by the changes of the counters below.
        self.dropped.store(census.delayed, Ordering::Relaxed);
        let undelivered = census.queued + census.dirty;
        let unfinished = undelivered + census.processing;
        // Ordering: AcqRel; pairs with the other changes of the counter and the Acquire loads
        // below: a thread that reads 0 sees everything that was done to the keys.
        self.undelivered
            .fetch_sub(WALKING - undelivered, Ordering::AcqRel);
        // Ordering: AcqRel; as above.
        let before = self
            .unfinished
            .fetch_sub(WALKING - unfinished, Ordering::AcqRel);
        before == WALKING - unfinished
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
        // Ordering: Acquire; pairs with the AcqRel of `walked` and `delivered`.
        self.undelivered.load(Ordering::Acquire) == 0
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

    pub(crate) fn releases(&self) -> usize {
        // Ordering: Relaxed; as above.
        self.releases.load(Ordering::Relaxed)
    }
}
