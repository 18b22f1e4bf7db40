//! The order of the reference queue: a deque for each level (P1 to P4).

use std::collections::VecDeque;

/// The queued keys.
#[derive(Clone, Debug)]
pub(crate) struct Levels<K> {
    levels: Vec<VecDeque<K>>,
    /// Of so many deliveries in a row, one goes to another level than the first that has keys.
    limit: usize,
    /// The deliveries at which another level had keys, too.
    contested: usize,
    /// The level that the last such delivery went to.
    last: usize,
}

impl<K> Default for Levels<K> {
    fn default() -> Self {
        Levels::new(1, 2)
    }
}

impl<K> Levels<K> {
    pub(crate) fn new(levels: usize, limit: usize) -> Self {
        Levels {
            levels: (0..levels).map(|_| VecDeque::new()).collect(),
            limit,
            contested: 0,
            last: 0,
        }
    }

    pub(crate) fn push(&mut self, key: K, level: usize) {
        self.levels[level].push_back(key);
    }

    /// Takes the next key, and says of which level, and whether other levels had keys, too.
    pub(crate) fn pop(&mut self) -> Option<(K, usize, bool)> {
        let filled = |level: &usize| !self.levels[*level].is_empty();
        let mut filled = (0..self.levels.len()).filter(filled);
        let first = filled.next()?;
        let others: Vec<_> = filled.collect();
        let level = if others.is_empty() {
            first
        } else if !self.relieves() {
            self.contested += 1;
            first
        } else {
            self.contested += 1;
            let next = others.iter().find(|level| **level > self.last);
            self.last = *next.unwrap_or(&others[0]);
            self.last
        };
        Some((self.levels[level].pop_front()?, level, !others.is_empty()))
    }

    /// Undoes what a `pop` has counted.
    pub(crate) fn refund(&mut self, level: usize) {
        self.contested -= 1;
        if self.relieves() {
            self.last = level.saturating_sub(1);
        }
    }

    /// Whether the next delivery goes to another level than the first, if others have keys.
    fn relieves(&self) -> bool {
        (self.contested + 1).is_multiple_of(self.limit)
    }

    pub(crate) fn into_keys(self) -> impl Iterator<Item = (K, usize)> {
        let levels = self.levels.into_iter().enumerate();
        levels.flat_map(|(level, keys)| keys.into_iter().map(move |key| (key, level)))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_level().iter().sum()
    }

    pub(crate) fn by_level(&self) -> Vec<usize> {
        self.levels.iter().map(VecDeque::len).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &K> {
        self.levels.iter().flatten()
    }
}

impl<K: PartialEq> Levels<K> {
    /// The level of a key that is queued.
    pub(crate) fn level(&self, key: &K) -> Option<usize> {
        self.levels.iter().position(|level| level.contains(key))
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.level(key).is_some()
    }

    /// Moves a queued key to the tail of a level, if that is more urgent than its own; whether it is.
    pub(crate) fn raise(&mut self, key: K, level: usize) -> bool {
        let raises = self.level(&key).is_some_and(|own| level < own);
        if raises {
            let others = |keys: &mut VecDeque<K>| keys.retain(|other| *other != key);
            self.levels.iter_mut().for_each(others);
            self.push(key, level);
        }
        raises
    }
}
