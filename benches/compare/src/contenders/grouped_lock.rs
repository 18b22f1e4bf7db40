//! The baseline for groups: one mutex around a map of states, a map of groups with a `VecDeque` each, and a
//! `VecDeque` of the groups that have keys. Which take turns, one key each.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::locked::{Locked, Ordered};

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Queued,
    Processing,
    Dirty,
}

#[derive(Default)]
struct Group {
    keys: VecDeque<u64>,
    in_flight: usize,
}

pub(super) struct Groups {
    count: u64,
    phases: HashMap<u64, Phase, RandomState>,
    groups: HashMap<u64, Group, RandomState>,
    ring: VecDeque<u64>,
    queued: usize,
}

pub(super) type GroupedLock = Locked<Groups>;

impl GroupedLock {
    pub(super) fn with(groups: u64) -> Self {
        Self::over(Groups {
            count: groups,
            ..Groups::default()
        })
    }
}

impl Default for Groups {
    fn default() -> Self {
        Groups {
            count: 1,
            phases: HashMap::default(),
            groups: HashMap::default(),
            ring: VecDeque::new(),
            queued: 0,
        }
    }
}

impl Groups {
    fn push(&mut self, key: u64) {
        let name = key % self.count;
        let group = self.groups.entry(name).or_default();
        if group.keys.is_empty() {
            self.ring.push_back(name);
        }
        group.keys.push_back(key);
        self.queued += 1;
    }
}

impl Ordered for Groups {
    fn add(&mut self, key: u64, _: usize) -> bool {
        match self.phases.entry(key) {
            Entry::Vacant(new) => {
                new.insert(Phase::Queued);
                self.push(key);
                return true;
            }
            Entry::Occupied(mut known) => {
                if *known.get() == Phase::Processing {
                    known.insert(Phase::Dirty);
                }
            }
        }
        false
    }

    fn pop(&mut self) -> Option<u64> {
        let name = self.ring.pop_front()?;
        let group = self.groups.get_mut(&name)?;
        let key = group.keys.pop_front()?;
        group.in_flight += 1;
        if !group.keys.is_empty() {
            self.ring.push_back(name);
        }
        self.queued -= 1;
        self.phases.insert(key, Phase::Processing);
        Some(key)
    }

    fn done(&mut self, key: u64) -> bool {
        if let hashbrown::hash_map::Entry::Occupied(mut group) = self.groups.entry(key % self.count)
        {
            group.get_mut().in_flight -= 1;
            if group.get().in_flight == 0 && group.get().keys.is_empty() {
                group.remove();
            }
        }
        let Entry::Occupied(mut known) = self.phases.entry(key) else {
            return false;
        };
        if *known.get() == Phase::Dirty {
            known.insert(Phase::Queued);
            self.push(key);
            return true;
        }
        known.remove();
        false
    }

    fn len(&self) -> usize {
        self.queued
    }
}
