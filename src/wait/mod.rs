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
//! * Getters that wait for more than one key are apart from the others: see [`linger`].
//! * `waiting` is written only under the list's lock.
//!
//! A waiter that is notified while it times out treats that as a wake-up: it checks once more, and
//! passes the notification on if it leaves without a result. So does one that is notified between 2
//! and 4: the notification may have been for a second key.

pub(crate) mod blocking;
pub(crate) mod crowd;
pub(crate) mod linger;
pub(crate) mod listener;
pub(crate) mod race;
pub(crate) mod receipt;
pub(crate) mod room;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::task::{Poll, Waker};

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Arc, AtomicWaker, Mutex, assert_unlocked, fence_after_rmw};
use linger::Lingering;

/// The waiters for one event, in the order of their registration, and those that linger, in the order of their times.
#[derive(Default)]
pub(crate) struct WaitList {
    /// The length of the list, on its own cache line because every add reads it.
    waiting: CachePadded<AtomicUsize>,
    /// When the first of those that linger has to be woken, in nanoseconds; 0 if none lingers.
    expires: AtomicU64,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next_ticket: u64,
    waiters: BTreeMap<u64, Arc<Slot>>,
    lingering: Lingering,
    /// The tickets of waiters that were notified and have not come back, in the order of
    /// notification.
    away: VecDeque<u64>,
}

/// The state that a waiter, or an add that waits for room, shares with its notifier.
struct Slot {
    notified: AtomicBool,
    waker: AtomicWaker,
}

impl Slot {
    fn new(waker: &Waker) -> Arc<Self> {
        let slot = Slot {
            notified: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        };
        slot.waker.register(waker);
        Arc::new(slot)
    }

    fn notify(&self) {
        // Ordering: Release; pairs with the Acquire in `is_notified`.
        self.notified.store(true, Ordering::Release);
    }

    fn is_notified(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        // Ordering: Acquire; pairs with the Release in `notify`. The waker is stored first, so a
        // notifier that sets the flag after this load finds the waker.
        self.notified.load(Ordering::Acquire)
    }
}

impl List {
    fn next_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket - 1
    }
}

/// A place on the list, until notified or cancelled. Dropping it before would leave a dead entry
/// that swallows a notification.
pub(crate) struct Waiter {
    ticket: u64,
    /// Until when it lingers, in nanoseconds; 0 if it does not.
    until: u64,
    slot: Arc<Slot>,
}

impl Waiter {
    /// Stores `waker` for the notification, and returns whether the waiter has been notified
    /// already.
    pub(crate) fn is_notified(&self, waker: &Waker) -> bool {
        self.slot.is_notified(waker)
    }

    /// Its place among those that linger.
    fn place(&self) -> (u64, u64) {
        (self.until, self.ticket)
    }
}

/// What getters that linger make of a notification.
#[derive(Clone, Copy)]
enum Linger {
    /// They count what no other waiter has.
    Rest,
    /// They count all.
    Counts,
    /// They are woken.
    Ends,
}

/// The number of waiters taken off the list at a time.
const BATCH: usize = 32;

impl WaitList {
    /// Called when the list has changed.
    fn note_length(&self, list: &List) {
        let waiting = list.waiters.len() + list.lingering.len();
        // Ordering: Relaxed; the fence in `register` orders an increase before the caller's second
        // check, and a decrease only spares notifiers the lock.
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Puts a waiter at the end of the list. The caller must check its condition again afterwards,
    /// before it sleeps.
    pub(crate) fn register(&self, waker: &Waker) -> Waiter {
        let slot = Slot::new(waker);
        let mut list = self.list.lock();
        let ticket = list.next_ticket();
        list.waiters.insert(ticket, Arc::clone(&slot));
        // Reserve now, so that notifiers, which are adders, allocate nothing.
        let waiters = list.waiters.len();
        list.away.reserve(waiters);
        self.note_length(&list);
        drop(list);
        // Ordering: SeqCst; pairs with the fence in `notify`: see the protocol in the header.
        fence(Ordering::SeqCst);
        Waiter {
            ticket,
            until: 0,
            slot,
        }
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
        self.notify_if_any(most, Linger::Rest);
    }

    /// Notifies up to `most` waiters of one key each, which all that [linger] count, whoever is notified.
    #[inline]
    pub(crate) fn notify_counted(&self, most: usize) {
        self.notify_if_any(most, Linger::Counts);
    }

    /// Notifies up to `most` waiters, and all that [linger], of something other than one key for each of
    /// `most`.
    #[inline]
    pub(crate) fn notify_several(&self, most: usize) {
        self.notify_if_any(most, Linger::Ends);
    }

    /// Notifies every waiter. None of them has to pass the notification on.
    pub(crate) fn notify_all(&self) {
        self.notify_several(usize::MAX);
    }

    #[inline]
    fn notify_if_any(&self, most: usize, linger: Linger) {
        // Ordering: SeqCst, after the read-modify-write that published; pairs with the fence in
        // `register`: see the protocol in the header.
        fence_after_rmw();
        // Ordering: Relaxed; ordered by the fence.
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.notify_slow(most, linger);
        }
    }

    #[cold]
    fn notify_slow(&self, mut most: usize, linger: Linger) {
        let all = most == usize::MAX;
        // A waiter that comes back to the list while others are woken has looked again, and needs no wake-up. Waiters that keep coming
        // back would make this call endless.
        let (mut tickets, mut from) = (None, (0, 0));
        self.wake(|list| {
            let tickets = *tickets.get_or_insert(list.next_ticket);
            if most > 0
                && let Some(first) = list.waiters.first_entry()
                && (!all || *first.key() < tickets)
            {
                let (ticket, slot) = first.remove_entry();
                most -= 1;
                list.lingering
                    .count(matches!(linger, Linger::Counts).into());
                if !all {
                    list.away.push_back(ticket);
                }
                return Some(slot);
            }
            list.lingering.count(mem::take(&mut most));
            let several = matches!(linger, Linger::Ends).then_some(tickets);
            list.lingering.next(several.unwrap_or(0), &mut from)
        });
    }

    /// Notifies and wakes those that `next` takes off the list.
    fn wake(&self, mut next: impl FnMut(&mut List) -> Option<Arc<Slot>>) {
        let mut more = true;
        while more {
            let mut batch = [const { None }; BATCH];
            let mut list = self.list.lock();
            for place in &mut batch {
                *place = next(&mut list);
                match place {
                    Some(slot) => slot.notify(),
                    None => break,
                }
            }
            self.note_length(&list);
            drop(list);
            assert_unlocked();
            more = batch[BATCH - 1].is_some();
            for slot in batch.into_iter().flatten() {
                let _ = catch_panic(|| slot.waker.wake());
            }
        }
    }

    /// Returns the number of waiters on the list: a snapshot, for tests and reports.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Relaxed; a snapshot.
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Yields to the executor: returns `Pending` once.
pub(crate) async fn let_others_run() {
    let mut waited = false;
    poll_fn(|context| {
        if mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
pub(crate) mod tests;
