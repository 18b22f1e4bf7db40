//! How values are merged, and what the engine does with them: [`super`] has the protocol.

use std::any::TypeId;
use std::mem;
use std::thread;

use super::merge;
use crate::engine::timing::Watch;
use crate::keys::carried::{Carries, Load, Waiting};
use crate::keys::node::{Held, Pin, Queued};
use crate::keys::state::Begun;
use crate::sync::catch_panic::{catch_payload, drop_caught, drop_payload};
use crate::sync::{SpinLockGuard, assert_locks_held};
use crate::wait::receipt::{Ended, Receipts};
use crate::wait::room::{Room, countable};

/// The values of a queue: how they are merged, and how much may wait.
pub(crate) struct Merger<V> {
    pub(crate) merging: Merging<V>,
    /// `None` if the queue has no bound.
    pub(crate) room: Option<Room>,
    pub(crate) carries: Carries<V>,
}

/// How values are merged and weighed.
pub(crate) struct Merging<V> {
    /// `None` is [`merge::latest`].
    merge: Option<Box<MergeFn<V>>>,
    /// `None` if each value weighs 1.
    pub(crate) weight: Option<Box<WeightFn<V>>>,
}

/// What a put or an update does under the lock of its key's value: changes what waits for the next delivery. What is to be
/// dropped when the lock is released goes into the [`Load`].
pub(crate) trait Change<V>: FnOnce(&Merger<V>, &mut Waiting<V>, &mut Load<V>) {}

impl<V, F: FnOnce(&Merger<V>, &mut Waiting<V>, &mut Load<V>)> Change<V> for F {}

type MergeFn<V> = dyn Fn(&mut V, V) + Send + Sync;

type WeightFn<V> = dyn Fn(&V) -> usize + Send + Sync;

fn id_of<T: 'static>(_: &T) -> TypeId {
    TypeId::of::<T>()
}

impl<V> Merging<V> {
    pub(crate) fn new(merge: impl Fn(&mut V, V) + Send + Sync + 'static) -> Self
    where
        V: 'static,
    {
        let is_latest = id_of(&merge) == id_of(&merge::latest::<V>);
        Merging {
            merge: (!is_latest).then(|| Box::new(merge) as _),
            weight: None,
        }
    }

    /// Merges `newer` into `older`. Returns the value that is left over, whose drop is user code.
    #[inline]
    pub(crate) fn merge(&self, older: &mut V, newer: V) -> Option<V> {
        match &self.merge {
            Some(merge) => {
                merge(older, newer);
                None
            }
            None => Some(mem::replace(older, newer)),
        }
    }
}

impl<V> Merger<V> {
    /// Returns the weight of a value, as it counts.
    pub(crate) fn weight(&self, value: &V) -> usize {
        self.merging
            .weight
            .as_ref()
            .map_or(1, |weight| countable(weight(value)))
    }

    /// Merges `newer` into `older`, in which a value is `outdated` then.
    #[inline]
    pub(crate) fn merge(&self, older: &mut Load<V>, newer: Load<V>, outdated: &mut Option<V>) {
        if let Some(value) = newer.value {
            match &mut older.value {
                Some(older) => {
                    // The lock of the key's value.
                    assert_locks_held(1);
                    *outdated = self.merging.merge(older, value);
                }
                None => older.value = Some(value),
            }
        }
        if let Some(newer) = newer.receipts {
            match &mut older.receipts {
                Some(older) => older.append(*newer),
                None => older.receipts = Some(newer),
            }
        }
    }

    /// Counts the weight of what waits, after a change of it. Returns the weight to
    /// [offer](Self::offer) once the key is unlocked.
    #[inline]
    #[must_use]
    pub(super) fn count(&self, waiting: &mut Waiting<V>) -> usize {
        let Some(room) = &self.room else { return 0 };
        let retry = waiting.weights[usize::from(true)] > 0;
        self.count_as(room, retry, waiting)
    }

    /// Like [`count`](Self::count), and from now on it is a `retry` or not.
    fn count_as(&self, room: &Room, retry: bool, waiting: &mut Waiting<V>) -> usize {
        let value = waiting.load.value.as_ref();
        let mut weights = [0, 0];
        weights[usize::from(retry)] = value.map_or(0, |value| self.weight(value));
        Self::change(room, waiting, weights)
    }

    #[inline]
    fn change(room: &Room, waiting: &mut Waiting<V>, weights: [usize; 2]) -> usize {
        let before = mem::replace(&mut waiting.weights, weights);
        let mut surplus = 0;
        for retry in [false, true] {
            let (before, after) = (before[usize::from(retry)], weights[usize::from(retry)]);
            if after > before {
                surplus += usize::from(room.add_as(retry, after - before));
            }
        }
        for retry in [false, true] {
            let (before, after) = (before[usize::from(retry)], weights[usize::from(retry)]);
            if after < before {
                room.lower_as(retry, before - after);
                surplus += before - after;
            }
        }
        surplus
    }

