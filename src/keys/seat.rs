//! What a queue with groups keeps beside each node, in the same slot of the slab; other queues have no
//! room for it. [`crate::fifo::groups`] has the protocol.

use std::ptr;

use crate::keys::behind::Behind;
use crate::keys::state::Level;
use crate::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Not in a list.
const NOWHERE: u8 = u8::MAX;

/// All accesses are relaxed: each field says who may access it, and what orders these threads.
pub(crate) struct Seat {
    /// The node of the key's group: written by the popper, read by the holder of the key.
    group: AtomicPtr<()>,
    /// The keys beside this one in the list of its group. Accessed under the group's lock.
    pub(crate) next: AtomicPtr<()>,
    pub(crate) previous: AtomicPtr<()>,
    /// The level of the list that the key is in, or [`NOWHERE`]. Accessed under the group's lock.
    listed: AtomicU8,
    /// The level of the last delivery: written by the popper, read by the holder of the key.
    delivered: AtomicU8,
    /// What [`cooling`](crate::fifo::groups) knows of the key. Accessed under its lock.
    pub(crate) cooling: AtomicU8,
}

/// A proof that the nodes of a queue have seats: only a queue with groups has one.
pub(crate) type Seated = Behind<Seat>;

impl Default for Seat {
    fn default() -> Self {
        Seat {
            group: AtomicPtr::new(ptr::null_mut()),
            next: AtomicPtr::new(ptr::null_mut()),
            previous: AtomicPtr::new(ptr::null_mut()),
            listed: AtomicU8::new(NOWHERE),
            delivered: AtomicU8::new(0),
            cooling: AtomicU8::new(0),
        }
    }
}

impl Seat {
    /// Notes a delivery that begins.
    pub(crate) fn deliver(&self, group: *mut (), level: Level) {
        self.group.store(group, Ordering::Relaxed);
        self.delivered.store(level, Ordering::Relaxed);
    }

    pub(crate) fn group(&self) -> *mut () {
        self.group.load(Ordering::Relaxed)
    }

    pub(crate) fn delivered(&self) -> Level {
        self.delivered.load(Ordering::Relaxed)
    }

    pub(crate) fn listed(&self) -> Option<Level> {
        let level = self.listed.load(Ordering::Relaxed);
        (level != NOWHERE).then_some(level)
    }

    pub(crate) fn set_listed(&self, level: Option<Level>) {
        self.listed
            .store(level.unwrap_or(NOWHERE), Ordering::Relaxed);
    }
}
