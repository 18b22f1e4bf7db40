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

use crate::added::{Added, LeftReason};
use crate::engine::Core;
use crate::keys::node::{self, Held, Pin, Pinned};
use crate::keys::state::left::Trace;
use crate::keys::state::{Level, Marked};
use crate::sync::atomic::Ordering;

impl<K> Core<K> {
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
        let open = self.closing.redelivers.lock();
        let marked = pin.state().readd(level, redelivers && *open);
        if marked == Marked::Deferred {
            // Ordering: AcqRel; as all changes of this counter.
            self.closing.undelivered.fetch_add(1, Ordering::AcqRel);
        }
        drop(open);
        match marked {
            Marked::Closed => Added::ShutDown,
            Marked::Merged => Added::Merged,
            _ => {
                // SAFETY: the key is pinned.
                unsafe { self.note_added(&node::Added::Deferred(pin.node())) };
                Added::Deferred
            }
        }
    }

    /// Keeps what a held key carries, which cannot be [added again](Self::readd).
    pub(crate) fn refuse(&self, held: &mut Held<K>) {
        let pin = Pinned(held.pin());
        if let Some(values) = self.values() {
            values.put_back(held, false, &mut || true);
            drop(values.take_receipts(pin.0.key(), &mut || true));
        }
        pin.0.state().refuse();
        // Ordering: Relaxed; a count.
        self.closing.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the deliveries of keys that are retried in a drain.
    pub(crate) fn end_redelivery(&self) {
        let was_open = std::mem::take(&mut *self.closing.redelivers.lock());
        // Ordering: AcqRel; as all changes of this counter.
        if was_open && self.closing.undelivered.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.getters.notify_all();
        }
    }

    /// Ends all deliveries, and passes each key of which something is left to `take`, once.
    pub(crate) fn take_left(&self, mut take: impl FnMut(&Pin<K>, LeftReason)) {
        self.abandon();
        for shard in self.keys.shards() {
            let pins = shard.pinned(|node| node.state.has_left() || node.delay.dropped().is_some());
            drop(shard);
            for pin in &pins {
                let (state, delay) = (pin.0.state(), pin.0.delay());
                let is_delayed = delay.dropped().is_some_and(|it| delay.claim_dropped(it));
                let reason = match (state.take_left(), is_delayed) {
                    (Some(Trace::Refused), _) => LeftReason::Refused,
                    (Some(Trace::Discarded), _) => LeftReason::Queued,
                    (None, true) => LeftReason::Delayed,
                    (None, false) => continue,
                };
                take(&pin.0, reason);
            }
        }
    }
}
