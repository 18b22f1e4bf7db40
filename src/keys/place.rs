//! What a queue with levels keeps beside each node, in the same slot of the slab; other queues have no
//! room for it. [`crate::fifo::lanes`] has the protocol.

use crate::keys::behind::Behind;
use crate::keys::state::{Level, MOST_LEVELS};
use crate::sync::atomic::{AtomicI32, AtomicU8, Ordering};

#[derive(Default)]
pub(crate) struct Place {
    /// The number of stale entries of the key in each lane. Below zero for a moment, if the entry is
    /// popped before the thread that made it stale has counted it.
    pub(crate) stale: [AtomicI32; MOST_LEVELS],
    /// The level of the last delivery.
    delivered: AtomicU8,
}

impl Place {
    /// Notes the level of a delivery that begins. Called by the popper.
    pub(crate) fn deliver(&self, level: Level) {
        // Ordering: Relaxed; the caller has the key's token, and passes it on.
        self.delivered.store(level, Ordering::Relaxed);
    }

    /// Returns the level of the delivery. Called by the holder of the key.
    pub(crate) fn delivered(&self) -> Level {
        // Ordering: Relaxed; as above.
        self.delivered.load(Ordering::Relaxed)
    }
}

/// A proof that the nodes of a queue have places: only a queue with lanes has one.
pub(crate) type Laned = Behind<Place>;
