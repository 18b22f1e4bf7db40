//! The steps of the engine that concern the values of a queue that has some.
//!
//! What is done with them is in [`crate::values`]. A queue without values has no [`Merger`], and a queue with neither
//! values nor times, an order of its own or a bound has no [`Extras`]: each operation checks whether there are any, and
//! that is all.

use crate::added::Added;
use crate::engine::Core;
use crate::engine::timing::Watch;
use crate::fifo::groups::grouping::{Grouping, Ordered, Ready};
use crate::keys::carried::Waiting;
use crate::keys::node::{Held, Node, Pin, Pinned, Queued};
use crate::keys::state::{Begun, State};
use crate::keys::visit::Census;
use crate::values::Merger;
use crate::wait::receipt::{Ended, Receipts};
use crate::wait::room::Room;

/// What only some queues have.
pub(crate) struct Extras<K, V> {
    /// `None` unless the queue is timed.
    pub(crate) watch: Option<Watch>,
    /// `None` unless the keys carry values.
    pub(crate) values: Option<Merger<V>>,
    /// Instead of the FIFO; `None` unless the queue has levels, groups or a pace.
    pub(crate) ordered: Option<Ordered<K>>,
    /// `None` unless the queue is bounded and its keys carry no values: these have their own.
    pub(crate) room: Option<Room>,
}

impl<K, V> Extras<K, V> {
    /// Begins the delivery of a key. Returns also whether it carries what it should.
    #[inline]
    pub(super) fn begin(&self, entry: Queued<K>) -> (Held<K>, Begun, bool) {
        let begun = match (&self.values, &self.watch) {
            (Some(values), watch) => values.begin(entry, watch.as_ref()),
            (None, Some(watch)) => {
                let (held, begun) = watch.begin(entry);
                (held, begun, true)
            }
            (None, None) => {
                let (held, begun) = entry.begin();
                (held, begun, true)
            }
        };
        if let Some(room) = &self.room {
            room.release(begun.1.is_retry(), 1);
        }
        begun
    }

    /// Ends the processing of a key; see [`Held::finish`]. Returns also what its group has to deliver now.
    #[inline(always)]
    pub(super) fn finish(&self, mut held: Held<K>) -> (Option<Queued<K>>, bool, Ready) {
        if let Some(values) = &self.values {
            values.unload(&mut held);
        }
        let ready = self.end_delivery(&held);
        let mut owes = false;
        let mut finish = |held: Held<K>| match &self.room {
            None => held.finish(),
            Some(room) => held.finish_counted(|retry, before| {
                owes = room.add_as(retry, 1);
                if let Some(before) = before {
                    room.lower_as(before, 1);
                    owes = true;
                }
            }),
        };
        let (entry, closed) = match &self.watch {
            None => finish(held),
            Some(watch) => watch.finish(held, finish),
        };
        if owes && let Some(room) = &self.room {
            room.offer();
        }
        (entry, closed, ready)
    }

    /// Ends a delivery for the key's group, before it ends for the key: once the key is idle, it may be
    /// swept.
    #[inline]
    pub(super) fn end_delivery(&self, held: &Held<K>) -> Ready {
        match &self.ordered {
            Some(ordered) if ordered.counts_in_flight => ordered.groups.end_delivery(held),
            _ => Ready::Nothing,
        }
    }
}

impl<K, V> Core<K, V> {
    #[inline]
    pub(crate) fn ordered(&self) -> Option<&Ordered<K>> {
        self.extras.as_ref()?.ordered.as_ref()
    }

    pub(crate) fn groups(&self) -> Option<&dyn Grouping<K>> {
        Some(&*self.ordered()?.groups)
    }

    #[inline]
    pub(crate) fn room(&self) -> Option<&Room> {
        self.extras.as_ref()?.room.as_ref()
    }

    /// Returns the bound of the queue, whether it is in keys or that of its values.
    pub(crate) fn bound(&self) -> Option<&Room> {
        self.room().or_else(|| self.values()?.room.as_ref())
    }

    #[inline]
    pub(crate) fn values(&self) -> Option<&Merger<V>> {
        self.extras.as_ref()?.values.as_ref()
    }

    /// Runs `add`, which adds a held key again, as a `retry` or not. If it is accepted, the value goes with the key.
    pub(crate) fn put_back(
        &self,
        held: &mut Held<K>,
        retry: bool,
        add: impl FnOnce() -> Added,
    ) -> Added {
        let Some(values) = self.values() else {
            return add();
        };
        let mut added = Added::ShutDown;
        values.put_back(held, retry, || {
            added = add();
            added.is_accepted()
        });
        added
    }

