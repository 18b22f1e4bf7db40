//! The baseline for levels: one mutex around a map of states and a `VecDeque` for each level.
//!
//! A queued key that becomes more urgent goes to the end of its new level. What it leaves behind is dropped when it
//! comes up: the map says another level by then. (The key may have come back to its old level; then it
//! comes out too early.) One of 16 deliveries goes to a less urgent level that has keys, as in keyqueue.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::locked::{Locked, Ordered};

const LEVELS: usize = 3;
const STARVATION_LIMIT: usize = 16;

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Queued(usize),
    Processing,
    Dirty(usize),
}

#[derive(Default)]
pub(super) struct Levels {
    phases: HashMap<u64, Phase, RandomState>,
    lanes: [VecDeque<u64>; LEVELS],
    queued: usize,
    number: usize,
}

pub(super) type LeveledLock = Locked<Levels>;

impl Levels {
    fn push(&mut self, level: usize, key: u64) {
        self.lanes[level].push_back(key);
        self.queued += 1;
    }
}

impl Ordered for Levels {
    fn add(&mut self, key: u64, level: usize) -> bool {
        match self.phases.entry(key) {
            Entry::Vacant(new) => {
                new.insert(Phase::Queued(level));
            }
            Entry::Occupied(mut known) => match *known.get() {
                Phase::Queued(own) if level < own => {
                    known.insert(Phase::Queued(level));
                    self.queued -= 1;
                }
                Phase::Queued(_) => return false,
                Phase::Processing => {
                    known.insert(Phase::Dirty(level));
                    return false;
                }
                Phase::Dirty(own) => {
                    known.insert(Phase::Dirty(level.min(own)));
                    return false;
                }
            },
        }
        self.push(level, key);
        true
    }

    fn pop(&mut self) -> Option<u64> {
        loop {
            let mut filled = (0..LEVELS).filter(|level| !self.lanes[*level].is_empty());
            let first = filled.next()?;
            let level = match filled.next() {
                Some(other) => {
                    self.number += 1;
                    let relieves = self.number.is_multiple_of(STARVATION_LIMIT);
                    if relieves { other } else { first }
                }
                None => first,
            };
            let key = self.lanes[level].pop_front()?;
            let phase = self.phases.get_mut(&key);
            if let Some(phase) = phase.filter(|phase| **phase == Phase::Queued(level)) {
                *phase = Phase::Processing;
                self.queued -= 1;
                return Some(key);
            }
        }
    }

    fn done(&mut self, key: u64) -> bool {
        let Entry::Occupied(mut known) = self.phases.entry(key) else {
            return false;
        };
        let Phase::Dirty(level) = *known.get() else {
            known.remove();
            return false;
        };
        known.insert(Phase::Queued(level));
        self.push(level, key);
        true
    }

    fn len(&self) -> usize {
        self.queued
    }
}
