//! The FIFO of queued keys: a bounded ring ([`crate::fifo::ring`]), and an unbounded list for
//! entries that do not fit in the ring ([`crate::fifo::overflow`]).
//!
//! # Roles
//!
//! * A pusher puts its entry into the ring; if the ring is full or the overflow is not empty, into
//!   the overflow.
//! * A popper takes from the ring. A popper that finds the ring empty and the overflow not empty
//!   becomes the *refiller*, under a mutex: it takes the oldest entry of the overflow for itself,
//!   and moves the entries behind it into the ring, as many as fit, up to [`REFILL`].
//!
//! # Order
//!
//! First in, first out for pushes of which one returns before the other begins (C1). Entries of
//! overlapping pushes may come out in either order. The order holds for these reasons:
//!
//! 1. The count in `backlog` is raised before an entry is put into the overflow, and lowered only
//!    after the entry is in the ring or the refiller has it.
//! 2. So if a pusher reads 0 and goes to the ring, the entry of every push that returned before it
//!    began is in the ring already, or delivered.
//! 3. A pusher may read 0, be preempted, and push to the ring after the overflow has filled. It
//!    overlaps with all of those pushes.
//! 4. A popper that saw the ring empty may be preempted likewise, while the overflow empties, and
//!    then both fill up again. If it took from the overflow now, it would overtake the entries in
//!    the ring. So the refiller checks the ring *again*, after it has locked the mutex and read
//!    that the overflow is not empty. While both hold, no push that begins goes to the ring, so the
//!    overflow's oldest entry is the oldest of the FIFO, overlapping pushes excepted.
//!
//! # Emptiness
//!
//! `pop` returns `None` only if at some moment during the call every push that had returned was
//! popped. The hazard is a refill between the check of the ring (still empty) and the check of the
//! overflow (already empty): `None` would miss what it moved. So the popper reads `backlog`, checks
//! the ring, and reads `backlog` again. The same word twice, with count 0, means that the overflow
//! was empty in between, because entries leave it only by a refill, and each refill changes the
//! word.

pub(crate) mod groups;
pub(crate) mod order;
pub(crate) mod overflow;
pub(crate) mod ring;

use std::iter;

use crate::fifo::overflow::Overflow;
use crate::fifo::ring::{Missed, Ring};
use crate::keys::node::Queued;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// The most entries that one refill moves, so that no thread waits long for the mutex.
const REFILL: u64 = 128;

/// In `backlog` the low half counts entries, the high half refills.
const ONE_REFILL: u64 = 1 << 32;

fn entries(backlog: u64) -> u64 {
    backlog & (ONE_REFILL - 1)
}

pub(crate) struct Fifo<K> {
    ring: Ring,
    overflow: Overflow,
    /// The number of entries in the overflow, including those being pushed to it or moved out of
    /// it, and the number of refills.
    backlog: AtomicU64,
    /// Locked by the refiller. It holds the entry that did not fit when the ring filled up during a
    /// refill. That entry is older than those in the overflow, and still counted in `backlog`.
    refill: Mutex<Option<Queued<K>>>,
}

