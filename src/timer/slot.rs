//! One slot of the wheel: a first-in first-out queue of entries, in chunks.
//!
//! Entries are appended at the tail and leave at the head, so that entries of one tick keep the order of the calls
//! wherever they wait.
//!
//! Contiguous chunks rather than links through a slab of entries: a cascade then reads and writes straight through
//! memory (at a million entries that is six times as fast), and memory goes back as a slot is emptied, even while
//! entries elsewhere stay for years. Chunks rather than one growing queue: no call ever moves or frees more than
//! a chunk at once.
//!
//! Ground rule: the first chunk is empty only when the slot is; no other chunk is ever empty.

use std::collections::VecDeque;

/// Entries of a chunk at most.
pub(super) const CHUNK: usize = 256;

/// Entries an empty slot keeps room for, so that a steady trickle of delays does not allocate.
pub(super) const SPARE: usize = 8;

/// Entries of a slot that are few enough to look at each.
pub(super) const FEW: usize = 16;

/// A value and the tick it is due at; 8 bytes + `T`, padded to the alignment of a `u64`.
pub(super) struct Entry<T> {
    pub(super) due: u64,
    pub(super) value: T,
}

type Chunk<T> = VecDeque<Entry<T>>;

/// Entries in the order they were filed.
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

    /// Entries in the slot, counted chunk by chunk.
    pub(super) fn count(&self) -> usize {
        self.chunks().map(Chunk::len).sum()
    }

    /// The earliest due tick, if the slot holds no more than [`FEW`] entries and at least one.
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

    /// Takes the first entry out.
    pub(super) fn pop(&mut self) -> Option<Entry<T>> {
        let entry = self.first.pop_front();
        if self.first.is_empty() {
            self.next_chunk();
        }
        entry
    }

    /// Takes the first entries out, at most `max`, passes each to `f`, and says how many there were.
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

    /// Drops the entries whose value `keep` refuses, and takes their number off `len`.
    ///
    /// If `keep` or a value's drop panics, the slot is sound and `len` is right nonetheless.
    pub(super) fn retain(&mut self, len: &mut usize, keep: &mut impl FnMut(&T) -> bool) {
        let before = self.count();
        let sweep = Sweep {
            slot: self,
            len,
            before,
        };
        for chunk in std::iter::once(&mut sweep.slot.first).chain(&mut sweep.slot.rest) {
            chunk.retain(|entry| keep(&entry.value));
        }
    }

    /// The chunks in order.
    pub(super) fn chunks(&self) -> impl Iterator<Item = &Chunk<T>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Goes on to the next chunk when the first has run empty; gives memory back.
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

/// A sweep over a slot; its end restores the ground rule and the count, also when the sweep panics.
struct Sweep<'a, T> {
    slot: &'a mut Slot<T>,
    len: &'a mut usize,
    before: usize,
}

impl<T> Drop for Sweep<'_, T> {
    fn drop(&mut self) {
        let slot = &mut *self.slot;
        slot.rest.retain(|chunk| !chunk.is_empty());
        slot.rest.shrink_to(2 * slot.rest.len());
        for chunk in std::iter::once(&mut slot.first).chain(&mut slot.rest) {
            let room = 2 * chunk.len();
            if chunk.capacity() > SPARE.max(2 * room) {
                chunk.shrink_to(room);
            }
        }
        if slot.first.is_empty() {
            slot.next_chunk();
        }
        *self.len -= self.before - slot.count();
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

    /// A slot of so many entries, with room for so many in its first chunk.
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
            slot.retain(&mut 40, &mut |value| *value < left);
            assert_eq!(slot.count(), left);
            assert_eq!(slot.first.capacity(), kept, "{left} of {room}");
        }
    }

    #[test]
    fn a_sweep_gives_back_the_room_of_chunks() {
        let mut slot = slot(21 * CHUNK, CHUNK);
        slot.retain(&mut (21 * CHUNK), &mut |value| *value < 6 * CHUNK);
        assert!(slot.chunks().map(Chunk::len).eq([CHUNK; 6]));
        assert_eq!(slot.rest.capacity(), 10);
    }
}
