//! A shard with its lock, and what can be told of it without: that nothing has failed here.
//!
//! | field | who writes it | who reads it |
//! | --- | --- | --- |
//! | `shard` | the holder of its lock | the holder |
//! | `known`: whether the shard has a key | the holder of the lock, with each change | everybody |
//! | `calls`: records and forgets, or about so many | everybody, by a load and a store | everybody |
//!
//! Most keys succeed without ever having failed, and are forgotten all the same. So who forgets a key, or
//! counts its failures, looks at `known` first, and leaves a shard alone that has no key. That misses no failure:
//! where a record happened before, its store to `known` did, and the load reads that one or a later one; a later
//! one that says no was made, under the lock, after the last key had gone.
//!
//! Two callers at once may count as one call. `calls` only says when it is time to look after other shards.
//!
//! All of a place is in one cache line, but for the tables of a shard where several keys fail.

use crate::sync::Locked;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::print::Print;
use super::shard::Shard;

/// How often a shard's callers look after it and another one.
pub(super) const CALLS_PER_VISIT: u32 = 64;

#[repr(C)]
pub(super) struct Place {
    known: AtomicBool,
    calls: AtomicU32,
    shard: Locked<Shard>,
}

impl Place {
    pub(super) fn new() -> Self {
        Self {
            shard: Locked::new(Shard::default()),
            known: AtomicBool::new(false),
            calls: AtomicU32::new(0),
        }
    }

    /// Records a failure at the time `now`, and returns how many there were before it.
    #[inline]
    pub(super) fn record(&self, print: Print, now: u64, span: u64) -> u32 {
        let mut shard = self.shard.lock();
        self.set_known(true);
        shard.record(print, now, span)
    }

    #[inline]
    pub(super) fn forget(&self, print: Print) {
        if self.is_known() {
            let mut shard = self.shard.lock();
            shard.forget(print);
            self.set_known(!shard.is_empty());
        }
    }

    /// Frees the places of keys that are known to be idle.
    pub(super) fn turn_if_due(&self, now: u64, span: u64) {
        if self.is_known() {
            let mut shard = self.shard.lock();
            shard.turn_if_due(now, span);
            self.set_known(!shard.is_empty());
        }
    }

    /// To be called under the lock, so that no change comes between.
    #[inline]
    fn set_known(&self, known: bool) {
        // Ordering: Relaxed; see `is_known`.
        self.known.store(known, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_known(&self) -> bool {
        // Ordering: Relaxed; who must see a record's store happens after it, and nothing is read on the
        // strength of the answer.
        self.known.load(Ordering::Relaxed)
    }

    /// How many failures there were at the time `now`.
    #[inline]
    pub(super) fn count(&self, print: Print, now: u64, span: u64) -> u32 {
        if self.is_known() {
            self.shard.lock().count(print, now, span)
        } else {
            0
        }
    }

    /// How many keys take up space.
    pub(super) fn tracked(&self) -> usize {
        self.shard.lock().tracked()
    }

    /// Counts a call. If a visit is due now, says how many that makes.
    #[inline]
    pub(super) fn visit_after_call(&self) -> Option<usize> {
        // Ordering: Relaxed; a number that may be off by some.
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        // Ordering: Relaxed; as above.
        self.calls.store(calls, Ordering::Relaxed);
        let due = calls.is_multiple_of(CALLS_PER_VISIT);
        due.then_some((calls / CALLS_PER_VISIT) as usize)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.shard.lock().capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_place_is_two_cache_lines_and_its_lock_is_beside_the_seat_in_the_first() {
        const LINE: usize = 64;
        let place = crossbeam_utils::CachePadded::new(Place::new());
        let start = std::ptr::from_ref(&*place).addr();
        let line = |address: usize| (address - start) / LINE;
        let shard = place.shard.lock();
        let seat = shard.address_of_seat();
        // The lock is what is before the shard, and the seat is what it begins with.
        assert_eq!(std::ptr::from_ref(&*shard).addr(), seat);
        let touched = [
            std::ptr::from_ref(&place.known).addr(),
            std::ptr::from_ref(&place.calls).addr(),
            std::ptr::from_ref(&place.shard).addr(),
            seat + Shard::SEAT_BYTES - 1,
        ];
        assert_eq!(touched.map(line), [0; 4], "{touched:#x?} from {start:#x}");
        assert_eq!(line(start + size_of::<Place>() - 1), 1);
    }

    // L2
    #[test]
    fn a_place_without_keys_is_left_alone() {
        let place = Place::new();
        let (print, other) = (Print::new(1, 1), Print::new(2, 2));
        for ends in [
            (|place: &Place| place.forget(Print::new(1, 1))) as fn(&Place),
            |place| place.turn_if_due(100, 60),
        ] {
            assert!(!place.is_known());
            place.record(print, 0, 60);
            assert!(place.is_known());
            ends(&place);
            assert!(!place.is_known());
        }
        // Of two keys one is left.
        place.record(print, 100, 60);
        place.record(other, 100, 60);
        place.forget(print);
        assert!(place.is_known());
        place.forget(other);
        assert!(!place.is_known());

        let (done, is_done) = mpsc::channel();
        std::thread::scope(|scope| {
            let held = place.shard.lock();
            scope.spawn(|| {
                place.forget(print);
                place.turn_if_due(100, 60);
                done.send(place.count(print, 100, 60)).unwrap();
            });
            let count = is_done.recv_timeout(Duration::from_secs(10));
            drop(held);
            assert_eq!(count, Ok(0), "it waits for the lock");
        });
    }
}
