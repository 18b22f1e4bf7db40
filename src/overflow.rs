//! The unbounded queue behind the ring: a linked list through the entries themselves.
//!
//! An entry brings the place for its link along ([`Linked`]), so the queue allocates nothing and takes
//! no memory of its own. A key is in the FIFO once at most (C2), so one link in its node is enough.
//!
//! # Roles
//!
//! * Any number of pushers. One swaps itself in as the tail, and then hangs itself onto the entry that
//!   was the tail before, or, if there was none, makes itself the head.
//! * One popper at a time: [`Fifo`](crate::fifo::Fifo) has a mutex for that.
//!
//! # The gap
//!
//! Between the two steps of a push the list is torn: what is pushed behind it meanwhile has returned,
//! and cannot be reached. A popper that comes to a gap waits for it to be closed, which is one store
//! away. To answer "empty" would strand what is behind the gap.
//!
//! # Reuse
//!
//! An entry is not popped while a pusher may still write its link: it comes out when its link is set,
//! or when it was still the tail as the popper took it off. So once it is out, it can be pushed again.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::sync::Backoff;
use crate::sync::atomic::{AtomicPtr, Ordering};

/// The place in an entry for the address of the next.
#[derive(Debug)]
pub(crate) struct Link(AtomicPtr<Link>);

impl Link {
    pub(crate) fn new() -> Self {
        Link(AtomicPtr::new(ptr::null_mut()))
    }
}

/// An entry with a place for a link.
///
/// # Safety
///
/// The link that `into_link` answers is at its address, and nobody else touches it, until `from_link`
/// has been called with that address. `from_link` answers the entry again.
pub(crate) unsafe trait Linked: Sized {
    fn into_link(self) -> NonNull<Link>;

    /// # Safety
    ///
    /// `link` came from `into_link`, and since then from nobody else's `from_link`.
    unsafe fn from_link(link: NonNull<Link>) -> Self;
}

pub(crate) struct Overflow<T: Linked> {
    /// Whom the next pusher follows. None if all are popped.
    tail: AtomicPtr<Link>,
    /// Whom the next popper takes. None also if the first push is not yet through.
    head: AtomicPtr<Link>,
    _entries: PhantomData<T>,
}

// SAFETY: it owns entries, which come in on one thread and go out on another, and shares none.
unsafe impl<T: Linked + Send> Send for Overflow<T> {}
// SAFETY: as above.
unsafe impl<T: Linked + Send> Sync for Overflow<T> {}

impl<T: Linked> Overflow<T> {
    pub(crate) fn new() -> Self {
        Overflow {
            tail: AtomicPtr::new(ptr::null_mut()),
            head: AtomicPtr::new(ptr::null_mut()),
            _entries: PhantomData,
        }
    }

    pub(crate) fn push(&self, entry: T) {
        let link = entry.into_link();
        // SAFETY: at its address, and ours, until the swap.
        // Ordering: Relaxed; released by the swap to who follows.
        unsafe { link.as_ref() }
            .0
            .store(ptr::null_mut(), Ordering::Relaxed);
        // Ordering: AcqRel; Release to who follows us, Acquire of whom we follow: of its link being
        // empty, or of the head being empty, which we are about to change.
        let before = self.tail.swap(link.as_ptr(), Ordering::AcqRel);
        let place = match NonNull::new(before) {
            None => &self.head,
            // SAFETY: in the list, since it comes out only when its link is set, which is ours to do.
            Some(before) => &unsafe { before.as_ref() }.0,
        };
        // Ordering: Release; pairs with the Acquires in `pop` and `behind`: who finds the entry finds
        // what was written before it was pushed.
        place.store(link.as_ptr(), Ordering::Release);
    }

    /// Takes the oldest entry. None only if every push that has returned was popped.
    ///
    /// # Safety
    ///
    /// Nobody else pops meanwhile.
    pub(crate) unsafe fn pop(&self) -> Option<T> {
        // Ordering: Relaxed; whether there is something at all. A push that has returned is seen
        // through what told the caller of it.
        if self.tail.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let oldest = behind(&self.head);
        // SAFETY: in the list, and only we can take it out.
        let next = unsafe { &oldest.as_ref().0 };
        // Ordering: Acquire; as in `behind`.
        match NonNull::new(next.load(Ordering::Acquire)) {
            // Ordering: Relaxed; poppers follow each other through their own lock. Pushers write
            // the head only after the exchange below.
            Some(next) => self.head.store(next.as_ptr(), Ordering::Relaxed),
            None => self.take_last(oldest, next),
        }
        // SAFETY: out of the list, by its only popper; see the header for why nobody has it any more.
        Some(unsafe { T::from_link(oldest) })
    }

    /// Takes out `oldest`, which nobody seemed to follow.
    fn take_last(&self, oldest: NonNull<Link>, next: &AtomicPtr<Link>) {
        // Ordering: Relaxed; before the exchange, which releases it to a pusher that finds no tail.
        self.head.store(ptr::null_mut(), Ordering::Relaxed);
        // Ordering: Release; pairs with the Acquire of the swap in `push`.
        let alone = self.tail.compare_exchange(
            oldest.as_ptr(),
            ptr::null_mut(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if alone.is_err() {
            let next = behind(next);
            // Ordering: Relaxed; as in `pop`.
            self.head.store(next.as_ptr(), Ordering::Relaxed);
        }
    }
}

/// What is in `place`, once the pusher that is about to fill it has done so.
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

impl<T: Linked> Drop for Overflow<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: `&mut self` is exclusive.
            while let Some(entry) = unsafe { self.pop() } {
                drop(entry);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod boxed;
