//! Removing entries before they fire, a bounded number at a time.
//!
//! A sweep visits the places in the order of the wheel's table, and within a slot the chunks in
//! order. It can stop after any chunk; the caller keeps the [`Cursor`] and continues later. Polls
//! and inserts in between move entries, so a sweep that stops in between may miss some.

use std::collections::BTreeMap;

use super::{LEVELS, Slot, Wheel};

/// The position at which a sweep continues. The default is the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// 0 is `late`, 1 to 6 are the levels, 7 is `outer`.
    place: usize,
    /// The slot in its place: a tick, the number of a slot, or a span.
    key: u64,
    chunk: usize,
}

const OUTER: usize = LEVELS + 1;

impl<T> Wheel<T> {
    /// Drops entries whose value `keep` refuses, until it has visited `budget` slots and entries,
    /// or up to a chunk more. The other entries keep their order.
    ///
    /// Returns the position to continue from, or `None` at the end. If `keep` or a value's drop
    /// panics, the entries not yet visited stay.
    pub(crate) fn sweep(
        &mut self,
        from: Cursor,
        budget: usize,
        mut keep: impl FnMut(&T) -> bool,
    ) -> Option<Cursor> {
        let mut at = from;
        let mut visited = 0;
        while visited < budget {
            at = self.next_slot(at)?;
            let slot = match at.place {
                0 => self.late.get_mut(&at.key),
                OUTER => self.outer.get_mut(&at.key),
                level => Some(self.levels[level - 1].slot_at(at.key)),
            };
            if let Some(slot) = slot {
                let (seen, next) = slot.retain_chunk(at.chunk, &mut self.len, &mut keep);
                visited += seen + 1;
                self.settle_swept(at);
                match next {
                    Some(chunk) => at.chunk = chunk,
                    None => {
                        at = Cursor {
                            key: at.key + 1,
                            chunk: 0,
                            ..at
                        }
                    }
                }
            }
        }
        Some(at)
    }

    /// Drops every entry whose value `keep` refuses, and returns their number.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&T) -> bool) -> usize {
        let before = self.len;
        let _end = self.sweep(Cursor::default(), usize::MAX, keep);
        before - self.len
    }

    /// Returns the first slot at or after `at` that may hold entries.
    fn next_slot(&self, at: Cursor) -> Option<Cursor> {
        let begin = |place, key: u64| Cursor {
            place,
            key,
            chunk: 0,
        };
        let in_map = |map: &BTreeMap<u64, Slot<T>>| {
            let (&key, _) = map.range(at.key..).next()?;
            Some(if key == at.key {
                at
            } else {
                begin(at.place, key)
            })
        };
        let found = match at.place {
            0 => in_map(&self.late),
            OUTER => return in_map(&self.outer),
            level => {
                let found = self.levels.get(level - 1)?.occupied_from(at.key);
                found.map(|key| if key == at.key { at } else { begin(level, key) })
            }
        };
        found.or_else(|| self.next_slot(begin(at.place + 1, 0)))
    }

    /// Clears the bit, or removes the map's entry, of a slot that a sweep has emptied.
    fn settle_swept(&mut self, at: Cursor) {
        match at.place {
            0 => drop_if_empty(&mut self.late, at.key),
            OUTER => drop_if_empty(&mut self.outer, at.key),
            level => self.levels[level - 1].settle_at(at.key),
        }
        let drained = match self.levels.get(self.draining) {
            Some(level) => !level.is_occupied(self.current),
            None => !self.outer.contains_key(&(self.current >> super::SPAN_BITS)),
        };
        if drained {
            self.draining = 0;
        }
    }
}

fn drop_if_empty<T>(slots: &mut BTreeMap<u64, Slot<T>>, key: u64) {
    if slots.get(&key).is_some_and(Slot::is_empty) {
        slots.remove(&key);
    }
}
