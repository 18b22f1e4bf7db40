//! The place of one key in the lanes of a queue with levels.
//!
//! A queue with lanes keeps it next to each node, in the same slot of the slab; other queues have no
//! room for it. [`crate::fifo::lanes`] says who may access it.

use crate::keys::node::NodeRef;
use crate::keys::state::Level;

/// Guarded by the scheduler's lock, but for `delivered`.
pub(crate) struct Place<K> {
    pub(crate) before: Option<NodeRef<K>>,
    pub(crate) behind: Option<NodeRef<K>>,
    /// The level of the lane that the key is in.
    pub(crate) lane: Option<Level>,
    /// The level of the last delivery. Written by the popper; read by the holder of the key.
    pub(crate) delivered: Level,
}

impl<K> Default for Place<K> {
    fn default() -> Self {
        Place {
            before: None,
            behind: None,
            lane: None,
            delivered: 0,
        }
    }
}

/// A proof that the nodes of a queue have places: only a queue with lanes has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Laned {
    timed: bool,
}

impl Laned {
    /// # Safety
    ///
    /// Only a queue whose slabs have room for places, and for times if `timed`, may have it.
    pub(crate) unsafe fn new(timed: bool) -> Self {
        Laned { timed }
    }

    pub(crate) fn is_timed(self) -> bool {
        self.timed
    }
}