    /// Offers room that was made to those who wait for it. Wakes them, which is user code, so no lock is held.
    #[inline]
    pub(super) fn offer(&self, weight: usize) {
        if let (Some(room), true) = (&self.room, weight > 0) {
            room.offer();
        }
    }

    /// Takes what waits for a delivery, which makes room.
    #[inline]
    pub(crate) fn take(&self, mut waiting: SpinLockGuard<'_, Waiting<V>>) -> Load<V> {
        let load = mem::take(&mut waiting.load);
        let surplus = match &self.room {
            Some(room) => Self::change(room, &mut waiting, [0, 0]),
            None => 0,
        };
        drop(waiting);
        self.offer(surplus);
        load
    }

    /// Begins the delivery of a key, and loads its value for it. Returns also whether there is one; not
    /// if a shut-down has abandoned the key.
    // Never, and neither what ends a delivery: queues without values would pay for its registers.
    #[inline(never)]
    pub(crate) fn begin<K>(
        &self,
        entry: Queued<K>,
        watch: Option<&Watch>,
    ) -> (Held<K>, Begun, bool) {
        // SAFETY: a queued node stays interned; after `begin`, only the caller can finish it.
        let waiting = unsafe { entry.node().carried(&self.carries) }
            .waiting
            .lock();
        let (mut held, begun) = match watch {
            None => entry.begin(),
            Some(watch) => watch.begin(entry),
        };
        if begun.is_abandoned() {
            return (held, begun, false);
        }
        let mut load = self.take(waiting);
        let is_loaded = load.value.is_some();
        if let (false, Some(receipts)) = (is_loaded, &mut load.receipts) {
            // Nothing is delivered for them.
            receipts.end_as(Ended::Dropped);
        }
        // What was here before is empty: the last holder has unloaded it.
        mem::forget(mem::replace(held.loads(&self.carries).1, load));
        (held, begun, is_loaded)
    }

    /// Ends the delivery, before the key is finished: drops the value that is loaded. Never panics.
    #[inline(never)]
    pub(crate) fn unload<K>(&self, held: &mut Held<K>) {
        let load = mem::take(held.loads(&self.carries).1);
        let panicking = load.receipts.is_some() && thread::panicking();
        load.end(panicking.then_some(Ended::GivenUp));
    }

    /// Runs `add`, which adds the key again, as a `retry` or not, and if that returns true, puts the loaded value under
    /// those that wait for the next delivery. Never panics unless `add` does.
    #[inline(never)]
    pub(crate) fn put_back<K>(&self, held: &mut Held<K>, retry: bool, add: impl FnOnce() -> bool) {
        let (waiting, loaded) = held.loads(&self.carries);
        let mut waiting = waiting.lock();
        if !add() {
            return;
        }
        let mut load = mem::take(loaded);
        if let Some(receipts) = &mut load.receipts {
            // A report that the key is given up may have been cancelled.
            receipts.end_as(Ended::Done);
        }
        // A value that was taken cannot be delivered again.
        let gone = match load.value {
            Some(_) => None,
            None => load.receipts.take(),
        };
        let mut newer = mem::replace(&mut waiting.load, load);
        // Kept out of the way of a panic, which would fire them under the lock.
        let mut receipts = newer.receipts.take();
        let mut outdated = None;
        // The panic hook reports a panic, which concerns none of the work on this key. The newer value is
        // lost then, and its receipts say so.
        let merged = catch_payload(|| self.merge(&mut waiting.load, newer, &mut outdated));
        if merged.is_ok() {
            let value = None;
            let receipts = receipts.take();
            self.merge(&mut waiting.load, Load { value, receipts }, &mut outdated);
        }
        let surplus = catch_payload(|| match &self.room {
            Some(room) if retry => self.count_as(room, true, &mut waiting),
            _ => self.count(&mut waiting),
        });
        drop(waiting);
        self.offer(*surplus.as_ref().unwrap_or(&0));
        drop_caught(outdated);
        let panics = [merged.err(), surplus.err()];
        panics.into_iter().flatten().for_each(drop_payload);
        for (receipts, end) in [(gone, Ended::GivenUp), (receipts, Ended::Dropped)] {
            if let Some(receipts) = receipts {
                receipts.fire(Some(end));
            }
        }
    }

    /// Runs `decide` under the lock of the key's value, and if that returns true, returns the receipts of the value that
    /// waits for the next delivery: it will not be delivered. Keeps the value.
    #[must_use = "dropping them ends them, which runs user code"]
    pub(crate) fn take_receipts<K>(
        &self,
        pin: &Pin<K>,
        decide: impl FnOnce() -> bool,
    ) -> Option<Receipts> {
        let mut waiting = pin.carried(&self.carries).waiting.lock();
        let receipts = decide().then(|| waiting.load.receipts.take())?;
        receipts.map(|receipts| *receipts)
    }
}
