//! One slot of the wheel: a first-in first-out queue of entries, in chunks.
//!
//! Chunks are contiguous, so a cascade accesses memory sequentially (six times as fast as a linked
//! list with a million entries), and an emptied slot frees its memory. They are chunks instead of
//! one growing queue, so no call moves or frees more than a chunk at once, and a sweep can stop
//! between two.
//!
//! Ground rule: no chunk is empty, except a single one.

use std::collections::VecDeque;

/// The most entries of a chunk.
pub(super) const CHUNK: usize = 256;

/// The number of entries for which an empty slot keeps room, so that a steady trickle of delays
/// does not allocate.
pub(super) const SPARE: usize = 8;

/// The most entries of a slot for which visiting each is cheap enough.
pub(super) const FEW: usize = 16;

/// A value and its due tick: 8 bytes + `T`, padded to the alignment of a `u64`.
pub(super) struct Entry<T> {
    pub(super) due: u64,
    pub(super) value: T,
}

type Chunk<T> = VecDeque<Entry<T>>;

/// Entries in the order of their insertion.
pub(super) struct Slot<T>(VecDeque<Chunk<T>>);

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Slot(VecDeque::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.front().is_none_or(Chunk::is_empty)
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk<T>> {
        self.0.iter()
    }

    /// Returns the earliest due tick, if the slot holds between one and [`FEW`] entries.
    pub(super) fn earliest_of_few(&self) -> Option<u64> {
        let is_few = |chunk: &&Chunk<T>| self.0.len() == 1 && chunk.len() <= FEW;
        let chunk = self.0.front().filter(is_few)?;
        chunk.iter().map(|entry| entry.due).min()
    }

    pub(super) fn push(&mut self, entry: Entry<T>) {
        match self.0.back_mut() {
            Some(last) if last.len() < CHUNK => last.push_back(entry),
            _ => self.0.push_back(Chunk::from([entry])),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Entry<T>> {
        let first = self.0.front_mut()?;
        let entry = first.pop_front();
        if first.is_empty() {
            self.tidy(0);
        }
        entry
    }

    /// Removes the entries of one chunk whose value `keep` refuses. Returns how many entries it has
    /// visited, and how many of them it kept; `None` if there is no such chunk. A chunk of which
    /// none is kept leaves its index to the next one.
    pub(super) fn retain(
        &mut self,
        index: usize,
        mut keep: impl FnMut(&T) -> bool,
    ) -> Option<(usize, usize)> {
        let chunk = self.0.get_mut(index).filter(|chunk| !chunk.is_empty())?;
        let visited = chunk.len();
        chunk.retain(|entry| keep(&entry.value));
        let kept = chunk.len();
        self.tidy(index);
        Some((visited, kept))
    }

    /// Restores the ground rule after entries were removed from this chunk, and frees memory.
    fn tidy(&mut self, index: usize) {
        let chunk = &mut self.0[index];
        let left = chunk.len();
        if chunk.capacity() > SPARE.max(4 * left) {
            chunk.shrink_to(2 * left);
        }
        if left == 0 && self.0.len() > 1 {
            self.0.remove(index);
        }
        if self.0.capacity() > 4 * self.0.len() {
            self.0.shrink_to(2 * self.0.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a slot of `entries` entries, with room for `room` of them in its first chunk.
    fn slot(entries: usize, room: usize) -> Slot<usize> {
        let mut slot = Slot(VecDeque::from([Chunk::with_capacity(room)]));
        (0..entries).for_each(|value| slot.push(Entry { due: 0, value }));
        slot
    }

    #[test]
    fn a_chunk_is_full_before_the_next_begins() {
        let slot = slot(2 * CHUNK + 1, 1);
        assert!(slot.chunks().map(Chunk::len).eq([CHUNK, CHUNK, 1]));
    }

    #[test]
    fn a_slot_that_runs_empty_keeps_room_for_a_few() {
        for (room, kept) in [(SPARE, SPARE), (SPARE + 1, 0)] {
            let mut slot = slot(1, room);
            assert!(slot.pop().is_some());
            assert_eq!(slot.0[0].capacity(), kept);
        }
    }

    #[test]
    fn a_sweep_gives_back_room_for_more_than_four_times_what_it_leaves() {
        for (room, left, kept) in [(64, 16, 64), (65, 16, 32), (64, 15, 30)] {
            let mut slot = slot(40, room);
            assert_eq!(slot.retain(0, |value| *value < left), Some((40, left)));
            assert_eq!(slot.0[0].capacity(), kept, "{left} of {room}");
        }
    }

    #[test]
    fn a_sweep_gives_back_the_room_of_chunks() {
        let mut slot = slot(21 * CHUNK, CHUNK);
        let mut index = 0;
        while let Some((_, kept)) = slot.retain(index, |value| *value < 6 * CHUNK) {
            index += usize::from(kept > 0);
        }
        assert!(slot.chunks().map(Chunk::len).eq([CHUNK; 6]));
        assert!(slot.0.capacity() <= 24);
        while slot.pop().is_some() {}
        assert!(slot.0.capacity() <= 4);
    }
}
