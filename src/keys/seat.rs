//! What a queue with levels, groups or a pace keeps beside each node, in the same slot of the slab; other
//! queues have no room for it. [`crate::fifo::groups`] has the protocol.

use std::ptr;

use crate::keys::state::Level;
use crate::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Not in a list.
const NOWHERE: u8 = u8::MAX;
/// In `delivered`: other levels had keys, too, so the delivery counted for them.
const COUNTED: u8 = 1 << 7;

/// A group of a queue. No other group of the queue ever has the same, so a key can keep the number of a
/// group that is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupId {
    /// Its place in the table of groups.
    pub(crate) number: u32,
    /// The number of groups that were created before it, and one more: never 0.
    pub(crate) stamp: u64,
}

/// All accesses are relaxed: each field says what orders them.
pub(crate) struct Seat {
    /// The group of the key, once it has one. Accessed under the lock of the groups.
    number: AtomicU32,
    /// 0 if the key has no group yet.
    stamp: AtomicU64,
    /// The key before this one in the list of its group; the next one is in its link. Accessed under the
    /// lock of the groups.
    pub(crate) previous: AtomicPtr<()>,
    /// The level of the list that the key is in, or [`NOWHERE`]. Accessed under the lock of the groups.
    listed: AtomicU8,
    /// The level of the last delivery, and [`COUNTED`]: written by the thread that has taken the key's
    /// entry, read by the holder of the key. First that of the list, for the counts of the levels; then that of the key,
    /// which may have been raised between the two.
    delivered: AtomicU8,
    /// Whether the interval after the last delivery is not over, and the key waits for its end. Accessed
    /// under the lock of the groups.
    pub(crate) cooling: AtomicU8,
}

/// A proof that the nodes of a queue have seats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seated {
    timed: bool,
}

impl Seated {
    /// # Safety
    ///
    /// Only a queue whose slabs have seats, and times if `timed`, may have it.
    pub(crate) unsafe fn new(timed: bool) -> Self {
        Seated { timed }
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }
}

impl Default for Seat {
    fn default() -> Self {
        Seat {
            number: AtomicU32::new(0),
            stamp: AtomicU64::new(0),
            previous: AtomicPtr::new(ptr::null_mut()),
            listed: AtomicU8::new(NOWHERE),
            delivered: AtomicU8::new(0),
            cooling: AtomicU8::new(0),
        }
    }
}

impl Seat {
    /// Returns the group of the key, which may be forgotten by now.
    #[inline]
    pub(crate) fn group(&self) -> Option<GroupId> {
        // Ordering: Relaxed, here and below; see the fields.
        let stamp = self.stamp.load(Ordering::Relaxed);
        // Ordering: Relaxed.
        let number = self.number.load(Ordering::Relaxed);
        (stamp != 0).then_some(GroupId { number, stamp })
    }

    #[inline]
    pub(crate) fn set_group(&self, id: GroupId) {
        // Ordering: Relaxed; see the fields.
        self.number.store(id.number, Ordering::Relaxed);
        // Ordering: Relaxed; see the fields.
        self.stamp.store(id.stamp, Ordering::Relaxed);
    }

    /// Notes the level of the list of which a key is taken, and whether that counted for other levels.
    #[inline]
    pub(crate) fn deliver(&self, level: Level, counted: bool) {
        let counted = if counted { COUNTED } else { 0 };
        // Ordering: Relaxed; see the fields.
        self.delivered.store(level | counted, Ordering::Relaxed);
    }

    /// Notes the level that the key has when its delivery begins.
    #[inline]
    pub(crate) fn begin(&self, level: Level) {
        // Ordering: Relaxed; see the fields.
        self.delivered.store(level, Ordering::Relaxed);
    }

    pub(crate) fn delivered(&self) -> Level {
        // Ordering: Relaxed; see the fields.
        self.delivered.load(Ordering::Relaxed) & !COUNTED
    }

    pub(crate) fn counted(&self) -> bool {
        // Ordering: Relaxed; see the fields.
        self.delivered.load(Ordering::Relaxed) & COUNTED != 0
    }

    #[inline]
    pub(crate) fn listed(&self) -> Option<Level> {
        // Ordering: Relaxed; see the fields.
        let level = self.listed.load(Ordering::Relaxed);
        (level != NOWHERE).then_some(level)
    }

    #[inline]
    pub(crate) fn set_listed(&self, level: Option<Level>) {
        // Ordering: Relaxed; see the fields.
        self.listed
            .store(level.unwrap_or(NOWHERE), Ordering::Relaxed);
    }
}
