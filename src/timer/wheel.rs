//! The hierarchical timing wheel: values that wait for a tick, handed out in order.
//!
//! Pure: no clock, no thread, no lock. Time is a tick count that the caller passes in; what a tick lasts is the
//! caller's business. One owner has it `&mut`.
//!
//! # The law
//!
//! [`Wheel::poll`] hands out the entries whose due tick is at or before `now`, in order of due tick and, within a
//! tick, in order of the calls of [`Wheel::insert`]. That holds for every sequence of calls: polls bounded by a
//! budget with inserts between them, entries already late when they are inserted, jumps of any size, a `now` that
//! goes backwards.
//!
//! # Where an entry waits
//!
//! `current` is the tick the wheel has come to: every tick before it is finished. For an entry due at `due`:
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
//! | `outer` | 36..64 | 2^36 ticks | for ever |
//!
//! `late` and `outer` are maps from tick or span to slot, since neither has a bound; both are empty or tiny in
//! ordinary use. All that waits in a place comes before all that waits in the places below it in the table, so what
//! comes next is the first slot of the first place that holds any. A level 0 slot (or one of `late`) is handed out.
//! Any other is *cascaded* when `current` reaches its first tick: its entries are filed again, by the rule above, and
//! end in a place further up. An entry cascades at most six times, each time appended in the order it left.
//!
//! # Stopping half-way
//!
//! A cascade counts against the budget of `poll`, so it can stop in the middle of a slot. Then `draining` is the level
//! of that slot and `current` its first tick. Until the slot is empty, nothing after it is handed out, and an insert
//! whose tick lies in it goes to its tail rather than further up, where it would overtake earlier calls. An insert
//! for a tick before it goes to `late`, which comes first anyway.
//!
//! # Invariants
//!
//! 1. An entry in `late` is due before `current`, any other at or after it.
//! 2. An entry in a level or in `outer` is where the table says, unless it waits in the slot being drained.
//! 3. `draining` is not 0 only while that slot is marked as occupied.
//! 4. `len` is the number of entries, also after a callback panicked.

use std::collections::BTreeMap;

use super::level::{Level, SLOT_BITS};
use super::slot::{Entry, Slot};

#[cfg(test)]
mod tests;

/// Levels of 64 slots.
const LEVELS: usize = 6;

/// Number of `outer` in the order of places.
const OUTER: usize = LEVELS;

/// Bits of a tick below its span, the unit of `outer`.
const SPAN_BITS: u32 = SLOT_BITS * 6;

/// Whether a [`Wheel::poll`] got through.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Polled {
    /// Everything due is handed out; the next poll is needed at [`Wheel::next_wake`].
    CaughtUp,
    /// The budget ran out: poll again, without waiting.
    More,
}

/// Values of type `T` that wait for a tick.
///
/// An entry takes 8 bytes + `T`. It waits in a queue of its slot, which grows by doubling up to 256 entries and by
/// chunks of 256 beyond. A wheel that was never used takes nothing beside itself, and from its first insert on 24 KiB;
/// at most 8 entries of room a slot (48 KiB for a `T` of 8 bytes) stay allocated after a burst.
pub(crate) struct Wheel<T> {
    /// Every tick before this one is finished.
    current: u64,
    /// The level (or [`OUTER`]) whose slot of `current` is half cascaded; 0 when none is.
    draining: usize,
    len: usize,
    /// Due tick to entries, for entries inserted after their tick was finished.
    late: BTreeMap<u64, Slot<T>>,
    /// So many as [`LEVELS`]; none before the first insert.
    levels: Vec<Level<T>>,
    /// Span (`due >> 36`) to entries, beyond the last level.
    outer: BTreeMap<u64, Slot<T>>,
}

impl<T> Wheel<T> {
    /// An empty wheel whose time begins at `start_tick`.
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

