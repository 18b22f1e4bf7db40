//! The keys whose interval is not over (T2).
//!
//! Each delivery begins an interval. All last equally long, so they end in the order in which they began. A
//! key that is queued before its interval is over waits here, and comes into the list of its group then.
//! The keys are pinned until their intervals are over, so that no interval is forgotten.

use std::collections::VecDeque;

use super::NEVER;
use crate::keys::node::{Held, NodeRef, Pin, Queued};
use crate::keys::seat::{Seat, Seated};
use crate::sync::atomic::Ordering;

/// In `Seat::cooling`: the interval since the key's last delivery is not over.
const COOLING: u8 = 1;
/// And the key is queued.
const WAITING: u8 = 1 << 1;

/// The room for intervals that is kept when none is left.
const SPARE: usize = 1024;

pub(super) struct Cooling<K> {
    interval: u64,
    seated: Seated,
    intervals: VecDeque<Interval<K>>,
    /// The number of keys that wait.
    pub(super) waiting: usize,
}

struct Interval<K> {
    ends: u64,
    pin: Pin<K>,
}

/// Whether the interval of a key was not over when that was last looked at. Whoever queues the key may ask without the
/// lock: only its next delivery begins another interval.
#[inline]
pub(super) fn is_cooling(seat: &Seat) -> bool {
    flags(seat) & COOLING != 0
}

#[inline]
fn flags(seat: &Seat) -> u8 {
    // Ordering: Relaxed; changed under the lock of the groups.
    seat.cooling.load(Ordering::Relaxed)
}

fn set_flags(seat: &Seat, flags: u8) {
    // Ordering: Relaxed; accessed under the lock of the groups.
    seat.cooling.store(flags, Ordering::Relaxed);
}

impl<K> Cooling<K> {
    pub(super) fn new(interval: u64, seated: Seated) -> Self {
        Cooling {
            interval,
            seated,
            intervals: VecDeque::new(),
            waiting: 0,
        }
    }

    /// Returns when the next interval ends, if any key waits.
    pub(super) fn next(&self) -> u64 {
        match self.intervals.front() {
            Some(first) if self.waiting > 0 => first.ends,
            _ => NEVER,
        }
    }

    /// Begins the interval of a key that is delivered, and ends some that are over: without that, keys
    /// that are not added again would be kept.
    pub(super) fn begin(&mut self, held: &Held<K>, now: u64) {
        self.forget(now, 2);
        set_flags(held.seat(&self.seated), COOLING);
        // The clock may be read in another order than the lock is taken.
        let last = self.intervals.back().map_or(0, |last| last.ends);
        let ends = now.saturating_add(self.interval).max(last);
        let pin = held.pin();
        self.intervals.push_back(Interval { ends, pin });
    }

    /// Keeps the entry of a key until its interval is over. Returns it if it is.
    pub(super) fn keep(&mut self, entry: Queued<K>) -> Option<Queued<K>> {
        let seat = entry.seat(&self.seated);
        if flags(seat) & COOLING == 0 {
            return Some(entry);
        }
        // The entry is made again when the interval ends.
        set_flags(seat, COOLING | WAITING);
        self.waiting += 1;
        None
    }

    /// Ends at most this many intervals that are over, up to the first whose key waits.
    pub(super) fn forget(&mut self, now: u64, most: usize) {
        for _ in 0..most {
            match self.intervals.front() {
                Some(first) if first.ends <= now && !self.waits(first) => self.end_first(),
                _ => break,
            };
        }
        if self.intervals.is_empty() && self.intervals.capacity() > SPARE {
            self.intervals = VecDeque::new();
        }
    }

    fn waits(&self, interval: &Interval<K>) -> bool {
        flags(interval.pin.seat(&self.seated)) & WAITING != 0
    }

    fn end_first(&mut self) -> Option<NodeRef<K>> {
        let first = self.intervals.pop_front()?;
        set_flags(first.pin.seat(&self.seated), 0);
        first.pin.unpin();
        Some(first.pin.node())
    }

    /// Ends the intervals that are over, up to that of a key that waits, which is returned.
    pub(super) fn take(&mut self, now: u64) -> Option<Queued<K>> {
        self.forget(now, usize::MAX);
        self.intervals.front().filter(|first| first.ends <= now)?;
        self.waiting -= 1;
        // SAFETY: its one entry was kept here. A queued node stays interned without the pin.
        self.end_first().map(|node| unsafe { Queued::again(node) })
    }

    /// Returns the entries of the keys that wait and for which `is_meant` returns true, which do so no longer.
    pub(super) fn take_if(&mut self, is_meant: impl Fn(&Seat) -> bool) -> Vec<Queued<K>> {
        let mut all = Vec::new();
        for interval in &self.intervals {
            let seat = interval.pin.seat(&self.seated);
            if flags(seat) & WAITING != 0 && is_meant(seat) {
                set_flags(seat, COOLING);
                // SAFETY: its one entry was kept here.
                all.push(unsafe { Queued::again(interval.pin.node()) });
            }
        }
        self.waiting -= all.len();
        all
    }

    /// Ends all intervals, but those of keys that wait: an add that raced with the end of the queue may have
    /// pushed one late, and its entry is still to be discarded.
    pub(super) fn clear(&mut self) {
        for interval in std::mem::take(&mut self.intervals) {
            if self.waits(&interval) {
                self.intervals.push_back(interval);
            } else {
                set_flags(interval.pin.seat(&self.seated), 0);
                interval.pin.unpin();
            }
        }
    }
}
