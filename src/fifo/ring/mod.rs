//! The bounded part of the FIFO: a ring of links with any number of pushers and poppers.
//!
//! This is Vyukov's bounded MPMC queue (1024cores.net) with entries that are pointers: instead of a
//! sequence number beside the value, a slot is one word, the address of an entry's link or null,
//! with the parity of its lap in the lowest bit. It begins as null of lap 0, so an unused ring is
//! all zeros.
//!
//! # Roles
//!
//! ```text
//!     pusher                                     popper
//!     1 read `tail`                              1 read `head`
//!     2 is the slot empty in this lap?           2 is the slot full in this lap?
//!     3 claim: CAS tail -> tail + 1              3 claim: CAS head -> head + 1
//!     4 slot = link, in this lap                 4 slot = null, in the next lap
//! ```
//!
//! # Why one bit is enough
//!
//! Positions are 64 bits and never repeat, so a successful CAS in step 3 means that the position
//! was the same from step 1 on. Let `N` be the number of slots. While the tail is `t`, only two
//! threads may still write to its slot: the pusher of `t - N` its link, and the popper of `t - N`
//! the null. Older laps have ended: some thread observed the end of lap `t - 2N` before it moved
//! `tail` past `t - N`, and the load in step 1 synchronizes with that CAS or a later one. So step 2
//! reads a word of this lap or of the one before, and the parity tells them apart. The same holds
//! for the head. The entry that a popper reads in step 2 is the one that it owns after step 3.
//!
//! # Contention
//!
//! A thread that loses the CAS, or finds that its position has moved, backs off exponentially. The
//! winner keeps the cache lines meanwhile and can push or pop several more entries; without the
//! back-off, the lines would move for every entry.
//!
//! # Full and empty
//!
//! * `push` returns the entry if its slot is not empty yet: either the ring is full, or a popper is
//!   still taking out one of its oldest entries. The pusher does not wait for that popper, since
//!   the caller can put the entry into the overflow.
//! * `pop` returns `None` only if tail and head were equal at some moment of the call. It waits for
//!   an entry whose pusher is between steps 3 and 4, because later pushes may have returned
//!   already.
//! * A push ends with the read-modify-write in step 3 and the store in step 4. A popper that
//!   observes the CAS but not the store waits for the store; so for [`crate::wait`], an entry
//!   counts as published from step 3 on.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::fifo::overflow::{Link, Linked};
use crate::sync::Backoff;
use crate::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

pub(crate) struct Ring<T: Linked> {
    /// The position of the next push.
    tail: CachePadded<AtomicU64>,
    /// The position of the next pop.
    head: CachePadded<AtomicU64>,
    /// A power of two.
    slots: Box<[AtomicPtr<Link>]>,
    _entries: PhantomData<T>,
}

// SAFETY: the ring owns its entries, moves them between threads, and gives out no references.
unsafe impl<T: Linked + Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Linked + Send> Sync for Ring<T> {}

/// The number of back-off steps, each twice as long as the one before, for which a thread leaves a
/// contended slot alone.
const STEPS: u32 = 3;

fn back_off(backoff: &Backoff) {
    (0..STEPS).for_each(|_| backoff.snooze());
}

/// Returns the word of a slot that holds `link`, or null, in an odd or an even lap.
#[inline]
fn word(link: *mut Link, odd: bool) -> *mut Link {
    // A link is aligned, so its lowest bit is free.
    link.map_addr(|address| address | usize::from(odd))
}

/// Step 2 of a push: returns whether a slot is empty in this lap.
#[inline]
fn is_free(slot: &AtomicPtr<Link>, odd: bool) -> bool {
    // Ordering: Acquire; pairs with the Release in `take` and in `fill`: a pusher that finds the
    // slot filled by another one also sees the tail moved.
    slot.load(Ordering::Acquire) == word(ptr::null_mut(), odd)
}

/// Step 2 of a pop: returns the link in a slot, if the slot is full in this lap.
#[inline]
fn link_in(slot: &AtomicPtr<Link>, odd: bool) -> Option<NonNull<Link>> {
    // Ordering: Acquire; pairs with the Release in `fill`.
    let word = slot.load(Ordering::Acquire);
    let link = word.map_addr(|address| address ^ usize::from(odd));
    NonNull::new(link).filter(|link| link.is_aligned())
}

