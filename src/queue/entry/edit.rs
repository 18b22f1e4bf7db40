//! Puts and updates: what a verb does to the value that waits. [`crate::values`] has the protocol of values, and
//! [`crate::wait::room`] that of the bound.

use super::admission::Admission;
use super::key::{Key, Spot};
use crate::Added;
use crate::keys::carried::{Load, Waiting};
use crate::timer::Wait;
use crate::values::Merger;
use crate::wait::receipt::Receipts;
use crate::wait::room::{Share, Turn};

/// What a verb does to the value that waits.
pub(super) trait Edit<V>: Sized {
    /// Whether a key with values is added with one.
    const PUTS: bool = true;

    /// What the caller gave.
    type Given;

    /// Returns the weight for which it needs room.
    fn weight(&self, merger: &Merger<V>) -> usize;

    fn apply(self, merger: &Merger<V>, waiting: &mut Load<V>, outdated: &mut Option<V>);

    /// Does what is left to do in a queue without values.
    fn apply_alone(self) {
        drop(self.back());
    }

    fn back(self) -> Self::Given;
}

pub(super) struct Put<V>(pub(super) V);

impl<V> Edit<V> for Put<V> {
    type Given = V;

    fn weight(&self, merger: &Merger<V>) -> usize {
        merger.weight(&self.0)
    }

    #[inline]
    fn apply(self, merger: &Merger<V>, waiting: &mut Load<V>, outdated: &mut Option<V>) {
        merger.merge(waiting, self.0.into(), outdated);
    }

    fn back(self) -> V {
        self.0
    }
}

pub(super) struct Update<F>(pub(super) F);

impl<V: Default, F: FnOnce(&mut V)> Edit<V> for Update<F> {
    type Given = F;

    /// The least: how much it adds is only known afterwards.
    fn weight(&self, _: &Merger<V>) -> usize {
        1
    }

    #[inline]
    fn apply(self, _: &Merger<V>, waiting: &mut Load<V>, outdated: &mut Option<V>) {
        waiting.update(self.0, outdated);
    }

    fn apply_alone(self) {
        (self.0)(&mut V::default());
    }

    fn back(self) -> F {
        self.0
    }
}

/// Changes nothing.
pub(super) struct Touch;

impl<V> Edit<V> for Touch {
    const PUTS: bool = false;
    type Given = ();

    fn weight(&self, _: &Merger<V>) -> usize {
        1
    }

    fn apply(self, _: &Merger<V>, _: &mut Load<V>, _: &mut Option<V>) {}

    fn back(self) {}
}

/// An add, a put or an update that has not happened yet.
pub(super) struct Adding<'q, K, V, X, E> {
    pub(super) at: Spot<'q, K, V>,
    pub(super) key: X,
    pub(super) delay: Option<Wait>,
    pub(super) edit: E,
    pub(super) receipts: Option<Box<Receipts>>,
}

