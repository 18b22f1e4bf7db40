//! A hierarchical timing wheel (Varghese and Lauck, 1987): values that wait for a tick, and fire in
//! order.
//!
//! The wheel has no clock, thread or lock. Time is a tick count that the caller passes in; the
//! caller decides how long a tick is. Its one owner has it as `&mut`. No callback may panic.
//!
//! # The order
//!
//! [`Wheel::poll`] fires the entries whose due tick is at or before `now`, in order of due tick
//! and, within a tick, in order of the calls of [`Wheel::insert`]. That holds for every sequence of
//! calls: polls bounded by a budget with inserts between them, entries that are already late when
//! inserted, jumps of any size, and a `now` that goes backwards.
//!
//! # Where an entry waits
//!
//! `current` is the wheel's current tick: every tick before it is finished. An entry due at `due`
//! waits in this place:
//!
//! | place | when | resolution | at a tick of 1 ms, entries due within |
//! | --- | --- | --- | --- |
//! | `late` | `due < current` | a tick | the past |
//! | level 0 | `due` and `current` differ in bits 0..6 at most | a tick | 64 ms |
//! | level 1 | highest differing bit in 6..12 | 64 ticks | 4 s |
//! | level 2 | 12..18 | 4096 ticks | 4 min |
//! | level `n` | `6n..6n + 6` | `64^n` ticks | |
//! | level 7 | 42..48 | 2^42 ticks | 8900 years |
//!
//! Slots are absolute: slot `k` of level `n` holds ticks whose bits `6n..6n + 6` are `k`, and whose
//! higher bits are those of `current`. Nothing wraps around, so the first occupied slot of a level
//! is the lowest set bit of its bitmap.
//!
//! All entries of a place are due before all entries of the places below it in the table, so the
//! next slot is the first slot of the first place that holds entries. The entries of a level 0 slot
//! fire. Any other slot is *cascaded* when `current` reaches its first tick: its entries are
//! reinserted by the rule above, into a lower level. An entry cascades at most seven times, and
//! keeps its order each time.
//!
//! # Stopping half-way
//!
//! A cascade counts against the budget of `poll`, so it can stop in the middle of a slot. Then
//! `draining` is the level of that slot and `current` its first tick. Until the slot is empty,
//! nothing after it fires, and an insert with a tick of that slot goes to its tail, because in a
//! lower level it would overtake earlier calls. An insert for a tick before it goes to `late`,
//! which fires first anyway.
//!
//! # Invariants
//!
//! 1. An entry in `late` is due before `current`, any other at or after it.
//! 2. An entry in a level is in the slot that the table gives, unless it is in the slot being
//!    drained.
//! 3. `draining` is not 0 only while that slot holds entries.
//! 4. A bit of `occupied` is set exactly while its slot holds entries.

use std::collections::BTreeMap;

use super::slot::{Entry, Slot};

#[cfg(test)]
mod tests;

/// Bits of a tick that one level resolves.
const SLOT_BITS: usize = 6;

/// Slots of a level.
const SLOTS: usize = 1 << SLOT_BITS;

/// Levels: all that a tick of 48 bits needs.
const LEVELS: usize = 8;

/// The latest tick.
const LAST: u64 = (1 << (LEVELS * SLOT_BITS)) - 1;

/// The result of a [`Wheel::poll`].
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    /// Everything due has fired; the next poll is needed at [`Wheel::next_wake`].
    CaughtUp,
    /// The budget ran out: poll again, without waiting.
    More,
}

/// Values of type `T` that wait for a tick.
///
/// An entry takes 8 bytes + `T`. The queue of a slot grows by doubling up to 256 entries, and by
/// chunks of up to 256 beyond. A wheel allocates nothing until its first insert, and 16 KiB then.
/// After a burst, room for at most 8 entries stays allocated for each slot, and 128 bytes for its list
/// of chunks.
pub(crate) struct Wheel<T> {
    /// Every tick before this one is finished.
    current: u64,
    /// The level whose slot of `current` is partly cascaded; 0 if none is.
    draining: usize,
    len: usize,
    /// Entries inserted after their tick was finished, by due tick and call. There is hardly ever
    /// one.
    late: BTreeMap<(u64, u64), T>,
    /// The number of late inserts.
    late_calls: u64,
    /// A bit for each slot of each level.
    occupied: [u64; LEVELS],
    /// The slots of level 0, those of level 1, and so on; empty before the first insert.
    slots: Vec<Slot<T>>,
    /// Where the sweep under way continues.
    sweeping: Option<Cursor>,
}

