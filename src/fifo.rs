//! The FIFO of queued keys: a bounded ring ([`crate::ring`]), and an unbounded list that takes what the ring
//! cannot hold ([`crate::overflow`]).
//!
//! # Roles
//!
//! * Pushers put an entry into the ring; when the ring is full, or while anything is in the
//!   overflow, into the overflow.
//! * Poppers take from the ring. Who finds the ring empty and the overflow not becomes the
//!   *refiller*, under a mutex: it takes the oldest entry of the overflow for itself and moves
//!   as many behind it into the ring as fit.
//!
//! `backlog` is one word: how many entries the overflow has, and how many refills there were.
//!
//! # Order
//!
//! First in, first out for pushes of which one returns before the other begins (C1). Pushes that
//! overlap may come out either way round. Why the order holds:
//!
//! 1. The count in `backlog` is raised before an entry is put into the overflow, and lowered only
//!    after the entry is in the ring or in the refiller's hand.
//! 2. So a pusher that reads 0 and goes to the ring knows that every push that returned before
//!    it began has left the overflow: its entry is in the ring already, or delivered.
//! 3. A pusher may read 0, fall asleep, and push to the ring while the overflow has filled
//!    meanwhile. It overlaps with all of those, so no order is owed.
//! 4. A popper that saw the ring empty may fall asleep likewise, while the overflow empties, the
//!    ring fills up and the overflow with it. Were it now to take from the overflow, it would
//!    overtake the ring. Hence the refiller looks at the ring *again*, with the mutex held and
//!    the overflow seen non-empty: while both last, no push that begins goes to the ring, so
//!    what is in the overflow then is younger than nothing but overlapping pushes.
//!
//! # Emptiness
//!
//! `pop` answers `None` only if at some moment during the call every push that had returned was
//! popped. The trap is a refill between the look at the ring (empty yet) and the look at the
//! overflow (empty already), with entries that were there all the time:
//!
//! ```text
//!     popper                          refiller
//!     ring.pop() is empty
//!                                     moves b, c from the overflow to the ring
//!                                     count = 0
//!     reads count = 0                 (answering None here would strand b and c)
//! ```
//!
//! So the popper reads `backlog`, looks at the ring, and reads `backlog` again: the same word
//! twice, with count 0, says that no entry was in the overflow in between, for entries leave it
//! by a refill only, and each refill makes the word another.

use std::sync::PoisonError;

use crate::overflow::{Linked, Overflow};
use crate::ring::Ring;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// At most this many entries are moved in one refill, so that nobody waits long for the mutex.
const REFILL: u64 = 128;

/// `backlog`: the low half counts entries, the high half refills.
const ONE_REFILL: u64 = 1 << 32;

fn entries(backlog: u64) -> u64 {
    backlog & (ONE_REFILL - 1)
}

pub(crate) struct Fifo<T: Linked> {
    ring: Ring<T>,
    overflow: Overflow<T>,
    /// The entries of the overflow, with those just being put into it or moved out of it.
    backlog: AtomicU64,
    /// Held by the refiller. An entry is in it when the ring filled up under the refiller's
    /// hands: it is older than what is in the overflow, and still counted in `backlog`.
    refill: Mutex<Option<T>>,
}

impl<T: Linked> Fifo<T> {
    /// A FIFO whose ring holds `ring` entries, rounded up to a power of two.
    pub(crate) fn new(ring: usize) -> Self {
        Fifo {
            ring: Ring::new(ring),
            overflow: Overflow::new(),
            backlog: AtomicU64::new(0),
            refill: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn push(&self, entry: T) {
        // Ordering: Acquire; pairs with the Release in `refill`: who reads that the overflow is
        // empty pushes behind what was moved from it into the ring.
        let entry = if entries(self.backlog.load(Ordering::Acquire)) == 0 {
            match self.ring.push(entry) {
                Ok(()) => return,
                Err(entry) => entry,
            }
        } else {
            entry
        };
        self.push_overflow(entry);
    }

    #[cold]
    fn push_overflow(&self, entry: T) {
        // Ordering: Relaxed; whoever knows that this push returned knows it through some
        // synchronisation of its own, or through the full fences of waiter and waker.
        self.backlog.fetch_add(1, Ordering::Relaxed);
        self.overflow.push(entry);
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        // Most pops end here, and touch nothing but the ring.
        self.ring.pop().or_else(|| self.pop_slow())
    }

    fn pop_slow(&self) -> Option<T> {
        // Ordering: Acquire; pairs with the Release in `refill`: what was moved is in the ring.
        let mut before = self.backlog.load(Ordering::Acquire);
        loop {
            if entries(before) > 0 {
                return self.refill();
            }
            if let Some(entry) = self.ring.pop() {
                return Some(entry);
            }
            // Ordering: Acquire; keeps the look at the ring before the second look at `backlog`.
            fence(Ordering::Acquire);
            // Ordering: Acquire; as the first.
            let after = self.backlog.load(Ordering::Acquire);
            if after == before {
                return None;
            }
            before = after;
        }
    }

    #[cold]
    fn refill(&self) -> Option<T> {
        // Nothing that panics is done under the mutex, so a poisoned one is as good.
        let mut left_over = self.refill.lock().unwrap_or_else(PoisonError::into_inner);
        // Ordering: Acquire; as in `pop_slow`.
        if entries(self.backlog.load(Ordering::Acquire)) == 0 {
            drop(left_over);
            return self.pop_slow();
        }
        // 4 in the header: look again, now that nobody else refills.
        if let Some(entry) = self.ring.pop() {
            return Some(entry);
        }
        // Counted but not yet there: that push has not returned, so the FIFO is empty.
        // SAFETY: the mutex is held, here and below.
        let pop = || unsafe { self.overflow.pop() };
        let oldest = left_over.take().or_else(pop)?;
        let mut moved = 1;
        while moved < REFILL {
            let Some(entry) = pop() else {
                break;
            };
            if let Err(entry) = self.ring.push(entry) {
                *left_over = Some(entry);
                break;
            }
            moved += 1;
        }
        // Ordering: Release; pairs with the Acquire in `push` and `pop_slow`.
        self.backlog
            .fetch_add(ONE_REFILL - moved, Ordering::Release);
        Some(oldest)
    }

    /// Whether nothing is there. Waits for nobody, and overlooks no entry that was there all the time.
    pub(crate) fn is_empty(&self) -> bool {
        // In the order in which entries move: what has left the overflow is in the ring, or taken.
        // Ordering: Acquire; as in `pop_slow`.
        entries(self.backlog.load(Ordering::Acquire)) == 0 && self.ring.is_empty()
    }

    /// The number of entries; exact when nobody pushes or pops meanwhile.
    ///
    /// Waits for a refill to end: an entry that has been moved to the ring and is still counted in
    /// `backlog` would count twice.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Acquire; as in `pop_slow`.
        if entries(self.backlog.load(Ordering::Acquire)) == 0 {
            return self.ring.len();
        }
        let _no_refill = self.refill.lock().unwrap_or_else(PoisonError::into_inner);
        // Ordering: Relaxed; a snapshot.
        self.ring.len() + entries(self.backlog.load(Ordering::Relaxed)) as usize
    }
}

#[cfg(test)]
mod tests;
