//! One shard of the counts: a seat for one key, and two tables for more.
//!
//! ```text
//!     record --> seat, if it is free and the key is in no table
//!            \-> young --turn--> old --turn--> freed as a whole
//!                  ^--- record ---'
//! ```
//!
//! Few keys fail at a time, and they are spread over many shards. The seat is in the cache line of the
//! shard's lock: most calls touch that line and no other.
//!
//! Ground rules: a print is in one of the three places at most; and the one that is on the seat, or was last, is in
//! no table. (It comes into a table only while another is on the seat, and onto the seat only if it is in no
//! table.) Nobody walks a table.
//!
//! A thread may be held up between the clock and the lock. It turns back no time: a place keeps the latest
//! that was recorded there. So what is idle by the times in here is idle.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use super::print::{Identity, Print};

/// An emptied table that has room for more than this is given back.
pub(super) const KEPT_CAPACITY: usize = 64;

/// The seat comes first, so that it is beside the lock, which is before the shard.
#[derive(Default)]
#[repr(C)]
pub(super) struct Shard {
    seat: Seat,
    tables: Tables,
}

#[derive(Default)]
struct Seat {
    print: Print,
    /// When the key last failed.
    last: u64,
    /// 0: the seat is free.
    count: u32,
    /// Whether there are keys in the tables.
    others: bool,
}

#[derive(Default)]
struct Tables {
    young: Table,
    old: Table,
    /// When `young` last became `old`.
    turned: u64,
    /// When a key in here last failed.
    latest: u64,
}

type Table = HashMap<Print, Failures, BuildHasherDefault<Identity>>;

#[derive(Clone, Copy)]
struct Failures {
    /// When the key last failed, in nanoseconds.
    last: u64,
    count: u32,
}

impl Shard {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.seat.count == 0 && !self.seat.others
    }

    /// How many keys take up space.
    pub(super) fn tracked(&self) -> usize {
        self.tables.len() + usize::from(self.seat.count > 0)
    }

    /// Records a failure at the time `now`, and returns how many there were before it.
    #[inline]
    pub(super) fn record(&mut self, print: Print, now: u64, span: u64) -> u32 {
        let seated = self.seat.valid(now, span);
        if self.seat.print == print {
            self.seat.set(seated, now);
            return seated;
        }
        if seated == 0 && !self.seat.others {
            self.seat.print = print;
            self.seat.set(0, now);
            return 0;
        }
        self.record_among_others(print, now, span)
    }

    #[inline(never)]
    fn record_among_others(&mut self, print: Print, now: u64, span: u64) -> u32 {
        self.tables.turn_if_due(now, span);
        let seat_is_free = self.seat.valid(now, span) == 0;
        let before = self.tables.record(print, now, span, seat_is_free);
        self.seat.others = self.tables.len() > 0;
        before.unwrap_or_else(|| {
            self.seat.print = print;
            self.seat.set(0, now);
            0
        })
    }

    /// How many failures there were.
    pub(super) fn count(&self, print: Print, now: u64, span: u64) -> u32 {
        if self.seat.print == print {
            self.seat.valid(now, span)
        } else {
            let failures = self.tables.get(print);
            failures.map_or(0, |failures| failures.valid(now, span))
        }
    }

    #[inline]
    pub(super) fn forget(&mut self, print: Print) {
        if self.seat.print == print {
            self.seat.count = 0;
        } else if self.seat.others {
            self.forget_among_others(print);
        }
    }

    #[inline(never)]
    fn forget_among_others(&mut self, print: Print) {
        self.tables.forget(print);
        self.seat.others = self.tables.len() > 0;
    }

    /// Frees the places of keys that are known to be idle.
    pub(super) fn turn_if_due(&mut self, now: u64, span: u64) {
        self.seat.count = self.seat.valid(now, span);
        self.tables.turn_if_due(now, span);
        self.seat.others = self.tables.len() > 0;
    }

    #[cfg(test)]
    pub(super) const SEAT_BYTES: usize = size_of::<Seat>();

    #[cfg(test)]
    pub(super) fn address_of_seat(&self) -> usize {
        std::ptr::from_ref(&self.seat).addr()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.tables.young.capacity() + self.tables.old.capacity()
    }
}