/// The position of a sweep.
#[derive(Default)]
struct Cursor {
    slot: usize,
    chunk: usize,
}

impl<T> Wheel<T> {
    /// Creates an empty wheel whose time begins at `start_tick`.
    pub(crate) fn new(start_tick: u64) -> Self {
        Wheel {
            current: start_tick,
            draining: 0,
            len: 0,
            late: BTreeMap::new(),
            late_calls: 0,
            occupied: [0; LEVELS],
            slots: Vec::new(),
            sweeping: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds `value`, to fire at `due_tick`, at most 2^48 - 1, or at the next poll if that tick has
    /// passed.
    ///
    /// Amortised O(1); for a late entry O(log n) in the number of late entries.
    pub(crate) fn insert(&mut self, due_tick: u64, value: T) {
        debug_assert!(due_tick <= LAST, "due {due_tick}");
        self.len += 1;
        if due_tick < self.current {
            self.late.insert((due_tick, self.late_calls), value);
            self.late_calls += 1;
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(LEVELS * SLOTS, Slot::new);
        }
        let entry = Entry {
            due: due_tick,
            value,
        };
        self.file(level_of(self.current, due_tick).max(self.draining), entry);
    }

    /// Calls `fire` with the due tick and value of entries due at or before `now_tick`, in order.
    ///
    /// Does at most `budget` units of work, each of them an entry that fires or moves to a lower
    /// level, and returns whether there is more to do at `now_tick`. With a budget of 0, it only
    /// returns that. An entry costs at most 8 units between its insert and its firing, so repeated
    /// polls with a budget above 0 always catch up.
    ///
    /// A `now_tick` earlier than before does not move the wheel back: the poll fires what is due at
    /// that earlier time, which after a poll that caught up can only be entries inserted since.
    pub(crate) fn poll(
        &mut self,
        now_tick: u64,
        budget: usize,
        mut fire: impl FnMut(u64, T),
    ) -> Polled {
        let mut left = budget;
        while let Some((start, level)) = self.next() {
            if start > now_tick {
                break;
            }
            if left == 0 {
                return Polled::More;
            }
            if let Some(level) = level {
                left -= self.empty_slot(level, start, left, &mut fire);
            } else if let Some(((due, _), value)) = self.late.pop_first() {
                self.len -= 1;
                left -= 1;
                fire(due, value);
            }
        }
        // No slot begins at or before `now_tick`, so every entry stays in the place that the table
        // gives.
        self.current = self.current.max(now_tick);
        Polled::CaughtUp
    }

    /// Returns the tick at which to poll next; `None` if the wheel is empty.
    ///
    /// It is never later than the earliest due tick, and equal to it if that tick is in the current
    /// 64 ticks, or has passed, or if few entries share its slot. Otherwise it is the first tick of
    /// a slot with more than 16 entries, which the poll cascades. An owner that polls at each of
    /// these ticks wakes at most 8 times per entry, and rarely more than once. O(1).
    pub(crate) fn next_wake(&self) -> Option<u64> {
        let (start, level) = self.next()?;
        // While a slot is drained, entries that were already moved may be due before those left.
        let earliest = level
            .filter(|_| self.draining == 0)
            .and_then(|level| self.slots[slot_of(level, start)].earliest_of_few());
        Some(earliest.unwrap_or(start))
    }

    /// Removes every entry, due or not, and calls `f` with its due tick and value, in order. The
    /// wheel's time does not change.
    pub(crate) fn take_all(&mut self, f: impl FnMut(u64, T)) {
        let current = self.current;
        // The cascades and the firing of each entry cannot exhaust this budget.
        let polled = self.poll(u64::MAX, usize::MAX, f);
        debug_assert_eq!(polled, Polled::CaughtUp);
        self.current = current;
    }

    /// Returns whether a [sweep](Self::sweep) has stopped before the end.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweeping.is_some()
    }

    /// Drops entries whose value `keep` refuses, until it has visited `budget` slots and entries,
    /// or up to a chunk more. The other entries keep their order. Returns whether it has reached
    /// the end; the next call continues where this one stops.
    ///
    /// Polls and inserts in between move entries, so a sweep that stops in between may miss some.
    /// It leaves out late entries: the next poll fires them.
    pub(crate) fn sweep(&mut self, budget: usize, mut keep: impl FnMut(&T) -> bool) -> bool {
        let mut at = self.sweeping.take().unwrap_or_default();
        let mut visited = 0;
        while at.slot < self.slots.len() {
            if visited >= budget {
                self.sweeping = Some(at);
                return false;
            }
            visited += 1;
            if let Some((seen, kept)) = self.slots[at.slot].retain(at.chunk, &mut keep) {
                self.len -= seen - kept;
                self.restore(at.slot);
                visited += seen;
                at.chunk += usize::from(kept > 0);
            } else {
                at.slot += 1;
                at.chunk = 0;
            }
        }
        true
    }

    /// Drops every entry whose value `keep` refuses.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let before = self.late.len();
        self.late.retain(|_, value| keep(value));
        self.len -= before - self.late.len();
        self.sweeping = None;
        self.sweep(usize::MAX, keep);
    }

