//! The order of the reference queue: groups that take turns, each with its levels (G1, G4). A queue without
//! groups has one.

use std::collections::{BTreeMap, VecDeque};

use crate::Setup;
use crate::lanes::Lanes;

/// The queued keys. The group of a key is its number modulo the number of groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns<K> {
    setup: Setup,
    groups: BTreeMap<u64, Lanes<K>>,
    /// The groups that have keys, in the order of their turns.
    ring: VecDeque<u64>,
}

impl<K: Copy + PartialEq + Into<u64>> Turns<K> {
    pub(crate) fn new(setup: Setup) -> Self {
        Turns {
            setup,
            groups: BTreeMap::new(),
            ring: VecDeque::new(),
        }
    }

    fn lanes(&mut self, key: K) -> &mut Lanes<K> {
        let setup = self.setup;
        let new = || Lanes::new(setup.levels(), setup.starvation_limit());
        self.groups.entry(self.group(key)).or_insert_with(new)
    }

    fn group(&self, key: K) -> u64 {
        key.into() % self.setup.groups().max(1)
    }

    pub(crate) fn default_level(&self) -> usize {
        self.setup.levels() / 2
    }

    pub(crate) fn last_level(&self) -> usize {
        self.setup.levels() - 1
    }

    pub(crate) fn push(&mut self, key: K, level: usize) {
        let group = self.group(key);
        if !self.ring.contains(&group) {
            self.ring.push_back(group);
        }
        self.lanes(key).push(key, level);
    }

    /// Takes the next key, and says of which level, and whether a group was put back.
    pub(crate) fn pop(&mut self) -> Option<(K, usize, bool)> {
        let group = loop {
            let group = self.ring.pop_front()?;
            // Not if all was taken out meanwhile.
            if self.groups.contains_key(&group) {
                break group;
            }
        };
        let lanes = self.groups.get_mut(&group)?;
        let (key, level) = lanes.pop()?;
        let more = !lanes.is_empty();
        if more {
            self.ring.push_back(group);
        } else if self.setup.groups() > 0 {
            // What it has counted is forgotten.
            self.groups.remove(&group);
        }
        Some((key, level, more && self.setup.groups() > 0))
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.values().map(Lanes::len).sum()
    }

    pub(crate) fn by_level(&self) -> Vec<usize> {
        let mut sums = vec![0; self.setup.levels()];
        for lanes in self.groups.values() {
            let levels = lanes.by_level();
            sums.iter_mut().zip(levels).for_each(|(sum, n)| *sum += n);
        }
        sums
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn has_groups(&self) -> bool {
        self.setup.groups() > 0
    }

    /// Takes the next key of a level of a queue without groups.
    pub(crate) fn pop_at(&mut self, level: usize) -> Option<K> {
        let group = *self.ring.front()?;
        let lanes = self.groups.get_mut(&group)?;
        let key = lanes.pop_at(level)?;
        if lanes.is_empty() {
            self.ring.pop_front();
        }
        Some(key)
    }

    /// Takes all keys out, and says of which level each is. The groups keep their places.
    pub(crate) fn take_all(&mut self) -> Vec<(K, usize)> {
        let groups = std::mem::take(&mut self.groups);
        groups.into_values().flat_map(Lanes::into_keys).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &K> {
        self.groups.values().flat_map(Lanes::iter)
    }

    pub(crate) fn clear(&mut self) {
        self.groups.values_mut().for_each(Lanes::clear);
        self.ring.clear();
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.groups.values().any(|lanes| lanes.contains(key))
    }

    /// Moves a queued key to the tail of a level of its group, if that is more urgent than its own; whether it is.
    pub(crate) fn raise(&mut self, key: K, level: usize) -> bool {
        self.lanes(key).raise(key, level)
    }
}
