//! A hierarchical timing wheel (Varghese and Lauck, 1987): values that wait for a tick, and fire in
//! order.
//!
//! The wheel has no clock, thread or lock. Time is a tick count that the caller passes in; the
//! caller decides how long a tick is. Its one owner has it as `&mut`.
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
//! | level 3 | 18..24 | 2^18 ticks | 4.6 h |
//! | level 4 | 24..30 | 2^24 ticks | 12 days |
//! | level 5 | 30..36 | 2^30 ticks | 2.2 years |
//! | `outer` | 36..64 | 2^36 ticks | unlimited |
//!
//! `late` and `outer` are maps from tick or span to slot, since neither has a bound; both are empty
//! or tiny in ordinary use. All entries of a place are due before all entries of the places below
//! it in the table, so the next slot is the first slot of the first place that holds entries. The
//! entries of a level 0 slot (or of a slot of `late`) fire. Any other slot is *cascaded* when
//! `current` reaches its first tick: its entries are reinserted by the rule above, into a place
//! further up. An entry cascades at most six times, and keeps its order each time.
//!
//! # Stopping half-way
//!
//! A cascade counts against the budget of `poll`, so it can stop in the middle of a slot. Then
//! `draining` is the level of that slot and `current` its first tick. Until the slot is empty,
//! nothing after it fires, and an insert with a tick of that slot goes to its tail, because further
//! up it would overtake earlier calls. An insert for a tick before it goes to `late`, which fires
//! first anyway.
//!
//! # Invariants
//!
//! 1. An entry in `late` is due before `current`, any other at or after it.
//! 2. An entry in a level or in `outer` is in the place that the table gives, unless it is in the
//!    slot being drained.
//! 3. `draining` is not 0 only while that slot is marked as occupied.
//! 4. `len` is the number of entries, even after a callback panicked.

use std::collections::BTreeMap;

use super::level::{Level, SLOT_BITS};
use super::slot::{Entry, Slot};
pub(crate) use sweep::Cursor;

mod sweep;
#[cfg(test)]
mod tests;

/// Levels of 64 slots.
const LEVELS: usize = 6;

/// The number of `outer` in the order of places.
const OUTER: usize = LEVELS;

/// Bits of a tick below its span, the unit of `outer`.
const SPAN_BITS: u32 = SLOT_BITS * 6;

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
/// chunks of 256 beyond. A wheel allocates nothing until its first insert, and 24 KiB then. After a
/// burst, room for at most 8 entries per slot (48 KiB for a `T` of 8 bytes) stays allocated.
pub(crate) struct Wheel<T> {
    /// Every tick before this one is finished.
    current: u64,
    /// The level (or [`OUTER`]) whose slot of `current` is partly cascaded; 0 if none is.
    draining: usize,
    len: usize,
    /// Due tick to entries, for entries inserted after their tick was finished.
    late: BTreeMap<u64, Slot<T>>,
    /// [`LEVELS`] levels; empty before the first insert.
    levels: Vec<Level<T>>,
    /// Span (`due >> 36`) to entries, beyond the last level.
    outer: BTreeMap<u64, Slot<T>>,
}

impl<T> Wheel<T> {
    /// Creates an empty wheel whose time begins at `start_tick`.
    pub(crate) fn new(start_tick: u64) -> Self {
        Wheel {
            current: start_tick,
            draining: 0,
            len: 0,
            late: BTreeMap::new(),
            levels: Vec::new(),
            outer: BTreeMap::new(),
        }
    }

    /// Returns the number of waiting entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no entry is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `value`, to fire at `due_tick`, or at the next poll if that tick has passed.
    ///
    /// Amortised O(1). For an entry that is late or more than 2^36 ticks away, O(log n) in the
    /// number of distinct ticks or spans in the same place.
    pub(crate) fn insert(&mut self, due_tick: u64, value: T) {
        if self.levels.is_empty() {
            // One at a time: all of them at once would take 24 KiB of stack on the way to the heap.
            self.levels.extend((0..LEVELS).map(Level::new));
        }
        let entry = Entry {
            due: due_tick,
            value,
        };
        if due_tick < self.current {
            self.late.entry(due_tick).or_default().push(entry);
        } else {
            let level = level_of(self.current, due_tick).max(self.draining);
            if let Some(level) = self.levels.get_mut(level) {
                level.push(entry);
            } else {
                let span = due_tick >> SPAN_BITS;
                self.outer.entry(span).or_default().push(entry);
            }
        }
        self.len += 1;
    }