    /// Returns the first tick of the next slot, and its level; `None` as the level is `late`.
    fn next(&self) -> Option<(u64, Option<usize>)> {
        if let Some((&(due, _), _)) = self.late.first_key_value() {
            return Some((due, None));
        }
        // The levels before the one being drained wait for it.
        let level = (self.draining..LEVELS).find(|&level| self.occupied[level] != 0)?;
        let slot = u64::from(self.occupied[level].trailing_zeros());
        let (shift, above) = (SLOT_BITS * level, SLOT_BITS * (level + 1));
        let start = (self.current >> above << above) | (slot << shift);
        Some((start, Some(level)))
    }

    /// Takes at most `budget` entries from the head of the slot of `level` that begins at `start`.
    /// Fires those of level 0, and reinserts others into lower levels. Returns their number.
    fn empty_slot(
        &mut self,
        level: usize,
        start: u64,
        budget: usize,
        mut fire: impl FnMut(u64, T),
    ) -> usize {
        let slot = slot_of(level, start);
        self.current = start;
        self.draining = level;
        let mut taken = 0;
        while taken < budget
            && let Some(entry) = self.slots[slot].pop()
        {
            taken += 1;
            if level == 0 {
                self.len -= 1;
                fire(entry.due, entry.value);
            } else {
                self.file(level_of(start, entry.due), entry);
            }
        }
        self.restore(slot);
        taken
    }

    /// Appends an entry to its slot of `level`.
    fn file(&mut self, level: usize, entry: Entry<T>) {
        let slot = slot_of(level, entry.due);
        self.occupied[level] |= 1 << (slot % SLOTS);
        self.slots[slot].push(entry);
    }

    /// Restores the invariants after entries were removed from this slot.
    fn restore(&mut self, slot: usize) {
        if self.slots[slot].is_empty() {
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
            if slot == slot_of(self.draining, self.current) {
                self.draining = 0;
            }
        }
    }
}

/// Returns the level for a tick at or after `current`.
fn level_of(current: u64, due: u64) -> usize {
    // A difference in the lowest six bits, or none, is level 0.
    let differing = (current ^ due) | (SLOTS as u64 - 1);
    differing.ilog2() as usize / SLOT_BITS
}

/// Returns the slot of `level` that `tick` falls into.
fn slot_of(level: usize, tick: u64) -> usize {
    SLOTS * level + (tick >> (SLOT_BITS * level)) as usize % SLOTS
}
