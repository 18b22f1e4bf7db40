//! One level of the wheel: 64 slots, and a bitmap that says which of them hold entries.
//!
//! Slots are absolute: slot `k` of the level with shift `s` holds ticks whose bits `s..s + 6` are
//! `k`; all higher bits are those of the wheel's current tick. Nothing wraps around, so the first
//! occupied slot is the lowest set bit.
//!
//! Ground rules: only the wheel calls this module. The bit of a slot that holds an entry is set.
//! The bit of an empty slot is set only after a callback panicked; the caller that then finds the
//! slot empty calls [`Level::settle`].

use super::slot::{Entry, Slot};

/// Bits of a tick that one level resolves.
pub(super) const SLOT_BITS: u32 = 6;

/// Slots of a level.
pub(super) const SLOTS: usize = 1 << SLOT_BITS;

/// A level: 64 slots of `64^n` ticks each, for level `n`.
pub(super) struct Level<T> {
    /// The ticks of a slot, as a power of two.
    shift: u32,
    /// Bit `k` is set when slot `k` holds entries.
    occupied: u64,
    slots: [Slot<T>; SLOTS],
}

impl<T> Level<T> {
    pub(super) fn new(level: usize) -> Self {
        Level {
            shift: SLOT_BITS * u32::try_from(level).expect("there are only a few levels"),
            occupied: 0,
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }

    /// Appends `entry` to the slot of its due tick.
    pub(super) fn push(&mut self, entry: Entry<T>) {
        let index = self.index(entry.due);
        self.occupied |= 1 << index;
        self.slots[index].push(entry);
    }

    /// Returns the first tick of the first occupied slot, where `current` is the wheel's current
    /// tick.
    pub(super) fn first(&self, current: u64) -> Option<u64> {
        if self.occupied == 0 {
            return None;
        }
        let slot = u64::from(self.occupied.trailing_zeros());
        let above = self.shift + SLOT_BITS;
        Some((current >> above << above) | (slot << self.shift))
    }

    /// The slot that `tick` falls into.
    pub(super) fn slot(&self, tick: u64) -> &Slot<T> {
        &self.slots[self.index(tick)]
    }

    /// The slot that `tick` falls into.
    pub(super) fn slot_mut(&mut self, tick: u64) -> &mut Slot<T> {
        let index = self.index(tick);
        &mut self.slots[index]
    }

    /// Returns whether the slot that `tick` falls into is marked as occupied.
    pub(super) fn is_occupied(&self, tick: u64) -> bool {
        self.occupied & (1 << self.index(tick)) != 0
    }

    /// Clears the bit of the slot that `tick` falls into if the slot is empty, and returns whether
    /// it is.
    pub(super) fn settle(&mut self, tick: u64) -> bool {
        let index = self.index(tick);
        let empty = self.slots[index].is_empty();
        if empty {
            self.occupied &= !(1 << index);
        }
        empty
    }

    /// Returns the number of the first slot that is marked as occupied, from `number` on.
    pub(super) fn occupied_from(&self, number: u64) -> Option<u64> {
        let rest = self.occupied.checked_shr(number as u32)?;
        (rest != 0).then(|| number + u64::from(rest.trailing_zeros()))
    }

    /// Returns the slot with this number.
    pub(super) fn slot_at(&mut self, number: u64) -> &mut Slot<T> {
        &mut self.slots[number as usize]
    }

    /// Like [`settle`](Self::settle), for the slot with this number.
    pub(super) fn settle_at(&mut self, number: u64) {
        self.settle(number << self.shift);
    }

    fn index(&self, tick: u64) -> usize {
        // The remainder is below 64.
        #[expect(clippy::cast_possible_truncation)]
        let index = (tick >> self.shift) as usize % SLOTS;
        index
    }
}