    /// Abandons every key, as [`Core::abandon`] does, and returns the receipts of what the keys
    /// carry.
    pub(super) fn abandon_with_values(
        &self,
        values: &Merger<V>,
        census: &mut Census,
    ) -> Vec<Receipts> {
        let mut receipts = Vec::new();
        // Adds are refused, so other keys do not become busy.
        let is_busy = |node: &Node<K>| (node.state.phase() != State::Idle).then_some(());
        for (pin, ()) in self.keys.pin_all(is_busy) {
            // Under the lock of the value: a thread that has made the key dirty is still going to write
            // its value.
            receipts.extend(values.take_receipts(&pin.0, || {
                let phase = pin.0.state().abandon();
                census.count(phase);
                matches!(phase, State::Queued | State::Dirty)
            }));
        }
        receipts
    }

    /// Returns the state of a pinned key, and whether a value waits for its delay: one that no delivery takes before.
    pub(super) fn look_for_delayed(&self, values: &Merger<V>, pin: &Pin<K>) -> (State, bool) {
        // Under the lock of the value: a put adds the key and writes the value in one step, and a delivery begins and takes it
        // in one step.
        let waiting = pin.carried(&values.carries).waiting.lock();
        let phase = pin.phase();
        let is_owed = matches!(phase, State::Queued | State::Dirty);
        (phase, waiting.load.value.is_some() && !is_owed)
    }

    /// Returns whether the dropped delay of a pinned key, which is closed and idle, has something to deliver: a value, if keys carry some.
    pub(crate) fn is_owed(&self, pin: &Pin<K>) -> bool {
        let values = self.values();
        values.is_none_or(|values| self.look_for_delayed(values, pin).1)
    }

    /// Returns how many of the delays that a shut-down has dropped have nothing to deliver.
    pub(super) fn count_empty_delays(&self, values: &Merger<V>) -> usize {
        let dropped = self.keys.pin_all(|node| node.delay.dropped());
        let is_empty = |(pin, _): &(Pinned<K>, _)| !self.look_for_delayed(values, &pin.0).1;
        dropped.filter(is_empty).count()
    }

    /// Reports what the keys carry whose delays a shut-down has dropped.
    pub(super) fn drop_receipts_of_delayed(&self, values: &Merger<V>) {
        let is_undelivered = |phase| matches!(phase, State::Idle | State::Processing);
        let look = |node: &Node<K>| is_undelivered(node.state.phase()).then_some(());
        for (pin, ()) in self.keys.pin_all(look) {
            drop(values.take_receipts(&pin.0, || is_undelivered(pin.0.phase())));
        }
    }

    /// Withdraws a pinned key, before the caller takes its value, which it has locked: cancels the pending delay, and makes a key
    /// that is dirty for the value processing. Returns the state until then, and whether there was a delay; `None` if there is
    /// no value, and the key is queued or dirty: then it stays so, and the caller leaves what else the key carries to it.
    pub(crate) fn withdraw(&self, pin: &Pin<K>, waiting: &Waiting<V>) -> Option<(State, bool)> {
        // A delay that is just ending may still add the key: then its delivery finds no value, and nothing is delivered.
        let is_delayed = pin.delay().cancel().is_some();
        let has_value = waiting.load.value.is_some();
        // Adds without a value that came as well have no bit of their own: they go with the value, or stay if there is none.
        let was_dirty = has_value && pin.state().end_dirty().is_some();
        // A worker may have finished a dirty key before that: it is queued then.
        let phase = match was_dirty {
            true => State::Dirty,
            false => pin.phase(),
        };
        if is_delayed {
            self.note_cancelled();
        }
        let stays = !has_value && matches!(phase, State::Queued | State::Dirty);
        (!stays).then_some((phase, is_delayed))
    }

    /// Cancels the pending delay of the pinned key, with what it carries unless that is also queued.
    /// Returns whether there was a delay.
    pub(super) fn cancel_with_values(&self, values: &Merger<V>, pin: &Pin<K>) -> bool {
        let waiting = pin.carried(&values.carries).waiting.lock();
        let cancelled = pin.delay().cancel().is_some();
        if cancelled && !matches!(pin.phase(), State::Queued | State::Dirty) {
            values.take(waiting).end(Some(Ended::Dropped));
        }
        cancelled
    }
}
