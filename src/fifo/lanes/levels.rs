//! Which level is next: the most urgent one that has keys, and now and then another one, so that none
//! starves.
//!
//! The *streak* is the number of deliveries in a row that went to the most urgent level although a less
//! urgent one had keys. When it reaches one less than the limit, the next delivery goes to one of the
//! less urgent levels, which take turns (P2). Nothing else is kept: which levels have keys is a bitmap.

use super::list::{List, place};
use crate::keys::node::NodeRef;
use crate::keys::place::Laned;
use crate::keys::state::{Level, MOST_LEVELS};

/// The keys of all levels. Its owner holds the scheduler's lock in all calls.
pub(super) struct Levels<K> {
    lanes: [List<K>; MOST_LEVELS],
    /// A bit for each level that has keys.
    filled: u8,
    limit: usize,
    streak: usize,
    /// The level to which the last streak gave way.
    relieved: Level,
}

impl<K> Levels<K> {
    /// Of `limit` deliveries in a row, one goes to a less urgent level that has keys; at least 2.
    pub(super) fn new(limit: usize) -> Self {
        Levels {
            lanes: [const { List::NEW }; MOST_LEVELS],
            filled: 0,
            limit,
            streak: 0,
            relieved: 0,
        }
    }

    /// Puts a key at the end of a level.
    ///
    /// # Safety
    ///
    /// The key is in no lane, and stays interned while it is in one.
    pub(super) unsafe fn push(&mut self, node: NodeRef<K>, level: Level, laned: Laned) {
        // SAFETY: by the caller's promise.
        unsafe { self.lanes[usize::from(level)].push(node, level, laned) };
        self.filled |= 1 << level;
    }

    /// Moves a key to the end of another level, if it is in a lane.
    ///
    /// # Safety
    ///
    /// The key is interned.
    pub(super) unsafe fn move_to(&mut self, node: NodeRef<K>, level: Level, laned: Laned) {
        // SAFETY: interned, and the lock is held.
        let lane = unsafe { (*place(node, laned)).lane };
        let Some(from) = lane.filter(|from| *from != level) else {
            return;
        };
        // SAFETY: in that lane.
        unsafe { self.lanes[usize::from(from)].remove(node, laned) };
        self.note_taken(from);
        // SAFETY: in no lane any more; a key in a lane stays interned.
        unsafe { self.push(node, level, laned) };
    }

    /// Takes the next key.
    pub(super) fn pop(&mut self, laned: Laned) -> Option<NodeRef<K>> {
        if self.filled == 0 {
            return None;
        }
        let level = self.choose();
        let node = self.lanes[usize::from(level)].pop(laned)?;
        // SAFETY: interned, because it was in the lane; nobody holds the key.
        unsafe { (*place(node, laned)).delivered = level };
        self.note_taken(level);
        Some(node)
    }

    /// Chooses a level that has keys; there is one.
    fn choose(&mut self) -> Level {
        let most_urgent = self.filled.trailing_zeros() as Level;
        let others = self.filled & (self.filled - 1);
        if others == 0 {
            self.streak = 0;
            return most_urgent;
        }
        self.streak += 1;
        if self.streak < self.limit {
            return most_urgent;
        }
        self.streak = 0;
        // The next level behind the one that was relieved last, or else the first.
        let behind = others & (u8::MAX << self.relieved << 1);
        let next = if behind == 0 { others } else { behind };
        self.relieved = next.trailing_zeros() as Level;
        self.relieved
    }

    fn note_taken(&mut self, level: Level) {
        if self.lanes[usize::from(level)].len() == 0 {
            self.filled &= !(1 << level);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(List::len).sum()
    }

    /// Returns the number of keys of each level.
    pub(super) fn depths(&self) -> [usize; MOST_LEVELS] {
        self.lanes.each_ref().map(List::len)
    }
}