impl Seat {
    /// The count, unless the key has been idle for too long.
    #[inline]
    fn valid(&self, now: u64, span: u64) -> u32 {
        valid(self.count, self.last, now, span)
    }

    #[inline]
    fn set(&mut self, before: u32, now: u64) {
        self.last = self.last.max(now);
        self.count = before.saturating_add(1);
    }
}

impl Tables {
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// What was last recorded before two turns is freed with the second, after more than one `span`.
    fn turn_if_due(&mut self, now: u64, span: u64) {
        if now.saturating_sub(self.turned) > span {
            self.old = std::mem::take(&mut self.young);
            self.turned = now;
        }
        if now.saturating_sub(self.latest) > span {
            self.young = Table::default();
            self.old = Table::default();
        }
    }

    /// Records a failure. A key that is not in here is left to the seat, if that is free: none.
    #[inline]
    fn record(&mut self, print: Print, now: u64, span: u64, seat_is_free: bool) -> Option<u32> {
        let now = now.max(self.latest);
        let before = match self.young.entry(print) {
            Entry::Occupied(mut entry) => {
                let failures = entry.get_mut();
                let before = failures.valid(now, span);
                *failures = Failures::after(before, now);
                before
            }
            Entry::Vacant(entry) => {
                let moved = remove(&mut self.old, print);
                if moved.is_none() && seat_is_free {
                    return None;
                }
                let before = moved.map_or(0, |failures| failures.valid(now, span));
                entry.insert(Failures::after(before, now));
                before
            }
        };
        self.latest = now;
        Some(before)
    }

    fn get(&self, print: Print) -> Option<&Failures> {
        self.young.get(&print).or_else(|| self.old.get(&print))
    }

    fn forget(&mut self, print: Print) {
        // A print is in one of them at most.
        if remove(&mut self.young, print).is_none() {
            remove(&mut self.old, print);
        }
    }
}

impl Failures {
    #[inline]
    fn after(before: u32, now: u64) -> Self {
        Self {
            last: now,
            count: before.saturating_add(1),
        }
    }

    #[inline]
    fn valid(&self, now: u64, span: u64) -> u32 {
        valid(self.count, self.last, now, span)
    }
}

/// A count, unless the key has been idle for too long.
#[inline]
fn valid(count: u32, last: u64, now: u64, span: u64) -> u32 {
    if now.saturating_sub(last) > span {
        0
    } else {
        count
    }
}

