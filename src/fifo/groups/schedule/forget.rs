//! Forgetting the groups that are idle: a sweep of their table, a part at a time.

use super::{Names, Schedule};
use crate::fifo::groups::group::{Group, Whereabouts};

/// The number of idle groups that looks and new groups leave.
const RESIDENTS: usize = 1024;
/// The most slots of the table of groups that one look sweeps.
const PORTION: usize = 256;
/// The most slots that are swept for a new group: as many as a chunk has, which may have one group only.
const SWEPT_FOR_NEW: usize = 64;
/// The most groups that are forgotten for a new one: more than one, so that there are fewer.
const FORGOTTEN_FOR_NEW: usize = 2;
/// The time between two sweeps of the whole table, in nanoseconds, and what each slot adds to it, so that sweeps take a
/// few percent of one processor at most. A group that is idle for three such times is forgotten.
const REST: u64 = 100_000_000;
const REST_PER_SLOT: u64 = 500;

impl<K, G> Schedule<K, G> {
    /// Forgets some idle groups if there are many, when a group is created: so the idle ones do not become more for ever,
    /// though nobody looks.
    pub(super) fn forget_for_new(&mut self) -> Names<G> {
        let many = RESIDENTS.max(self.groups.len() / 2);
        let most = many.max(self.idle.saturating_sub(FORGOTTEN_FOR_NEW));
        let mut forgotten = Names::new();
        self.sweep(SWEPT_FOR_NEW, most, |_| true, &mut forgotten);
        forgotten
    }

    /// Ends intervals that are over, and forgets some of the groups that have been idle for a while. Returns
    /// whether there are more, and the names.
    pub(in crate::fifo::groups) fn look(&mut self) -> (bool, Names<G>) {
        let mut forgotten = Names::new();
        if let Some(cooling) = &mut self.cooling {
            cooling.forget(self.clock.nanos(), usize::MAX);
        }
        if self.idle <= RESIDENTS {
            return (false, forgotten);
        }
        let now = self.clock.nanos();
        if now < self.next_look {
            return (false, forgotten);
        }
        let epoch = self.epoch;
        let is_old = |group: &Group<K, G>| group.idle_since != epoch;
        if !self.sweep(PORTION, RESIDENTS, is_old, &mut forgotten) {
            return (true, forgotten);
        }
        self.groups.shrink();
        self.epoch = self.epoch.wrapping_add(1);
        let rest = REST + REST_PER_SLOT * self.groups.slots() as u64;
        self.next_look = now.saturating_add(rest);
        (false, forgotten)
    }

    /// Returns when groups are to be looked at, if there are many idle ones.
    pub(in crate::fifo::groups) fn next_look(&self) -> Option<u64> {
        (self.idle > RESIDENTS).then_some(self.next_look)
    }

    /// Forgets all idle groups, and all intervals that are over, and with `ended` the others, too.
    pub(in crate::fifo::groups) fn shrink(&mut self, ended: bool) -> Names<G> {
        if let Some(cooling) = &mut self.cooling {
            match ended {
                true => cooling.clear(),
                false => cooling.forget(self.clock.nanos(), usize::MAX),
            }
        }
        let mut forgotten = Names::new();
        self.next_swept = 0;
        self.sweep(usize::MAX, 0, |_| true, &mut forgotten);
        self.groups.shrink();
        forgotten
    }

    /// Sweeps this many slots of the table at most, up to its end, and forgets the idle groups there for which
    /// `is_old` holds, as long as there are more than `most` idle ones. Returns whether nothing is left to sweep.
    fn sweep(
        &mut self,
        slots: usize,
        most: usize,
        is_old: impl Fn(&Group<K, G>) -> bool,
        forgotten: &mut Names<G>,
    ) -> bool {
        for _ in 0..slots {
            if self.idle <= most {
                return true;
            }
            let number = self.next_swept;
            self.next_swept = self.groups.slot_after(number);
            let group = self.groups.find(number);
            if group.is_some_and(|group| group.whereabouts == Whereabouts::Idle && is_old(group)) {
                forgotten.extend(self.groups.remove(number));
                self.idle -= 1;
            }
            if self.next_swept == 0 {
                return true;
            }
        }
        false
    }
}