    /// Calls `fire` with the due tick and value of entries due at or before `now_tick`, in order.
    ///
    /// Does at most `budget` units of work, each of them an entry that fires or moves one level
    /// down, and returns whether there is more to do at `now_tick`. With a budget of 0, it only
    /// returns that. An entry costs at most 7 units between its insert and its firing, so repeated
    /// polls with a budget above 0 always catch up.
    ///
    /// A `now_tick` earlier than before does not move the wheel back: the poll fires what is due at
    /// that earlier time, which after a poll that caught up can only be entries inserted since.
    ///
    /// If `fire` panics, its entry is removed and the others wait as before.
    pub(crate) fn poll(
        &mut self,
        now_tick: u64,
        budget: usize,
        mut fire: impl FnMut(u64, T),
    ) -> Polled {
        let mut left = budget;
        while let Some((start, place)) = self.next() {
            if start > now_tick {
                break;
            }
            if left == 0 {
                return Polled::More;
            }
            left -= match place {
                Place::Late => self.fire_late(left, &mut fire),
                Place::Level(0) => self.fire_slot(start, left, &mut fire),
                Place::Level(level) => self.cascade(level, start, left),
                Place::Outer => self.cascade_outer(start, left),
            };
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
    /// these ticks wakes at most 7 times per entry, and rarely more than once. O(1).
    pub(crate) fn next_wake(&self) -> Option<u64> {
        // A panic may have left an empty slot marked as occupied.
        if self.is_empty() {
            return None;
        }
        let (start, place) = self.next()?;
        if self.draining != 0 {
            // Entries that were already moved may be due before those left in the slot.
            return Some(start);
        }
        let earliest = match place {
            Place::Late | Place::Level(0) => Some(start),
            Place::Level(level) => self.levels[level].slot(start).earliest_of_few(),
            Place::Outer => self.outer[&(start >> SPAN_BITS)].earliest_of_few(),
        };
        Some(earliest.unwrap_or(start))
    }

    /// Removes every entry, due or not, and calls `f` with its due tick and value, in order. The
    /// wheel's time does not change.
    pub(crate) fn take_all(&mut self, f: impl FnMut(u64, T)) {
        let current = self.current;
        // Six cascades and the firing of each entry cannot exhaust this budget.
        let polled = self.poll(u64::MAX, usize::MAX, f);
        debug_assert_eq!(polled, Polled::CaughtUp);
        self.current = current;
    }

    /// Returns the place of the next slot, and that slot's first tick.
    fn next(&self) -> Option<(u64, Place)> {
        if let Some((&due, _)) = self.late.first_key_value() {
            return Some((due, Place::Late));
        }
        // The levels before the one being drained wait for it.
        for (level, slots) in self.levels.iter().enumerate().skip(self.draining) {
            if let Some(start) = slots.first(self.current) {
                return Some((start, Place::Level(level)));
            }
        }
        let (&span, _) = self.outer.first_key_value()?;
        Some((span << SPAN_BITS, Place::Outer))
    }

    /// Fires at most `budget` entries of the earliest late tick.
    fn fire_late(&mut self, budget: usize, fire: impl FnMut(u64, T)) -> usize {
        let Some(mut earliest) = self.late.first_entry() else {
            return 0;
        };
        let fired = fire_entries(earliest.get_mut(), &mut self.len, budget, fire);
        if earliest.get().is_empty() {
            earliest.remove();
        }
        fired
    }

    /// Fires at most `budget` entries of the level 0 slot of `tick`.
    fn fire_slot(&mut self, tick: u64, budget: usize, fire: impl FnMut(u64, T)) -> usize {
        self.current = tick;
        let level = &mut self.levels[0];
        let fired = fire_entries(level.slot_mut(tick), &mut self.len, budget, fire);
        level.settle(tick);
        fired
    }

    /// Reinserts at most `budget` entries of the slot of `level` that begins at `start` into lower
    /// levels.
    fn cascade(&mut self, level: usize, start: u64, budget: usize) -> usize {
        self.current = start;
        let (below, rest) = self.levels.split_at_mut(level);
        let moved = reinsert(rest[0].slot_mut(start), below, start, budget);
        self.draining = if rest[0].settle(start) { 0 } else { level };
        moved
    }

    /// Reinserts at most `budget` entries of the first span of `outer`, which begins at `start`,
    /// into the levels.
    fn cascade_outer(&mut self, start: u64, budget: usize) -> usize {
        self.current = start;
        let Some(mut span) = self.outer.first_entry() else {
            return 0;
        };
        let moved = reinsert(span.get_mut(), &mut self.levels[..], start, budget);
        self.draining = if span.get().is_empty() {
            span.remove();
            0
        } else {
            OUTER
        };
        moved
    }
}

/// Where a slot is.
enum Place {
    Late,
    Level(usize),
    Outer,
}

/// Returns the level for a tick at or after `current`; [`OUTER`] or more beyond the last.
fn level_of(current: u64, due: u64) -> usize {
    // A difference in the lowest six bits, or none, is level 0.
    let differing = (current ^ due) | ((1 << SLOT_BITS) - 1);
    (differing.ilog2() / SLOT_BITS) as usize
}

/// Fires at most `budget` entries from the head of `slot`, and returns their number.
fn fire_entries<T>(
    slot: &mut Slot<T>,
    len: &mut usize,
    budget: usize,
    mut fire: impl FnMut(u64, T),
) -> usize {
    let mut fired = 0;
    // Pops one entry at a time, since `fire` may panic and the others must stay.
    while fired < budget {
        let Some(Entry { due, value }) = slot.pop() else {
            break;
        };
        *len -= 1;
        fired += 1;
        fire(due, value);
    }
    fired
}

/// Moves at most `budget` entries from the head of `slot` to `levels`, by the rule for tick
/// `current`, and returns their number.
fn reinsert<T>(slot: &mut Slot<T>, levels: &mut [Level<T>], current: u64, budget: usize) -> usize {
    slot.drain(budget, |entry| {
        levels[level_of(current, entry.due)].push(entry);
    })
}