/// Removes an entry, and with the last one the memory of a large table.
fn remove(table: &mut Table, print: Print) -> Option<Failures> {
    if table.is_empty() {
        return None;
    }
    let removed = table.remove(&print);
    if table.is_empty() && table.capacity() > KEPT_CAPACITY {
        *table = Table::default();
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Some that differ in one half only, and the one that the seat has at first.
    fn print(n: u64) -> Print {
        Print::new(n / 2, n % 2)
    }

    /// A shard whose seat is taken since `now`.
    fn seated(now: u64) -> Shard {
        let mut shard = Shard::default();
        shard.record(print(9), now, 0);
        shard
    }

    // L12: a thread that was held up for long between the clock and the lock comes after another.
    #[test]
    fn a_late_thread_turns_back_no_time() {
        const SPAN: u64 = 60;
        for mut shard in [Shard::default(), seated(1000)] {
            assert_eq!(shard.record(print(1), 1000, SPAN), 0);
            assert_eq!(shard.record(print(1), 950, SPAN), 1);
            assert_eq!(shard.count(print(1), 1000 + SPAN, SPAN), 2);
            shard.turn_if_due(1000 + SPAN, SPAN);
            assert_eq!(shard.count(print(1), 1000 + SPAN, SPAN), 2);
            assert_eq!(shard.count(print(1), 1001 + SPAN, SPAN), 0);
        }
    }

    // L12: nor does one that comes onto a seat which another has left.
    #[test]
    fn a_seat_keeps_the_time_of_who_left_it() {
        let mut shard = seated(1000);
        shard.forget(print(9));
        assert_eq!(shard.record(print(1), 950, 60), 0);
        assert_eq!(shard.count(print(1), 1060, 60), 1);
    }

    #[test]
    fn a_seat_is_taken_over_from_an_idle_key_and_from_no_other() {
        let mut shard = seated(1000);
        shard.record(print(1), 1060, 60);
        assert_eq!((shard.tracked(), shard.seat.others), (2, true));
        let mut shard = seated(1000);
        shard.record(print(1), 1061, 60);
        assert_eq!((shard.tracked(), shard.seat.others), (1, false));
        assert_eq!(shard.count(print(9), 1061, 60), 0);
    }

    // L2, L12
    #[test]
    fn a_key_in_the_old_table_is_counted_and_forgotten_as_any() {
        const SPAN: u64 = 60;
        let mut shard = seated(1000);
        for now in [1000, 1000 + SPAN] {
            for key in [7, 8, 9] {
                shard.record(print(key), now, SPAN);
            }
        }
        // Turns, a nanosecond after the keys were recorded.
        let now = 1001 + SPAN;
        shard.turn_if_due(now, SPAN);
        assert_eq!((shard.tables.young.len(), shard.tables.old.len()), (0, 2));
        let counts = |shard: &Shard| [7, 8].map(|key| shard.count(print(key), now, SPAN));
        assert_eq!(counts(&shard), [2, 2]);
        shard.forget(print(7));
        assert_eq!(counts(&shard), [0, 2]);
        assert_eq!(shard.record(print(7), now, SPAN), 0);
        assert_eq!(shard.record(print(8), now, SPAN), 2);
        assert_eq!((shard.tables.young.len(), shard.tables.old.len()), (2, 0));
    }

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Record,
        Forget,
        Turn,
    }

    proptest! {
        // L2, L12: against one map that never frees anything.
        #[test]
        fn counts_are_those_of_a_map_with_the_time_of_each_failure(
            calls in prop::collection::vec(
                (
                    0..6_u64,
                    prop_oneof![4 => Just(Call::Record), 2 => Just(Call::Forget), 1 => Just(Call::Turn)],
                    prop_oneof![Just(0), 0..40_u64, 0..150_u64],
                ),
                1..200,
            ),
        ) {
            const SPAN: u64 = 60;
            let mut shard = Shard::default();
            let mut model = HashMap::<u64, (u32, u64)>::new();
            let mut now = 0;
            for (key, call, later) in calls {
                now += later;
                model.retain(|_, (_, last)| now - *last <= SPAN);
                match call {
                    Call::Record => {
                        let failed = model.entry(key).or_insert((0, now));
                        prop_assert_eq!(shard.record(print(key), now, SPAN), failed.0);
                        *failed = (failed.0 + 1, now);
                    }
                    Call::Forget => {
                        shard.forget(print(key));
                        model.remove(&key);
                    }
                    Call::Turn => shard.turn_if_due(now, SPAN),
                }
                for key in 0..6 {
                    let expected = model.get(&key).map_or(0, |failed| failed.0);
                    prop_assert_eq!(shard.count(print(key), now, SPAN), expected);
                }
                prop_assert!(shard.tracked() >= model.len());
                prop_assert_eq!(shard.is_empty(), shard.tracked() == 0);
                prop_assert!(shard.tables.get(shard.seat.print).is_none());
            }
            shard.turn_if_due(now + SPAN + 1, SPAN);
            prop_assert!(shard.is_empty());
            prop_assert_eq!(shard.capacity(), 0);
        }
    }
}
