//! Waiting for several notifications, or for a time: getters that linger, so that a batch fills up.
//!
//! # Protocol
//!
//! A getter that lingers holds no key, and receives no notification that another waiter could have: those are
//! for the other waiters, first. Only what is left of a notification, when no other waiter is on the list,
//! *counts* for each getter that lingers. Once its count is what it wants, it is taken off the list and woken.
//! So it loses no wake-up of another getter, neither while it waits nor when it leaves.
//!
//! In a queue with limits or rates each key that another getter takes leaves a batch room for one fewer. There the getters
//! that linger count it as well ([`notify_counted`](WaitList::notify_counted)).
//!
//! A count is right if each notification stands for one key. If something else may have made keys deliverable, or if
//! fewer may follow than before, the notifier calls [`notify_several`](WaitList::notify_several), in step 4 of the table:
//! it takes all getters that linger off the list and wakes them, whatever their counts and whoever else was woken.
//! [`crate::engine::lingering`] has a table of these events.
//!
//! ```text
//!     lingering getter                       notifier
//!     1 put itself on the list               1 push to the FIFO
//!     2 fence(SeqCst)                        2 fence(SeqCst)
//!     3 see how many keys are missing        3 read `waiting`; 0: done
//!     4 tell the list (`expect`)             4 wake another waiter, or count
//!     5 sleep until notified
//! ```
//!
//! The fences guarantee that each key is seen in 3, or counted, or both. A key that is both, or that another
//! getter takes meanwhile, wakes the getter too early: it looks again, and goes on lingering. A getter that is taken
//! off the list between 1 and 4 finds itself notified in 5.
//!
//! Tasks that wait for room at most until a time are on a list of their own ([`Room::timed`](super::room::Room::timed)), on
//! which nobody is notified.
//!
//! The timer's thread wakes those whose time is over: `expires` is the first of their times, which a getter
//! writes before it wakes that thread (`Timer::wake_by` has the fence).

use std::collections::BTreeMap;
use std::task::Waker;

use super::{Slot, WaitList, Waiter};
use crate::sync::Arc;
use crate::sync::atomic::{Ordering, fence};

/// Those that linger, by when they have to be woken, in nanoseconds above 0, and by their tickets. So a wait and the end of
/// a time visit none whose time is not over: there may be one for each task that waits for room.
#[derive(Default)]
pub(super) struct Lingering(BTreeMap<(u64, u64), Lingerer>);

struct Lingerer {
    slot: Arc<Slot>,
    /// The number of notifications since it was put on the list, and the number that it waits for.
    counted: usize,
    wanted: usize,
}

impl Lingering {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Counts notifications for which there was no other waiter.
    pub(super) fn count(&mut self, notifications: usize) {
        for lingerer in self.0.values_mut() {
            lingerer.counted = lingerer.counted.saturating_add(notifications);
        }
    }

    /// Takes one off that has what it waits for, or any one with a ticket below `several`. A notification looks from `from` on,
    /// behind the one that it has taken last: whoever comes back in front of that has looked again.
    pub(super) fn next(&mut self, several: u64, from: &mut (u64, u64)) -> Option<Arc<Slot>> {
        let mut rest = self.0.range(*from..);
        let (&place, _) = rest.find(|((_, ticket), lingerer)| {
            *ticket < several || lingerer.counted >= lingerer.wanted
        })?;
        *from = place;
        Some(self.0.remove(&place)?.slot)
    }

    /// Takes the first one off, if its time is over.
    fn take_expired(&mut self, now: u64) -> Option<Arc<Slot>> {
        let first = self.0.first_entry()?;
        (first.key().0 <= now).then(|| first.remove().slot)
    }

    /// Returns when the first one has to be woken; 0 if there is none.
    fn expires(&self) -> u64 {
        self.0.first_key_value().map_or(0, |((until, _), _)| *until)
    }
}

impl WaitList {
    /// Puts a getter on the list until it has had the notifications that it [expects](Self::expect), or until
    /// the time `until`, in nanoseconds. The caller must look next how many keys are missing.
    pub(crate) fn linger(&self, waker: &Waker, until: u64) -> Waiter {
        let (slot, until) = (Slot::new(waker), until.max(1));
        let mut list = self.list.lock();
        let ticket = list.next_ticket();
        let lingerer = Lingerer {
            slot: Arc::clone(&slot),
            counted: 0,
            wanted: usize::MAX,
        };
        list.lingering.0.insert((until, ticket), lingerer);
        self.note_length(&list);
        self.note_expiry(&list.lingering);
        drop(list);
        // Ordering: SeqCst; pairs with the fence in `notify`: see the header.
        fence(Ordering::SeqCst);
        Waiter {
            ticket,
            until,
            slot,
        }
    }

    /// Sets how many notifications a getter waits for, from when it was put on the list. Notifies it if it has had
    /// as many.
    pub(crate) fn expect(&self, waiter: &Waiter, wanted: usize) {
        let mut list = self.list.lock();
        let Some(lingerer) = list.lingering.0.get_mut(&waiter.place()) else {
            return;
        };
        lingerer.wanted = wanted;
        if lingerer.counted >= wanted {
            list.lingering.0.remove(&waiter.place());
            self.note_length(&list);
            waiter.slot.notify();
        }
    }

    /// Takes a getter that lingers off the list. It has no notification to pass on.
    pub(crate) fn stop_lingering(&self, waiter: &Waiter) {
        let mut list = self.list.lock();
        if list.lingering.0.remove(&waiter.place()).is_some() {
            self.note_length(&list);
        }
    }

    /// Wakes the getters whose time is over; `now` reads the clock, in nanoseconds.
    pub(crate) fn expire(&self, now: impl FnOnce() -> u64) {
        let Some(at) = self.next_expiry() else {
            return;
        };
        let now = now();
        if now < at {
            return;
        }
        self.wake(|list| {
            let expired = list.lingering.take_expired(now);
            if expired.is_none() {
                self.note_expiry(&list.lingering);
            }
            expired
        });
    }

    fn note_expiry(&self, lingering: &Lingering) {
        // Ordering: Relaxed; written under the list's lock, and `Timer::wake_by` has the fence for whoever sets an
        // earlier time.
        self.expires.store(lingering.expires(), Ordering::Relaxed);
    }

    /// Returns when [`expire`](Self::expire) is to be called, if any getter lingers. Perhaps earlier than needed: a
    /// getter that leaves does not change it.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        // Ordering: Relaxed; as above.
        let at = self.expires.load(Ordering::Relaxed);
        (at > 0).then_some(at)
    }
}
