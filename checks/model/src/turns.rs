//! The order of the reference queue: groups that take turns, each with its levels (G1, G4). A queue without
//! groups has one.

use std::collections::{BTreeMap, VecDeque};

use crate::Setup;
use crate::levels::Levels;

/// The queued keys. The group of a key is its number modulo the number of groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns<K> {
    setup: Setup,
    groups: BTreeMap<u64, Levels<K>>,
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

    fn levels(&mut self, key: K) -> &mut Levels<K> {
        let setup = self.setup;
        let new = || Levels::new(setup.levels(), setup.starvation_limit());
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
        self.levels(key).push(key, level);
    }

    /// Takes the next key, and says of which level, and whether other levels of its group had keys, too.
    pub(crate) fn pop(&mut self) -> Option<(K, usize, bool)> {
        let group = self.ring.pop_front()?;
        let levels = self.groups.get_mut(&group)?;
        let popped = levels.pop();
        if levels.is_empty() {
            // What it has counted is forgotten.
            self.groups.remove(&group);
        } else {
            self.ring.push_back(group);
        }
        popped
    }

    /// Gives back the turn of a key that was taken and is not delivered, and what it has counted.
    pub(crate) fn refund(&mut self, key: K, level: usize, counted: bool) {
        let group = self.group(key);
        if let Some(levels) = self.groups.get_mut(&group) {
            if counted {
                levels.refund(level);
            }
            self.ring.retain(|other| *other != group);
            self.ring.push_front(group);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.values().map(Levels::len).sum()
    }

    pub(crate) fn by_level(&self) -> Vec<usize> {
        let mut sums = vec![0; self.setup.levels()];
        for group in self.groups.values() {
            let levels = group.by_level();
            sums.iter_mut().zip(levels).for_each(|(sum, n)| *sum += n);
        }
        sums
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the queue is more than one FIFO.
    pub(crate) fn has_order(&self) -> bool {
        self.setup.groups() > 0 || self.setup.levels() > 1
    }

    /// Takes all keys out, and says of which level each is.
    pub(crate) fn take_all(&mut self) -> Vec<(K, usize)> {
        self.ring.clear();
        let groups = std::mem::take(&mut self.groups);
        groups.into_values().flat_map(Levels::into_keys).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &K> {
        self.groups.values().flat_map(Levels::iter)
    }

    pub(crate) fn clear(&mut self) {
        self.groups.clear();
        self.ring.clear();
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.groups.values().any(|levels| levels.contains(key))
    }

    /// Moves a queued key to the tail of a level of its group, if that is more urgent than its own; whether it is.
    pub(crate) fn raise(&mut self, key: K, level: usize) -> bool {
        self.levels(key).raise(key, level)
    }
}
