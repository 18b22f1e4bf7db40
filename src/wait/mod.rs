//! The list of waiters for one event, threads and tasks alike. The protocol is that of an
//! eventcount: a waiter announces itself, checks its condition again, and only then sleeps.
//!
//! # Protocol
//!
//! ```text
//!     waiter                                 notifier
//!     1 store the waker in the waiter        1 publish (push to the FIFO, lower a counter ...)
//!     2 put the waiter on the list           2 fence(SeqCst)
//!     3 fence(SeqCst)                        3 read `waiting`; 0: done
//!     4 check again; if ready, cancel        4 take a waiter off the list, mark it notified
//!     5 sleep until notified                 5 unlock the list, wake it
//! ```
//!
//! The two fences guarantee that at least one side sees the other's store. Without them, each store
//! may still be in its processor's store buffer, and the waiter sleeps although a key is queued.
//!
//! # Ground rules
//!
//! * A notification takes the waiter off the list and belongs to it. A waiter that does not act on
//!   it (it was cancelled, timed out, or found what it wanted in the second check) passes it on:
//!   [`WaitList::cancel`] returns whether there was one.
//! * A notified waiter that comes back notifies as many others as were notified before it and have
//!   not come back ([`WaitList::come_back`]): one of them may be a future that is not being polled.
//! * A woken waiter checks its condition itself. If another thread was faster, it registers again.
//! * Wakers run after the list is unlocked, since they may be user code.
//! * `waiting` is written only under the list's lock.
//!
//! A waiter that is notified while it times out treats that as a wake-up: it checks once more, and
//! passes the notification on if it leaves without a result. So does one that is notified between 2
//! and 4: the notification may have been for a second key.

pub(crate) mod blocking;
pub(crate) mod race;
pub(crate) mod receipt;
pub(crate) mod room;

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Arc, AtomicWaker, Mutex, assert_unlocked, fence_after_rmw};

/// The waiters for one event, in the order of their registration.
#[derive(Default)]
pub(crate) struct WaitList {
    /// The length of the list, on its own cache line because every add reads it.
    waiting: CachePadded<AtomicUsize>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next_ticket: u64,
    waiters: BTreeMap<u64, Arc<Slot>>,
    /// The tickets of waiters that were notified and have not come back, in the order of
    /// notification.
    away: VecDeque<u64>,
}

/// The state that a waiter shares with its notifier.
struct Slot {
    notified: AtomicBool,
    waker: AtomicWaker,
}

/// A place on the list, until notified or cancelled. Dropping it before would leave a dead entry
/// that swallows a notification.
pub(crate) struct Waiter {
    ticket: u64,
    slot: Arc<Slot>,
}

impl Waiter {
    /// Stores `waker` for the notification, and returns whether the waiter has been notified
    /// already.
    pub(crate) fn is_notified(&self, waker: &Waker) -> bool {
        self.slot.waker.register(waker);
        // Ordering: Acquire; pairs with the Release in `notify`. The waker is stored first, so a
        // notifier that sets the flag after this load finds the waker.
        self.slot.notified.load(Ordering::Acquire)
    }
}

/// The number of waiters taken off the list at a time.
const BATCH: usize = 32;

impl WaitList {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Called when the list has changed.
    fn note_length(&self, list: &List) {
        // Ordering: Relaxed; the fence in `register` orders an increase before the caller's second
        // check, and a decrease only spares notifiers the lock.
        self.waiting.store(list.waiters.len(), Ordering::Relaxed);
    }

    /// Puts a waiter at the end of the list. The caller must check its condition again afterwards,
    /// before it sleeps.
    pub(crate) fn register(&self, waker: &Waker) -> Waiter {
        let slot = Arc::new(Slot {
            notified: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        slot.waker.register(waker);
        let mut list = self.list.lock();
        let ticket = list.next_ticket;
        list.next_ticket += 1;
        list.waiters.insert(ticket, Arc::clone(&slot));
        // Reserve now, so that notifiers, which are adders, allocate nothing.
        let waiters = list.waiters.len();
        list.away.reserve(waiters);
        self.note_length(&list);
        drop(list);
        // Ordering: SeqCst; pairs with the fence in `notify`: see the protocol in the header.
        fence(Ordering::SeqCst);
        Waiter { ticket, slot }
    }

    /// Cancels a waiter. Returns whether it had been notified; the caller then passes the
    /// notification on, unless nothing is left to wait for.
    pub(crate) fn cancel(&self, waiter: Waiter) -> bool {
        let mut list = self.list.lock();
        let listed = list.waiters.remove(&waiter.ticket).is_some();
        list.away.retain(|ticket| *ticket != waiter.ticket);
        self.note_length(&list);
        !listed
    }

    /// Ends a waiter's wait, whether it was notified or not. Returns how many waiters had been
    /// notified before it and have not come back; each of them is counted once. The caller notifies
    /// as many others if anything is left.
    pub(crate) fn come_back(&self, waiter: Waiter) -> usize {
        let mut list = self.list.lock();
        list.waiters.remove(&waiter.ticket);
        self.note_length(&list);
        let place = list.away.iter().position(|&away| away == waiter.ticket);
        let overtaken = place.unwrap_or(0);
        if place.is_some() {
            list.away.drain(..=overtaken);
        }
        overtaken
    }

    /// Notifies up to `most` waiters that something was published before this call.
    ///
    /// The publication must be an atomic read-modify-write, or a fence must follow it. Plain stores may
    /// follow, of what the waiter's check does not rely on, such as the hints of the ring.
    ///
    /// Wakers may be user code. If one panics, the panic hook reports it; the other waiters are
    /// woken all the same, and the caller, such as a worker or an adder, continues.
    #[inline]
    pub(crate) fn notify(&self, most: usize) {
        // Ordering: SeqCst, after the read-modify-write that published; pairs with the fence in
        // `register`: see the protocol in the header.
        fence_after_rmw();
        // Ordering: Relaxed; ordered by the fence.
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.notify_slow(most);
        }
    }

    /// Notifies every waiter. None of them has to pass the notification on.
    pub(crate) fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    #[cold]
    fn notify_slow(&self, mut most: usize) {
        let all = most == usize::MAX;
        while most > 0 {
            let mut batch = [const { None }; BATCH];
            let mut list = self.list.lock();
            for place in batch.iter_mut().take(most) {
                let Some((ticket, slot)) = list.waiters.pop_first() else {
                    most = 0;
                    break;
                };
                if !all {
                    list.away.push_back(ticket);
                }
                // Ordering: Release; pairs with the Acquire in `is_notified`.
                slot.notified.store(true, Ordering::Release);
                *place = Some(slot);
            }
            self.note_length(&list);
            drop(list);
            assert_unlocked();
            for slot in batch.into_iter().flatten() {
                let _ = catch_panic(|| slot.waker.wake());
            }
            most = most.saturating_sub(BATCH);
        }
    }

    /// Returns the number of waiters on the list: a snapshot, for tests and reports.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Relaxed; a snapshot.
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
