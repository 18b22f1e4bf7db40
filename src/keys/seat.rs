//! What a queue with groups keeps beside each node, in the same slot of the slab; other queues have no
//! room for it. [`crate::fifo::groups`] has the protocol.

use std::ptr::{self, NonNull};

use crate::keys::behind::Behind;
use crate::keys::node::{Node, NodeRef, Pin};
use crate::keys::state::{KeyState, Level};
use crate::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Not in a list.
const NOWHERE: u8 = u8::MAX;

/// The accesses are relaxed unless they say otherwise: each field says who may access it, and what orders these
/// threads.
pub(crate) struct Seat {
    /// The node of the key's group, which is pinned as long as the key is interned. Null until the key is
    /// queued for the first time.
    group: AtomicPtr<()>,
    /// The key before this one in the list of its group; the next one is in its link. Accessed under the
    /// group's lock.
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
            previous: AtomicPtr::new(ptr::null_mut()),
            listed: AtomicU8::new(NOWHERE),
            delivered: AtomicU8::new(0),
            cooling: AtomicU8::new(0),
        }
    }
}

impl Seat {
    /// Returns the group of the key, of type `T` as that of [`set_group`](Self::set_group).
    #[inline]
    pub(crate) fn group<T>(&self) -> Option<NodeRef<T>> {
        // Ordering: Acquire; pairs with the Release in `set_group`, for what is in the node.
        let group: *mut Node<T> = self.group.load(Ordering::Acquire).cast();
        NonNull::new(group).map(NodeRef)
    }

    /// Sets the group of the key, with the pin that is kept as long as the key is interned. Returns the group, which
    /// another thread may have set before.
    pub(crate) fn set_group<T>(&self, pin: &Pin<T>) -> NodeRef<T> {
        let node = pin.node();
        let address = node.0.as_ptr().cast();
        let null = ptr::null_mut();
        // Ordering: Release; pairs with the Acquire in `group`. Acquire; for the node that another thread has
        // set.
        let (release, acquire) = (Ordering::Release, Ordering::Acquire);
        match self.group.compare_exchange(null, address, release, acquire) {
            Ok(_) => node,
            Err(other) => {
                pin.unpin();
                NonNull::new(other.cast()).map_or(node, NodeRef)
            }
        }
    }

    /// Unpins the group.
    ///
    /// # Safety
    ///
    /// The key leaves the table, so no other thread accesses the seat; and its group, if it has one, is
    /// interned.
    pub(crate) unsafe fn leave(&self) {
        // Ordering: Relaxed; see the fields.
        if let Some(group) = NonNull::new(self.group.load(Ordering::Relaxed)) {
            // SAFETY: the group's node is pinned until here, and begins with its state, whatever its type.
            unsafe { group.cast::<KeyState>().as_ref() }.unpin();
        }
    }

    /// Notes the level of a delivery that begins.
    pub(crate) fn deliver(&self, level: Level) {
        // Ordering: Relaxed; see the fields.
        self.delivered.store(level, Ordering::Relaxed);
    }

    pub(crate) fn delivered(&self) -> Level {
        // Ordering: Relaxed; see the fields.
        self.delivered.load(Ordering::Relaxed)
    }

    pub(crate) fn listed(&self) -> Option<Level> {
        // Ordering: Relaxed; see the fields.
        let level = self.listed.load(Ordering::Relaxed);
        (level != NOWHERE).then_some(level)
    }

    pub(crate) fn set_listed(&self, level: Option<Level>) {
        // Ordering: Relaxed; see the fields.
        self.listed
            .store(level.unwrap_or(NOWHERE), Ordering::Relaxed);
    }
}
