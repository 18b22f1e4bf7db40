//! What a shut-down leaves of the keys that were accepted (S11, S12): their own words say it, until a report takes
//! it away.
//!
//! | a key that | is delivered again | or is left |
//! | --- | --- | --- |
//! | is queued, or dirty | always, but not by `shut_down_now` | discarded |
//! | waits for a delay | by a drain that delivers delays | its delay is dropped |
//! | is retried by its worker | by the same drain, or if it is dirty | refused |
//!
//! A value that is left waits in its key, as one that is to be delivered does.
//!
//! # Taking
//!
//! A key has up to three claims: its dropped delay, and two marks in its word. A caller of [`Core::take_left`] takes
//! all of a key under the lock of its shard, so of two callers one gets the key. A worker that ends claims the
//! dropped delay of a retry without that lock ([`crate::worker`]): it looks for marks first, and the caller claims the
//! delay before it takes them, so one of these two gets the key. The value is taken after the claims. What is
//! put back into the key in between comes with a mark of its own, set later: whoever takes that finds no
//! value, and passes the key over.
//!
//! User code, the `Clone` of keys, runs before anything is taken, so a panic leaves all that is left where it is.

use crate::added::{Added, Left, LeftReason};
use crate::engine::Core;
use crate::keys::node::{self, Held, Node, Pin, Pinned};
use crate::keys::state::{Level, Marked};
use crate::sync::atomic::Ordering;
use crate::sync::catch_panic::drop_caught;

impl<K, V> Core<K, V> {
    /// Adds a held key again, with what it carries, although the queue is shut down: if a drain `redelivers`,
    /// or the key is dirty. Otherwise returns [`Added::ShutDown`], and changes nothing.
    pub(crate) fn readd(&self, held: &mut Held<K>, level: Level, redelivers: bool) -> Added {
        // From here on the key is closed: no add that has begun before the shut-down still makes it dirty, so one
        // that is refused is not delivered as well.
        drop(self.closing.walk.lock());
        let pin = Pinned(held.pin());
        self.put_back(held, false, || self.readd_pinned(&pin.0, level, redelivers))
    }

    fn readd_pinned(&self, pin: &Pin<K>, level: Level, redelivers: bool) -> Added {
        let drains = self.closing.redelivers.lock();
        let marked = pin.state().readd(level, redelivers && *drains > 0);
        if marked == Marked::Deferred {
            // Ordering: AcqRel; as all changes of this counter.
            self.closing.undelivered.fetch_add(1, Ordering::AcqRel);
        }
        drop(drains);
        match marked {
            Marked::Closed => Added::ShutDown,
            Marked::Merged => Added::Merged,
            _ => {
                self.note_added(&node::Added::Deferred, pin);
                Added::Deferred
            }
        }
    }

    /// Keeps what a held key carries, which cannot be [added again](Self::readd).
    pub(crate) fn refuse(&self, held: &mut Held<K>) {
        let pin = Pinned(held.pin());
        if let Some(values) = self.values() {
            values.put_back(held, false, || true);
            drop(values.take_receipts(&pin.0, || true));
        }
        pin.0.state().refuse();
        self.note_refused();
    }

    /// Counts a key that is refused.
    pub(crate) fn note_refused(&self) {
        // Ordering: Relaxed; a count.
        self.closing.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the deliveries of keys that are retried in a drain, for all drains.
    pub(crate) fn end_redelivery(&self) {
        self.redeliver_for(|_| 0);
    }

    /// Ends them for one drain. The last one ends them for all.
    pub(crate) fn leave_redelivery(&self) {
        self.redeliver_for(|drains| drains.saturating_sub(1));
    }

    fn redeliver_for(&self, fewer: impl FnOnce(usize) -> usize) {
        let mut drains = self.closing.redelivers.lock();
        let before = *drains;
        *drains = fewer(before);
        let has_ended = before > 0 && *drains == 0;
        drop(drains);
        // Ordering: AcqRel; as all changes of this counter.
        if has_ended && self.closing.undelivered.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.getters.notify_all();
        }
    }

    /// Ends all deliveries, and returns each key of which something is left, once: in a queue with values, a value.
    pub(crate) fn take_left(&self) -> Vec<Left<K, V>>
    where
        K: Clone,
    {
        self.abandon();
        let has_left = |node: &Node<K>| node.state.has_left() || node.delay.dropped().is_some();
        let left = self.keys.pin_all(|node| has_left(node).then_some(()));
        let seen: Vec<_> = left.map(|(pin, ())| (pin.0.key().clone(), pin)).collect();
        let mut taken = Vec::with_capacity(seen.len());
        for (key, pin) in seen {
            let claimed = self.claim_left(&pin.0);
            let left = claimed.and_then(|reason| match self.values() {
                None => Some((None, reason)),
                Some(values) => {
                    let value = pin.0.carried(&values.carries).take_waiting()?;
                    Some((Some(value), reason))
                }
            });
            match left {
                Some((value, reason)) => taken.push(Left { key, value, reason }),
                // The drop of a key is user code, and must not lose what is taken.
                None => drop_caught(key),
            }
        }
        taken
    }

    /// Takes all that is left of a key, and returns the reason.
    fn claim_left(&self, pin: &Pin<K>) -> Option<LeftReason> {
        let _shard = self.keys.lock_of(pin);
        let (state, delay) = (pin.state(), pin.delay());
        // In this order: see the header.
        let is_delayed = delay.claim();
        let left = state.take_left();
        left.or(is_delayed.then_some(LeftReason::Delayed))
    }
}