/// Step 3: moves the tail or the head on by one, unless another thread has moved it.
#[inline]
fn claim(place: &AtomicU64, position: u64) -> bool {
    // Ordering: Release; pairs with the Acquire loads of tail and head. Relaxed on failure; the
    // caller loads the position again.
    place
        .compare_exchange(position, position + 1, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// Step 4 of a push: puts an entry into the slot of a claimed position.
#[inline]
fn fill<T: Linked>(slot: &AtomicPtr<Link>, odd: bool, entry: T) {
    // Ordering: Release; pairs with the Acquire in `link_in`: a popper of the entry sees what was
    // written before the push.
    slot.store(word(entry.into_link().as_ptr(), odd), Ordering::Release);
}

/// Step 4 of a pop: takes the entry out of the slot of a claimed position, and leaves the slot
/// empty for the next lap.
///
/// # Safety
///
/// `link` was in the slot when the position was claimed.
#[inline]
unsafe fn take<T: Linked>(slot: &AtomicPtr<Link>, odd: bool, link: NonNull<Link>) -> T {
    // Ordering: Release; pairs with the Acquire in `is_free`.
    slot.store(word(ptr::null_mut(), !odd), Ordering::Release);
    // SAFETY: a push put the link there, and the claim makes this the only pop of it.
    unsafe { T::from_link(link) }
}

impl<T: Linked> Ring<T> {
    /// Creates a ring for `capacity` entries, rounded up to a power of two.
    pub(crate) fn new(capacity: usize) -> Self {
        Ring {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            slots: (0..capacity.next_power_of_two())
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            _entries: PhantomData,
        }
    }

    /// Returns the slot of a position, and whether its lap is odd.
    #[inline]
    fn at(&self, position: u64) -> (&AtomicPtr<Link>, bool) {
        let capacity = self.slots.len();
        // SAFETY: the index is the remainder by the number of slots, which is a power of two.
        let slot = unsafe { self.slots.get_unchecked(position as usize & (capacity - 1)) };
        (slot, position & capacity as u64 != 0)
    }

    /// Pushes an entry. Returns it if the ring is full, or a popper is about to make room.
    #[inline]
    pub(crate) fn push(&self, entry: T) -> Result<(), T> {
        // Ordering: Acquire; pairs with the Release in `claim`: no slot reads as it was two laps
        // ago.
        let tail = self.tail.load(Ordering::Acquire);
        let (slot, odd) = self.at(tail);
        // If the slot is empty in this lap and no other pusher claims it first, it is this push's.
        if is_free(slot, odd) && claim(&self.tail, tail) {
            fill(slot, odd, entry);
            return Ok(());
        }
        // Another pusher was faster, or the ring is full.
        self.push_slow(tail, entry)
    }

    /// Continues a push that failed at position `tail`.
    #[cold]
    fn push_slow(&self, mut tail: u64, entry: T) -> Result<(), T> {
        let backoff = Backoff::new();
        loop {
            // If the tail has not moved, no other pusher took the position: its slot was not empty,
            // so the ring is full or a popper has not emptied the slot yet.
            // Ordering: Relaxed; a pusher that moved the tail is visible through the slot's word,
            // or through the CAS that it won.
            if self.tail.load(Ordering::Relaxed) == tail {
                return Err(entry);
            }
            // Other pushers are active: leave the cache lines to them for a moment, then try again
            // at the new tail.
            back_off(&backoff);
            // Ordering: Acquire; as in `push`.
            tail = self.tail.load(Ordering::Acquire);
            let (slot, odd) = self.at(tail);
            // If the slot is empty in this lap and no other pusher claims it first, as in `push`.
            if is_free(slot, odd) && claim(&self.tail, tail) {
                fill(slot, odd, entry);
                return Ok(());
            }
        }
    }

    /// Pops the oldest entry. Returns `None` only if all entries were popped at some moment of the
    /// call.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        // Ordering: Acquire; pairs with the Release in `claim`: no slot reads as it was two laps
        // ago.
        let head = self.head.load(Ordering::Acquire);
        let (slot, odd) = self.at(head);
        match link_in(slot, odd) {
            // If the slot is full in this lap and no other popper claims it first, the entry is
            // this pop's.
            // SAFETY: the link was in the slot of the position just claimed.
            Some(link) if claim(&self.head, head) => Some(unsafe { take(slot, odd, link) }),
            // Another popper was faster, or the ring is empty.
            _ => self.pop_slow(head),
        }
    }

    /// Continues a pop that failed at position `head`.
    #[cold]
    fn pop_slow(&self, mut head: u64) -> Option<T> {
        let backoff = Backoff::new();
        loop {
            // If the tail is where the head was, the ring was empty.
            // Ordering: Relaxed; if a push returned before this call, what tells the caller so also
            // orders the push's CAS before this load.
            if self.tail.load(Ordering::Relaxed) == head {
                return None;
            }
            // Another popper took the position, or its pusher has claimed it but not yet filled the
            // slot. Back off, then try again at the new head.
            back_off(&backoff);
            // Ordering: Acquire; as in `pop`.
            head = self.head.load(Ordering::Acquire);
            let (slot, odd) = self.at(head);
            match link_in(slot, odd) {
                // If the slot is full in this lap and no other popper claims it first, as in `pop`.
                Some(link) if claim(&self.head, head) => {
                    // SAFETY: as in `pop`.
                    return Some(unsafe { take(slot, odd, link) });
                }
                _ => {}
            }
        }
    }

    /// Returns whether the ring is empty, without waiting for another thread.
    pub(crate) fn is_empty(&self) -> bool {
        // The head is loaded first: positions only grow and the tail is never behind the head, so
        // if the tail has the same value later, both had it at the same moment.
        // Ordering: Acquire; keeps the two in order.
        let head = self.head.load(Ordering::Acquire);
        // Ordering: Relaxed; as in `pop`.
        self.tail.load(Ordering::Relaxed) == head
    }

    /// Returns the number of entries at some moment of the call, including those being pushed.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Acquire; keeps the three in order.
        let mut tail = self.tail.load(Ordering::Acquire);
        loop {
            // Ordering: Acquire; as above.
            let head = self.head.load(Ordering::Acquire);
            // Ordering: Acquire; as above.
            let now = self.tail.load(Ordering::Acquire);
            // The tail did not move around the load of the head, so both values held together.
            if now == tail {
                return (tail - head) as usize;
            }
            tail = now;
        }
    }
}

impl<T: Linked> Drop for Ring<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            while let Some(entry) = self.pop() {
                drop(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests;