    /// Entries waiting.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `value`, to be handed out at `due_tick`; at the next poll if that has passed.
    ///
    /// Amortised O(1); O(log n) in the number of distinct ticks or spans waiting beside it for an entry that is late
    /// or more than 2^36 ticks off.
    pub(crate) fn insert(&mut self, due_tick: u64, value: T) {
        if self.levels.is_empty() {
            // One by one: all of them at once would take 24 KiB of stack on the way to the heap.
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
    /// Does `budget` units of work at most, each of them an entry handed out or moved one level down, and says
    /// whether there is more to do at `now_tick`. A budget of 0 does nothing but say so. An entry costs 7 units at
    /// most between its insert and its end, so polls with a budget above 0 always get there.
    ///
    /// A `now_tick` earlier than before never moves the wheel back: it hands out what is due even by that time, which
    /// after a poll that has caught up can only be entries inserted since.
    ///
    /// If `fire` panics, its entry is gone and the others wait as before.
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
        // No slot begins at or before `now_tick`, so every entry stays where the table wants it.
        self.current = self.current.max(now_tick);
        Polled::CaughtUp
    }

    /// The tick at which to poll next; `None` when empty.
    ///
    /// Never later than the earliest due tick, and equal to it if that is in the current 64 ticks, or past, or if few
    /// entries share its slot. Otherwise it is the first tick of a slot with more than 16 entries, to be cascaded: an
    /// owner that polls at each tick so named wakes 7 times an entry at the very most, and hardly ever more than
    /// once. O(1).
    pub(crate) fn next_wake(&self) -> Option<u64> {
        // A panic may have left an empty slot marked as occupied.
        if self.is_empty() {
            return None;
        }
        let (start, place) = self.next()?;
        if self.draining != 0 {
            // Entries that were moved already may be earlier than those left in the slot.
            return Some(start);
        }
        let earliest = match place {
            Place::Late | Place::Level(0) => Some(start),
            Place::Level(level) => self.levels[level].slot(start).earliest_of_few(),
            Place::Outer => self.outer[&(start >> SPAN_BITS)].earliest_of_few(),
        };
        Some(earliest.unwrap_or(start))
    }

    /// Drops the entries whose value `keep` refuses, and says how many; the others keep their order.
    ///
    /// Visits every entry, in no particular order. If `keep` or a value's drop panics, the entries not yet visited
    /// stay.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) -> usize {
        let before = self.len;
        let len = &mut self.len;
        let mut sweep = |slot: &mut Slot<T>| slot.retain(len, &mut keep);
        for slots in [&mut self.late, &mut self.outer] {
            slots.retain(|_, slot| {
                sweep(slot);
                !slot.is_empty()
            });
        }
        for level in self.levels.iter_mut() {
            level.sweep(&mut sweep);
        }
        let drained = match self.levels.get(self.draining) {
            Some(level) => !level.is_occupied(self.current),
            None => !self.outer.contains_key(&(self.current >> SPAN_BITS)),
        };
        if drained {
            self.draining = 0;
        }
        before - self.len
    }

    /// Calls `f` with the due tick and value of every entry, in order, due or not; the wheel is empty afterwards and
    /// its time is where it was.
    pub(crate) fn take_all(&mut self, f: impl FnMut(u64, T)) {
        let current = self.current;
        // Six cascades and a hand-out for each entry cannot exhaust this budget.
        let polled = self.poll(u64::MAX, usize::MAX, f);
        debug_assert_eq!(polled, Polled::CaughtUp);
        self.current = current;
    }

    /// The place of what comes next, and the first tick of its first slot.
    fn next(&self) -> Option<(u64, Place)> {
        if let Some((&due, _)) = self.late.first_key_value() {
            return Some((due, Place::Late));
        }
        // Levels below the one being drained have to wait for it.
        for (level, slots) in self.levels.iter().enumerate().skip(self.draining) {
            if let Some(start) = slots.first(self.current) {
                return Some((start, Place::Level(level)));
            }
        }
        let (&span, _) = self.outer.first_key_value()?;
        Some((span << SPAN_BITS, Place::Outer))
    }

    /// Hands out at most `budget` entries of the earliest late tick.
    fn fire_late(&mut self, budget: usize, fire: impl FnMut(u64, T)) -> usize {
        let Some(mut earliest) = self.late.first_entry() else {
            return 0;
        };
        let fired = hand_out(earliest.get_mut(), &mut self.len, budget, fire);
        if earliest.get().is_empty() {
            earliest.remove();
        }
        fired
    }

    /// Hands out at most `budget` entries of the level 0 slot of `tick`.
    fn fire_slot(&mut self, tick: u64, budget: usize, fire: impl FnMut(u64, T)) -> usize {
        self.current = tick;
        let level = &mut self.levels[0];
        let fired = hand_out(level.slot_mut(tick), &mut self.len, budget, fire);
        level.settle(tick);
        fired
    }

    /// Files at most `budget` entries of the slot of `level` that begins at `start` again, further down.
    fn cascade(&mut self, level: usize, start: u64, budget: usize) -> usize {
        self.current = start;
        let (below, rest) = self.levels.split_at_mut(level);
        let moved = file_again(rest[0].slot_mut(start), below, start, budget);
        self.draining = if rest[0].settle(start) { 0 } else { level };
        moved
    }

    /// Files at most `budget` entries of the first span of `outer`, which begins at `start`, in the levels.
    fn cascade_outer(&mut self, start: u64, budget: usize) -> usize {
        self.current = start;
        let Some(mut span) = self.outer.first_entry() else {
            return 0;
        };
        let moved = file_again(span.get_mut(), &mut self.levels[..], start, budget);
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

/// The level for a tick at or after `current`; [`OUTER`] or more beyond the last.
fn level_of(current: u64, due: u64) -> usize {
    // A difference in the lowest six bits, or none, is level 0.
    let differing = (current ^ due) | ((1 << SLOT_BITS) - 1);
    (differing.ilog2() / SLOT_BITS) as usize
}

/// Hands out at most `budget` entries from the head of `slot`, and says how many.
fn hand_out<T>(
    slot: &mut Slot<T>,
    len: &mut usize,
    budget: usize,
    mut fire: impl FnMut(u64, T),
) -> usize {
    let mut fired = 0;
    // Popped one at a time, since `fire` may panic and the rest must stay.
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

/// Moves at most `budget` entries from the head of `slot` to `levels`, as filed at tick `current`, and says how many.
fn file_again<T>(
    slot: &mut Slot<T>,
    levels: &mut [Level<T>],
    current: u64,
    budget: usize,
) -> usize {
    slot.drain(budget, |entry| {
        levels[level_of(current, entry.due)].push(entry);
    })
}