impl<K> Fifo<K> {
    /// Creates a FIFO whose ring holds `ring` entries, rounded up to a power of two.
    pub(crate) fn new(ring: usize) -> Self {
        Fifo {
            ring: Ring::new(ring),
            overflow: Overflow::default(),
            backlog: AtomicU64::new(0),
            refill: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn push(&self, entry: Queued<K>) {
        if let Err(missed) = self.try_push(&entry) {
            self.push_missed(entry, missed);
        }
    }

    /// Pushes to the ring, if that succeeds at the first attempt, as it does for most pushes. If not, the
    /// caller continues with [`push_missed`](Self::push_missed).
    #[inline]
    pub(crate) fn try_push(&self, entry: &Queued<K>) -> Result<(), Missed> {
        // Ordering: Acquire; pairs with the Release in `refill`: a pusher that reads that the
        // overflow is empty pushes behind the entries that were moved from it into the ring.
        let overflown = entries(self.backlog.load(Ordering::Acquire)) > 0;
        if overflown {
            Err(Missed::SKIPPED)
        } else {
            self.ring.try_push(entry.link())
        }
    }

    /// Continues a push whose first attempt did not succeed.
    #[inline]
    pub(crate) fn push_missed(&self, entry: Queued<K>, missed: Missed) {
        if missed.is_skipped() {
            self.push_overflow(entry, iter::empty());
        } else {
            self.push_raced(entry, missed);
        }
    }

    #[cold]
    fn push_raced(&self, entry: Queued<K>, missed: Missed) {
        if !self.ring.push_missed(entry.link(), missed) {
            self.push_overflow(entry, iter::empty());
        }
    }

    /// Pushes entries, in their order: those that overflow in one step. Returns their number.
    pub(crate) fn push_all(&self, mut all: impl Iterator<Item = Queued<K>>) -> usize {
        let mut pushed = 0;
        while let Some(entry) = all.next() {
            if let Err(missed) = self.try_push(&entry)
                && (missed.is_skipped() || !self.ring.push_missed(entry.link(), missed))
            {
                // From then on this call does not return to the ring: its entries would overtake these.
                return pushed + self.push_overflow(entry, all);
            }
            pushed += 1;
        }
        pushed
    }

    /// Pushes entries that are not in the ring, in their order. Returns their number.
    #[cold]
    fn push_overflow(&self, first: Queued<K>, others: impl Iterator<Item = Queued<K>>) -> usize {
        let (start, mut last, mut count) = (first.link(), first, 1);
        for entry in others {
            last.set_next(&entry);
            last = entry;
            count += 1;
        }
        // Ordering: Release; pairs with the Acquire in `refill`: a popper that reads a count with
        // these entries also finds what this thread pushed to the ring before, or saw pushed.
        self.backlog.fetch_add(count, Ordering::Release);
        // SAFETY: nodes never move, a queued one stays interned, and has only one entry.
        unsafe { self.overflow.push(start, last.link()) };
        count as usize
    }

    /// Pops the oldest entry, or returns `None` if there is none.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Queued<K>> {
        match self.try_pop() {
            Ok(entry) => Some(entry),
            Err(missed) => self.pop_missed(missed),
        }
    }

    /// Pops from the ring, if that succeeds at the first attempt, as it does for most pops. If not,
    /// the caller continues with [`pop_missed`](Self::pop_missed).
    #[inline]
    pub(crate) fn try_pop(&self) -> Result<Queued<K>, Missed> {
        let popped = self.ring.try_pop();
        // SAFETY: the link of an entry that was pushed and is popped once.
        popped.map(|link| unsafe { Queued::from_link(link) })
    }

    /// Continues a pop whose first attempt did not succeed.
    #[cold]
    pub(crate) fn pop_missed(&self, missed: Missed) -> Option<Queued<K>> {
        let popped = self.ring.pop_missed(missed);
        // SAFETY: as in `try_pop`.
        let popped = popped.map(|link| unsafe { Queued::from_link(link) });
        popped.or_else(|| self.pop_slow())
    }

    fn pop_ring(&self) -> Option<Queued<K>> {
        // SAFETY: as in `try_pop`.
        self.ring
            .pop()
            .map(|link| unsafe { Queued::from_link(link) })
    }

    #[cold]
    fn pop_slow(&self) -> Option<Queued<K>> {
        // Ordering: Acquire; pairs with the Release in `refill`: the moved entries are visible in
        // the ring.
        let mut before = self.backlog.load(Ordering::Acquire);
        loop {
            // The overflow has entries: take its oldest, and refill the ring.
            if entries(before) > 0 {
                match self.refill() {
                    Ok(entry) => return entry,
                    // Another thread emptied the overflow first: its entries are in the ring.
                    Err(backlog) => before = backlog,
                }
            }
            if let Some(entry) = self.pop_ring() {
                return Some(entry);
            }
            // Ordering: Acquire; orders the pop from the ring before the second load of `backlog`.
            fence(Ordering::Acquire);
            // Ordering: Acquire; as the first.
            let after = self.backlog.load(Ordering::Acquire);
            // The same word: no refill moved entries past this thread.
            if after == before {
                return None;
            }
            before = after;
        }
    }

    /// Pops the oldest entry, or returns `None` if the FIFO was empty, and refills the ring. If the
    /// overflow is empty, returns the value of `backlog` that shows it.
    #[cold]
    fn refill(&self) -> Result<Option<Queued<K>>, u64> {
        let mut left_over = self.refill.lock();
        // Ordering: Acquire; as in `pop_slow`.
        let backlog = self.backlog.load(Ordering::Acquire);
        if entries(backlog) == 0 {
            return Err(backlog);
        }
        // Point 4 of "Order": check the ring again, now that no other thread can refill it.
        if let Some(entry) = self.pop_ring() {
            return Ok(Some(entry));
        }
        // SAFETY: the mutex is locked, and the link is that of an entry that was pushed.
        let pop = || unsafe { Some(Queued::from_link(self.overflow.pop()?)) };
        let Some(oldest) = left_over.take().or_else(pop) else {
            // The entry is counted but not yet pushed: that push has not returned, so the FIFO is
            // empty.
            return Ok(None);
        };
        let mut moved = 1;
        while moved < REFILL
            && let Some(entry) = pop()
        {
            if !self.ring.push(entry.link()) {
                // The ring is full: the entry is the first of the next refill.
                *left_over = Some(entry);
                break;
            }
            moved += 1;
        }
        // Ordering: Release; pairs with the Acquire in `push` and `pop_slow`.
        self.backlog
            .fetch_add(ONE_REFILL - moved, Ordering::Release);
        Ok(Some(oldest))
    }

    /// Returns whether the FIFO is empty, without waiting. It does not miss an entry that is in the
    /// FIFO during the whole call.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // The overflow is checked first, in the order in which entries move: an entry that has left
        // the overflow is in the ring, or popped.
        // Ordering: Acquire; as in `pop_slow`.
        entries(self.backlog.load(Ordering::Acquire)) == 0 && self.ring.is_empty()
    }

    /// Returns the number of entries; exact if no thread pushes or pops at the same time. Waits for
    /// a refill to end, because an entry that it moves would count twice.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Acquire; as in `pop_slow`.
        if entries(self.backlog.load(Ordering::Acquire)) == 0 {
            return self.ring.len();
        }
        let _no_refill = self.refill.lock();
        // Ordering: Relaxed; a snapshot.
        self.ring.len() + entries(self.backlog.load(Ordering::Relaxed)) as usize
    }
}

#[cfg(test)]
mod tests;
