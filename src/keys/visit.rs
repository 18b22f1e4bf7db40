//! Walks over a shard's nodes, for shut-downs and reports.

use super::{Keys, Shard};
use crate::Remaining;
use crate::keys::node::{Added, Locked, Node, Pinned};
use crate::keys::state::{Admit, State};

/// The most places of a shard's table that a report or a page visits at a time under its lock.
pub(crate) const PORTION: usize = 1024;

/// What a walk has counted.
#[derive(Default)]
pub(crate) struct Census {
    pub(crate) queued: usize,
    pub(crate) processing: usize,
    pub(crate) dirty: usize,
    /// Delays that were pending.
    pub(crate) delayed: usize,
}

impl Census {
    pub(crate) fn count(&mut self, phase: State) {
        match phase {
            State::Idle => {}
            State::Queued => self.queued += 1,
            State::Processing => self.processing += 1,
            State::Dirty => self.dirty += 1,
        }
    }

    pub(crate) fn remaining(&self) -> Remaining {
        Remaining {
            queued: self.queued,
            processing: self.processing + self.dirty,
            delayed: self.delayed,
            refused: 0,
        }
    }
}

impl<K, V> Keys<K, V> {
    /// Returns the number of shards.
    pub(crate) fn count(&self) -> usize {
        self.shards.len()
    }

    /// Pins the keys for which `look`, which is called under the lock of the shard, returns something, and returns that
    /// as well. No shard is locked when they come out.
    pub(crate) fn pin_all<T>(
        &self,
        look: impl Fn(&Node<K>) -> Option<T>,
    ) -> impl Iterator<Item = (Pinned<K>, T)> {
        self.shards().flat_map(move |shard| {
            let mut pins = Vec::new();
            shard.visit(0, usize::MAX, |node| {
                pins.extend(look(node.get()).map(|found| (Pinned(node.pin()), found)));
            });
            pins
        })
    }
}

impl<K, V> Shard<'_, K, V> {
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Node<K>)) {
        self.visit(0, usize::MAX, |node| f(node.get()));
    }

    /// Closes every key of the shard, and counts the keys by state in `census`. A pending delay is
    /// dropped and counted; with `deliver`, the key is added first instead, and what is left to do for
    /// that is passed to `owed`.
    pub(crate) fn close(&self, deliver: bool, census: &mut Census, mut owed: impl FnMut(Added<K>)) {
        self.visit(0, usize::MAX, |locked| {
            let node = locked.get();
            if deliver && let Some(ended) = node.delay.close() {
                let admit = |_| Admit::of(ended.is_retry());
                locked.add_at(ended.level(), admit).map(&mut owed);
                if ended.is_retry() {
                    node.state.turn();
                }
            }
            if let Some(phase) = node.state.close() {
                census.count(phase);
            }
            // After the state: who finds the delay dropped knows that the key is closed.
            if node.delay.close_and_drop() {
                census.delayed += 1;
            }
        });
    }

    /// Calls `f` with some of the shard's nodes, about `most`, starting at `place`. Returns the
    /// place to continue from, if the shard has more. Nodes may change their places between two
    /// calls, so a node may be missed or visited twice.
    pub(crate) fn visit(
        &self,
        place: usize,
        most: usize,
        mut f: impl FnMut(&Locked<'_, K>),
    ) -> Option<usize> {
        self.table
            .for_some(place, most, |index| f(&self.locked(index)))
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn sweeps(&self) -> u64 {
        self.store.sweeps
    }
}
