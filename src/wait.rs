//! Who waits and who is woken: one list for threads and tasks alike.
//!
//! # Protocol
//!
//! ```text
//!     who waits                              who makes something ready
//!     1 store the waker in the waiter        1 publish (push to the FIFO, lower a counter ...)
//!     2 put the waiter on the list           2 fence(SeqCst)
//!     3 fence(SeqCst)                        3 read `waiting`; 0: done
//!     4 look again; ready: cancel            4 take a waiter off the list, mark it notified
//!     5 sleep until notified                 5 unlock the list, wake it
//! ```
//!
//! The two fences decide it: at least one side sees the other's store. Without them both loads
//! may miss (each store still in its processor's store buffer) and the waiter sleeps beside a
//! queued key. Acquire and release cannot give this.
//!
//! # Ground rules
//!
//! * A notification takes the waiter off the list and belongs to it. A waiter that does not act
//!   on its notification (it was cancelled, timed out, or found what it wanted on the second
//!   look) passes it on: [`WaitList::cancel`] tells whether there was one.
//! * A woken waiter looks for itself. If another was faster it registers again; nothing is lost,
//!   since the faster one took what the notification was about.
//! * Wakers are run after the list is unlocked: they may be anybody's code.
//! * `waiting` is written under the list's lock only; readers outside use it as a hint that the
//!   fences make reliable.
//!
//! # Known races
//!
//! *Notified while timing out.* The waiter finds itself off the list, and treats it as a wake-up:
//! it looks once more, and passes the notification on if it leaves with empty hands.
//!
//! *Notified between 2 and 4.* `cancel` finds the waiter off the list; the notification may have
//! been for a second key, so it is passed on if anything is left.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::task::Waker;

use crossbeam_utils::CachePadded;

use crate::caught::caught;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crate::sync::{Arc, AtomicWaker, Mutex, MutexGuard, fence_after_rmw};

/// The waiters of one event, in the order in which they came.
pub(crate) struct WaitList {
    /// The length of the list. Apart from the rest: every add reads it.
    waiting: CachePadded<AtomicUsize>,
    list: Mutex<List>,
}

struct List {
    next_ticket: u64,
    waiters: BTreeMap<u64, Arc<Slot>>,
}

/// What a waiter and its notifier share.
struct Slot {
    notified: AtomicBool,
    waker: AtomicWaker,
}

/// A place on the list, until notified or cancelled.
///
/// Dropping it without either leaves a dead entry that would swallow a notification, so every
/// owner cancels.
pub(crate) struct Waiter {
    ticket: u64,
    slot: Arc<Slot>,
}

impl Waiter {
    /// Stores `waker` for the next notification, and says whether that has been given already.
    pub(crate) fn is_notified(&self, waker: &Waker) -> bool {
        self.slot.waker.register(waker);
        // Ordering: Acquire; pairs with the Release in `notify`. The waker is stored first, so a
        // notifier that sets the flag after this load finds the waker.
        self.slot.notified.load(Ordering::Acquire)
    }
}

/// So many waiters are taken off the list at a time.
const BATCH: usize = 32;

/// Runs the wakers of notified waiters. They may be anybody's code: should one panic, the panic
/// hook has reported it, and it costs neither the other waiters their wake-up nor the caller, who
/// may be a worker or an adder that knows nothing of it.
fn wake(batch: impl IntoIterator<Item = Arc<Slot>>) {
    for slot in batch {
        let _ = caught(|| slot.waker.wake());
    }
}

impl WaitList {
    pub(crate) fn new() -> Self {
        WaitList {
            waiting: CachePadded::new(AtomicUsize::new(0)),
            list: Mutex::new(List {
                next_ticket: 0,
                waiters: BTreeMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        // Nothing that panics is done under the lock, so a poisoned one is as good.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a waiter at the end of the list. The caller looks again after this, before it sleeps.
    pub(crate) fn register(&self, waker: &Waker) -> Waiter {
        let slot = Arc::new(Slot {
            notified: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        slot.waker.register(waker);
        let mut list = self.lock();
        let ticket = list.next_ticket;
        list.next_ticket += 1;
        list.waiters.insert(ticket, Arc::clone(&slot));
        // Ordering: Relaxed; the fence below orders it before the caller's second look.
        self.waiting.store(list.waiters.len(), Ordering::Relaxed);
        drop(list);
        // Ordering: SeqCst; pairs with the fence in `notify`: see the protocol in the header.
        fence(Ordering::SeqCst);
        Waiter { ticket, slot }
    }

    /// Takes a waiter back. If the answer is true it had been notified, and the caller owes
    /// the notification to another waiter unless nothing is left to wait for.
    pub(crate) fn cancel(&self, waiter: Waiter) -> bool {
        let mut list = self.lock();
        let listed = list.waiters.remove(&waiter.ticket).is_some();
        // Ordering: Relaxed; a decrease only spares notifiers a look at the list.
        self.waiting.store(list.waiters.len(), Ordering::Relaxed);
        drop(list);
        !listed
    }

    /// Notifies up to `most` waiters that something was published before this call.
    ///
    /// The publication must have been, or have ended with, an atomic read-modify-write.
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

    pub(crate) fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    #[cold]
    fn notify_slow(&self, mut most: usize) {
        while most > 0 {
            let mut batch = [const { None }; BATCH];
            let mut list = self.lock();
            for place in batch.iter_mut().take(most) {
                let Some((_, slot)) = list.waiters.pop_first() else {
                    most = 0;
                    break;
                };
                // Ordering: Release; pairs with the Acquire in `is_notified`.
                slot.notified.store(true, Ordering::Release);
                *place = Some(slot);
            }
            // Ordering: Relaxed; a decrease only spares notifiers a look at the list.
            self.waiting.store(list.waiters.len(), Ordering::Relaxed);
            drop(list);
            wake(batch.into_iter().flatten());
            most = most.saturating_sub(BATCH);
        }
    }

    /// The number of waiters on the list: a snapshot, for tests and reports.
    pub(crate) fn len(&self) -> usize {
        // Ordering: Relaxed; a snapshot.
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
