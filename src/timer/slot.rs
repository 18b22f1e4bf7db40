//! One slot of the wheel: a first-in first-out queue of entries, in chunks.
//!
//! Entries are appended at the tail and leave at the head, so entries of one tick stay in the order
//! of the calls in every place.
//!
//! Entries are in contiguous chunks instead of a linked list through a slab: a cascade then
//! accesses memory sequentially (six times as fast with a million entries), and an emptied slot
//! frees its memory even if entries of other slots stay for years. They are in chunks instead of
//! one growing queue, so no call moves or frees more than a chunk at once.
//!
//! Ground rule: the first chunk is empty only if the slot is; no other chunk is ever empty.

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
pub(super) struct Slot<T> {
    first: Chunk<T>,
    rest: VecDeque<Chunk<T>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            first: Chunk::new(),
            rest: VecDeque::new(),
        }
    }
}

impl<T> Slot<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Returns the number of entries, counted chunk by chunk.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.chunks().map(Chunk::len).sum()
    }

    /// Returns the earliest due tick, if the slot holds between one and [`FEW`] entries.
    pub(super) fn earliest_of_few(&self) -> Option<u64> {
        if self.first.len() > FEW || !self.rest.is_empty() {
            return None;
        }
        self.first.iter().map(|entry| entry.due).min()
    }

    /// Appends `entry`.
    pub(super) fn push(&mut self, entry: Entry<T>) {
        match self.rest.back_mut() {
            None if self.first.len() < CHUNK => self.first.push_back(entry),
            Some(last) if last.len() < CHUNK => last.push_back(entry),
            _ => {
                let mut chunk = Chunk::with_capacity(CHUNK);
                chunk.push_back(entry);
                self.rest.push_back(chunk);
            }
        }
    }

    /// Removes and returns the first entry.
    pub(super) fn pop(&mut self) -> Option<Entry<T>> {
        let entry = self.first.pop_front();
        if self.first.is_empty() {
            self.next_chunk();
        }
        entry
    }

    /// Removes up to `max` entries from the head, passes each to `f`, and returns their number.
    pub(super) fn drain(&mut self, max: usize, mut f: impl FnMut(Entry<T>)) -> usize {
        let mut left = max;
        while left > 0 && !self.is_empty() {
            let count = self.first.len().min(left);
            self.first.drain(..count).for_each(&mut f);
            left -= count;
            if self.first.is_empty() {
                self.next_chunk();
            }
        }
        max - left
    }

    /// Drops the entries of one chunk whose value `keep` refuses, and subtracts their number from
    /// `len`. Returns the number of visited entries, and the chunk to continue with, if there is
    /// one.
    ///
    /// If `keep` or a value's drop panics, the slot and `len` are still consistent.
    pub(super) fn retain_chunk(
        &mut self,
        index: usize,
        len: &mut usize,
        keep: &mut impl FnMut(&T) -> bool,
    ) -> (usize, Option<usize>) {
        let Some(chunk) = self.chunk_mut(index) else {
            return (0, None);
        };
        let before = chunk.len();
        let sweep = Sweep {
            slot: self,
            len,
            index,
            before,
        };
        let mut next = index + 1;
        if let Some(chunk) = sweep.slot.chunk_mut(index) {
            chunk.retain(|entry| keep(&entry.value));
            if chunk.is_empty() {
                // The chunk is about to be removed, and the next one takes its index.
                next = index;
            }
        }
        drop(sweep);
        let more = !self.is_empty() && self.chunk_mut(next).is_some();
        (before, more.then_some(next))
    }

    fn chunk_mut(&mut self, index: usize) -> Option<&mut Chunk<T>> {
        match index {
            0 => Some(&mut self.first),
            _ => self.rest.get_mut(index - 1),
        }
    }

    /// Returns the chunks in order.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk<T>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Replaces the empty first chunk by the next one, and frees memory.
    fn next_chunk(&mut self) {
        if let Some(chunk) = self.rest.pop_front() {
            self.first = chunk;
        } else {
            self.rest = VecDeque::new();
            if self.first.capacity() > SPARE {
                self.first = Chunk::new();
            }
        }
    }
}

/// A sweep over one chunk. Its drop restores the ground rule and the count, also after a panic.
struct Sweep<'a, T> {
    slot: &'a mut Slot<T>,
    len: &'a mut usize,
    index: usize,
    before: usize,
}

impl<T> Drop for Sweep<'_, T> {
    fn drop(&mut self) {
        let slot = &mut *self.slot;
        let Some(chunk) = slot.chunk_mut(self.index) else {
            return;
        };
        let left = chunk.len();
        *self.len -= self.before - left;
        if chunk.capacity() > SPARE.max(4 * left) {
            chunk.shrink_to(2 * left);
        }
        if left == 0 && self.index == 0 {
            slot.next_chunk();
        } else if left == 0 {
            slot.rest.remove(self.index - 1);
            slot.rest.shrink_to(2 * slot.rest.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_full_before_the_next_begins() {
        let mut slot = Slot::default();
        for due in 0..=2 * CHUNK as u64 {
            slot.push(Entry { due, value: () });
        }
        assert!(slot.chunks().map(Chunk::len).eq([CHUNK, CHUNK, 1]));
    }

    /// Creates a slot of `entries` entries, with room for `room` of them in its first chunk.
    fn slot(entries: usize, room: usize) -> Slot<usize> {
        let mut slot = Slot {
            first: Chunk::with_capacity(room),
            rest: VecDeque::new(),
        };
        (0..entries).for_each(|value| slot.push(Entry { due: 0, value }));
        slot
    }

    #[test]
    fn a_slot_that_runs_empty_keeps_room_for_a_few() {
        for (room, kept) in [(SPARE, SPARE), (SPARE + 1, 0)] {
            let mut slot = slot(1, room);
            assert!(slot.pop().is_some());
            assert_eq!(slot.first.capacity(), kept);
        }
    }

    #[test]
    fn a_sweep_gives_back_room_for_more_than_four_times_what_it_leaves() {
        for (room, left, kept) in [(64, 16, 64), (65, 16, 32), (64, 15, 30)] {
            let mut slot = slot(40, room);
            slot.retain_chunk(0, &mut 40, &mut |value| *value < left);
            assert_eq!(slot.count(), left);
            assert_eq!(slot.first.capacity(), kept, "{left} of {room}");
        }
    }

    #[test]
    fn a_sweep_gives_back_the_room_of_chunks() {
        let mut slot = slot(21 * CHUNK, CHUNK);
        let (mut index, mut len) = (Some(0), 21 * CHUNK);
        while let Some(chunk) = index {
            index = slot
                .retain_chunk(chunk, &mut len, &mut |value| *value < 6 * CHUNK)
                .1;
        }
        assert_eq!(len, 6 * CHUNK);
        assert!(slot.chunks().map(Chunk::len).eq([CHUNK; 6]));
        assert!(slot.rest.capacity() <= 10);
    }
}
