//! The unbounded queue behind the ring: a linked list through the entries themselves.
//!
//! The list is intrusive: each entry has room for a [`Link`], so the list allocates nothing. A key
//! is in the FIFO at most once (C2), so one link in its node is enough. It works like Vyukov's
//! intrusive MPSC queue, without the stub node.
//!
//! # Roles
//!
//! * Any number of pushers. A pusher swaps its entry in as the tail, and then links it behind the
//!   previous tail, or, if there was none, makes it the head. A pusher of several links them first, swaps the last one in,
//!   and links the first one.
//! * One popper at a time: [`Fifo`](crate::fifo::Fifo) has a mutex for that.
//!
//! # The gap
//!
//! Between the two steps of a push the list has a gap: later pushes may have returned although
//! their entries cannot be reached yet. A popper that reaches a gap waits for the pusher's second
//! step, a single store; `None` would strand the entries behind it.
//!
//! # Reuse
//!
//! An entry is not popped while a pusher may still write its link: the popper takes it only when
//! its link is set, or when it is still the tail and the popper resets the tail. So a popped entry
//! can be pushed again.

use std::ptr::{self, NonNull};

use crate::keys::link::Link;
use crate::sync::Backoff;
use crate::sync::atomic::{AtomicPtr, Ordering};

#[derive(Default)]
pub(crate) struct Overflow {
    /// The entry that the next pusher links its own behind. Null if all entries are popped.
    tail: AtomicPtr<Link>,
    /// The oldest entry. Null if all entries are popped, or the first push is between its steps.
    head: AtomicPtr<Link>,
}

impl Overflow {
    /// Pushes the links from `first` to `last`, each of which but the last has the address of the next.
    ///
    /// # Safety
    ///
    /// The links stay at their addresses, and no other code accesses them, until they are popped.
    pub(crate) unsafe fn push(&self, first: NonNull<Link>, last: NonNull<Link>) {
        // SAFETY: by the caller's promise; no other thread can reach it before the swap.
        // Ordering: Relaxed; the swap releases it to the next pusher.
        unsafe { last.as_ref() }
            .next
            .store(ptr::null_mut(), Ordering::Relaxed);
        // Ordering: AcqRel; pairs with the other pushers' swaps, and with the exchange in
        // `take_last`: this push stores to the previous entry's link, or the head, after it was
        // reset to null.
        let before = self.tail.swap(last.as_ptr(), Ordering::AcqRel);
        let place = match NonNull::new(before) {
            None => &self.head,
            // SAFETY: it is in the list until its link is set, which only this push does.
            Some(before) => &unsafe { before.as_ref() }.next,
        };
        // Ordering: Release; pairs with the Acquire in `pop` and in `behind`: a popper of the entry
        // sees what was written before the push, the links behind it among that.
        place.store(first.as_ptr(), Ordering::Release);
    }

    /// Pops the oldest entry. Returns `None` only if every push that has returned was popped.
    ///
    /// # Safety
    ///
    /// No other thread pops at the same time.
    // In the loop of a refill: 15 instructions for each key of a backlog.
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<NonNull<Link>> {
        // Ordering: Relaxed; if a push returned before this call, what tells the caller so also
        // orders the push's swap before this load.
        if self.tail.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let oldest = behind(&self.head);
        // SAFETY: the entry is in the list, and only this popper can take it out.
        let next = &unsafe { oldest.as_ref() }.next;
        // Ordering: Acquire; as in `behind`.
        match NonNull::new(next.load(Ordering::Acquire)) {
            // Ordering: Relaxed; the poppers' mutex orders them. A pusher writes the head only
            // after `take_last` has reset the tail.
            Some(next) => self.head.store(next.as_ptr(), Ordering::Relaxed),
            None => self.take_last(oldest, next),
        }
        Some(oldest)
    }

    /// Takes out `oldest`, whose link was still null.
    #[cold]
    fn take_last(&self, oldest: NonNull<Link>, next: &AtomicPtr<Link>) {
        // Ordering: Relaxed; the exchange below releases it to a pusher that finds no tail.
        self.head.store(ptr::null_mut(), Ordering::Relaxed);
        // Ordering: Release; pairs with the Acquire of the swap in `push`.
        let alone = self.tail.compare_exchange(
            oldest.as_ptr(),
            ptr::null_mut(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if alone.is_err() {
            // A pusher swapped the tail meanwhile: wait until it has linked its entry.
            let next = behind(next);
            // Ordering: Relaxed; as in `pop`.
            self.head.store(next.as_ptr(), Ordering::Relaxed);
        }
    }
}

/// Returns the link in `place`, after waiting for the pusher that is about to store it.
fn behind(place: &AtomicPtr<Link>) -> NonNull<Link> {
    let backoff = Backoff::new();
    loop {
        // Ordering: Acquire; pairs with the Release at the end of `push`.
        if let Some(link) = NonNull::new(place.load(Ordering::Acquire)) {
            return link;
        }
        backoff.snooze();
    }
}
