//! The bounded part of the FIFO: a ring of links that any number of threads push to and pop from.
//!
//! A slot is one word: the address of an entry's link, or null, and in the lowest bit the lap that it belongs to,
//! odd or even. It begins as null of lap 0, so an unused ring is nothing but zeros.
//!
//! # Roles
//!
//! ```text
//!     pusher                                     popper
//!     1 read `tail`                              1 read `head`
//!     2 the slot is empty in this lap?           2 the slot is full in this lap?
//!     3 tail -> tail + 1, by exchange            3 head -> head + 1, by exchange
//!     4 slot = link, in this lap                 4 slot = null, in the next lap
//! ```
//!
//! # Why a bit is enough
//!
//! Positions are 64 bits and never come again, so an exchange that succeeds says that the position was the
//! same from 1 to 3. While the tail is `t` nobody writes to its slot but who is about to end the lap before: the pusher
//! of `t - N` its link, and its popper the null. Two laps ago is over: somebody saw its end before he made the tail pass
//! `t - N`, and it is he, or one after him, that 1 acquires from. So what 2 finds is of this lap or of the last.
//! The same for the head. And the entry that a popper reads in 2 is the one that it owns after 3.
//!
//! # Contention
//!
//! Who loses an exchange, or finds his position gone, stands back for a moment, longer each time. Who has won
//! can go on with some more entries meanwhile while the lines are his; without that the lines move for every one.
//!
//! # Full, and empty
//!
//! * `push` gives the entry back if its slot is not empty yet. The ring is full then, or one of its oldest entries
//!   is on its way in or out. That is not waited for: who calls has another place.
//! * `pop` answers `None` only if tail and head were the same at some moment of the call. An entry
//!   whose pusher is between 3 and 4 is waited for, since others behind it may have returned long ago.
//! * A pusher's last read-modify-write is the exchange in 3, the store in 4 comes behind it. A popper that sees
//!   the exchange and not the store waits for that; so for who wakes poppers ([`crate::wait`]) an entry is published by 3.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::overflow::{Link, Linked};
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

// SAFETY: it owns entries, which come in on one thread and go out on another, and shares none.
unsafe impl<T: Linked + Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Linked + Send> Sync for Ring<T> {}

/// Who has met another at a slot leaves it to him for so many steps of the back-off, each twice as long as the
/// one before.
const STEPS: u32 = 3;

fn stand_back(backoff: &Backoff) {
    (0..STEPS).for_each(|_| backoff.snooze());
}

/// What a slot holds in an odd or an even lap: a link, or null.
#[inline]
fn word(link: *mut Link, odd: bool) -> *mut Link {
    // A link is aligned, so its lowest bit is free.
    link.map_addr(|address| address | usize::from(odd))
}

/// Whether a slot waits for the push of this lap.
#[inline]
fn is_free(slot: &AtomicPtr<Link>, odd: bool) -> bool {
    // Ordering: Acquire; pairs with the Releases of the slot: who finds that it was another's sees the tail moved.
    slot.load(Ordering::Acquire) == word(ptr::null_mut(), odd)
}

/// The link in a slot, if it is one of this lap.
#[inline]
fn link_in(slot: &AtomicPtr<Link>, odd: bool) -> Option<NonNull<Link>> {
    // Ordering: Acquire; pairs with the Release in `fill`.
    let word = slot.load(Ordering::Acquire);
    let link = word.map_addr(|address| address ^ usize::from(odd));
    NonNull::new(link).filter(|link| link.is_aligned())
}