impl<'q, K, V, X, E> Adding<'q, K, V, X, E>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    X: Key<K, V>,
    E: Edit<V>,
{
    /// Adds, or fails for lack of room; then nothing has changed. Does not fail if the room is granted or exceeded,
    /// unless another thread has taken what was granted.
    #[inline]
    pub(super) fn attempt(self, admission: Admission<'q>) -> Result<Added, Self> {
        match self.at.core.values() {
            Some(merger) if E::PUTS || self.receipts.is_some() => self.change(merger, admission),
            _ => self.add(admission),
        }
    }

    /// Returns the place in the line of an add that has failed.
    pub(super) fn turn(&self) -> Turn<'q> {
        let core = self.at.core;
        let room = core.bound().expect("only a bounded queue is full");
        let weight = core.values().map_or(1, |merger| self.edit.weight(merger));
        Turn::new(room, weight)
    }

    /// Adds the key alone.
    #[inline]
    fn add(self, admission: Admission<'q>) -> Result<Added, Self> {
        let mut share = admission.share(self.at.core.room());
        let added = match self.delay {
            None => self.key.add(self.at, &mut share),
            Some(delay) => self.key.delay(self.at, delay, &mut share),
        };
        match added {
            Ok(added) => {
                if added.is_accepted() {
                    self.edit.apply_alone();
                }
                Ok(added)
            }
            Err(key) => Err(Adding { key, ..self }),
        }
    }

    /// Adds the key, and changes its value.
    fn change(mut self, merger: &'q Merger<V>, admission: Admission<'q>) -> Result<Added, Self> {
        let core = self.at.core;
        let turn = match (admission, &merger.room) {
            (Admission::Granted(turn), _) => Some(turn),
            (Admission::Exceeding, _) | (_, None) => None,
            // A key without a value takes no room.
            _ if !E::PUTS => None,
            // What a shut-down leaves behind takes room for good, so the caller would never learn of it.
            (Admission::Within, Some(_)) if core.closing.has_begun() => return Ok(Added::ShutDown),
            (Admission::Within, Some(room)) => {
                match Turn::try_new(room, self.edit.weight(merger)) {
                    Some(turn) => Some(turn),
                    // Together with a value that waits already, this one weighs 1: it needs no room (B1).
                    None if merger.merging.weight.is_none() => {
                        self = match self.attempt_merge(merger) {
                            Ok(added) => return Ok(added),
                            Err(adding) => adding,
                        };
                        // The value may have been all that took room, until it was delivered.
                        match Turn::try_new(room, 1) {
                            Some(turn) => Some(turn),
                            None => return Err(self),
                        }
                    }
                    None => return Err(self),
                }
            }
        };
        Ok(self.attempt_in(merger, turn))
    }

    /// Adds what there is room for. It is counted for the weight of the turn, and so never twice.
    #[inline]
    fn attempt_in(self, merger: &Merger<V>, turn: Option<Turn<'_>>) -> Added {
        let Spot { core, level } = self.at;
        let (edit, receipts) = (self.edit, self.receipts);
        let change = move |merger: &Merger<V>, waiting: &mut Waiting<V>, outdated: &mut _| {
            if let Some(mut turn) = turn {
                waiting.weights[usize::from(false)] += turn.take();
            }
            apply(merger, edit, receipts, waiting, outdated);
        };
        if self.delay.is_none() {
            return self.key.change(self.at, merger, change);
        }
        if core.closing.has_begun() {
            return Added::ShutDown;
        }
        let pinned = self.key.pin(self.at, &mut Share::exceeding(None));
        let Ok((pinned, _key)) = pinned else {
            unreachable!("the bound of a queue of values is the merger's")
        };
        let added = core.update_pinned(merger, &pinned.0, (level, self.delay), false, change);
        added.unwrap_or_else(|_| unreachable!("it need not merge"))
    }

    /// Adds if the value of the key waits.
    #[cold]
    fn attempt_merge(self, merger: &Merger<V>) -> Result<Added, Self> {
        let Spot { core, level } = self.at;
        let at = (level, self.delay);
        let mut carried = Some((self.edit, self.receipts));
        if let Some(pinned) = self.key.find(self.at) {
            let change = |merger: &Merger<V>, waiting: &mut Waiting<V>, outdated: &mut _| {
                let (edit, receipts) = carried.take().expect("called once");
                apply(merger, edit, receipts, waiting, outdated);
            };
            if let Ok(added) = core.update_pinned(merger, &pinned.0, at, true, change) {
                return Ok(added);
            }
        }
        let (edit, receipts) = carried.expect("nothing was changed");
        Err(Adding {
            edit,
            receipts,
            ..self
        })
    }
}

fn apply<V>(
    merger: &Merger<V>,
    edit: impl Edit<V>,
    receipts: Option<Box<Receipts>>,
    waiting: &mut Waiting<V>,
    outdated: &mut Load<V>,
) {
    // A panic of the edit would drop them under the lock, and that runs wakers.
    outdated.receipts = receipts;
    edit.apply(merger, &mut waiting.load, &mut outdated.value);
    let receipts = outdated.receipts.take();
    if receipts.is_some() {
        let value = None;
        let newer = Load { value, receipts };
        merger.merge(&mut waiting.load, newer, &mut outdated.value);
    }
}