/// Moves the tail or the head on by one, if it is where it was.
#[inline]
fn claim(place: &AtomicU64, position: u64) -> bool {
    // Ordering: Release; pairs with the Acquires of tail and head. Relaxed, if it fails; who goes on reads again.
    place
        .compare_exchange(position, position + 1, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// Puts an entry into the slot of a claimed position.
#[inline]
fn fill<T: Linked>(slot: &AtomicPtr<Link>, odd: bool, entry: T) {
    // Ordering: Release; pairs with the Acquires of the slot: who finds the entry finds what was written before
    // it was pushed.
    slot.store(word(entry.into_link().as_ptr(), odd), Ordering::Release);
}

/// Takes the entry out of the slot of a claimed position, and leaves it free for the next lap.
///
/// # Safety
///
/// `link` was in it when the position was claimed.
#[inline]
unsafe fn take<T: Linked>(slot: &AtomicPtr<Link>, odd: bool, link: NonNull<Link>) -> T {
    // Ordering: Release; pairs with the Acquire in `is_free`.
    slot.store(word(ptr::null_mut(), !odd), Ordering::Release);
    // SAFETY: pushed, and taken out by us only.
    unsafe { T::from_link(link) }
}

impl<T: Linked> Ring<T> {
    /// A ring for `capacity` entries, rounded up to a power of two.
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

    /// The slot of a position, and whether its lap is odd.
    #[inline]
    fn at(&self, position: u64) -> (&AtomicPtr<Link>, bool) {
        let capacity = self.slots.len();
        // SAFETY: the remainder by the number of slots, a power of two.
        let slot = unsafe { self.slots.get_unchecked(position as usize & (capacity - 1)) };
        (slot, position & capacity as u64 != 0)
    }

    /// Puts an entry in. Gives it back if the ring is full, or is about to have room.
    #[inline]
    pub(crate) fn push(&self, entry: T) -> Result<(), T> {
        // Ordering: Acquire; pairs with the Release in `claim`: no slot is seen as it was two laps ago.
        let tail = self.tail.load(Ordering::Acquire);
        let (slot, odd) = self.at(tail);
        if is_free(slot, odd) && claim(&self.tail, tail) {
            fill(slot, odd, entry);
            return Ok(());
        }
        self.push_slow(tail, entry)
    }

    /// The same, when there was nothing to be had at position `tail`.
    #[cold]
    fn push_slow(&self, mut tail: u64, entry: T) -> Result<(), T> {
        let backoff = Backoff::new();
        loop {
            // Ordering: Relaxed; what moved it is seen through the slot, or was met in `claim`.
            if self.tail.load(Ordering::Relaxed) == tail {
                return Err(entry);
            }
            stand_back(&backoff);
            // Ordering: Acquire; as in `push`.
            tail = self.tail.load(Ordering::Acquire);
            let (slot, odd) = self.at(tail);
            if is_free(slot, odd) && claim(&self.tail, tail) {
                fill(slot, odd, entry);
                return Ok(());
            }
        }
    }

    /// Takes the oldest entry. None only if at some moment of the call all entries were taken.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        // Ordering: Acquire; pairs with the Release in `claim`: no slot is seen as it was two laps ago.
        let head = self.head.load(Ordering::Acquire);
        let (slot, odd) = self.at(head);
        match link_in(slot, odd) {
            // SAFETY: what is in the slot of a position that has become ours.
            Some(link) if claim(&self.head, head) => Some(unsafe { take(slot, odd, link) }),
            _ => self.pop_slow(head),
        }
    }

    /// The same, when there was nothing to be had at position `head`.
    #[cold]
    fn pop_slow(&self, mut head: u64) -> Option<T> {
        let backoff = Backoff::new();
        loop {
            // Ordering: Relaxed; a push that has returned is seen through what told the caller of it.
            if self.tail.load(Ordering::Relaxed) == head {
                return None;
            }
            stand_back(&backoff);
            // Ordering: Acquire; as in `pop`.
            head = self.head.load(Ordering::Acquire);
            let (slot, odd) = self.at(head);
            match link_in(slot, odd) {
                Some(link) if claim(&self.head, head) => {
                    // SAFETY: as in `pop`.
                    return Some(unsafe { take(slot, odd, link) });
                }
                _ => {}
            }
        }
    }

    /// Whether nothing is there. Waits for nobody.
    pub(crate) fn is_empty(&self) -> bool {
        // The head first: if the tail is the same later, then so was the head.
        // Ordering: Acquire; keeps the two in order.
        let head = self.head.load(Ordering::Acquire);
        // Ordering: Relaxed; as in `pop`.
        self.tail.load(Ordering::Relaxed) == head
    }

    /// The number of entries at some moment of the call, with those just being put in.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Acquire; keeps the three in order.
        let mut tail = self.tail.load(Ordering::Acquire);
        loop {
            // Ordering: Acquire; as above.
            let head = self.head.load(Ordering::Acquire);
            // Ordering: Acquire; as above.
            let now = self.tail.load(Ordering::Acquire);
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
