//! The order of a queue for which one FIFO is not enough: [levels](super::lanes), or
//! [groups](super::groups), which have levels of their own.

use crate::fifo::groups::grouping::Grouping;
use crate::fifo::lanes::Lanes;
use crate::keys::node::{Held, Pin, Queued};
use crate::keys::seat::Seated;
use crate::keys::state::Level;

pub(crate) struct Ordered<K> {
    /// The level of adds that name none.
    pub(crate) default_level: Level,
    pub(crate) last_level: Level,
    /// Whether groups have a limit of keys in flight. If not, nobody counts these.
    pub(crate) counts_in_flight: bool,
    /// Whether keys have a least interval between two deliveries.
    pub(crate) has_intervals: bool,
    pub(crate) by: By<K>,
}

#[allow(clippy::large_enum_variant, reason = "a queue has one, in a box")]
pub(crate) enum By<K> {
    Lanes(Lanes<K>),
    Groups(Box<dyn Grouping<K>>, Seated),
}

impl<K> Ordered<K> {
    #[inline]
    pub(crate) fn push(&self, entry: Queued<K>) {
        match &self.by {
            By::Lanes(lanes) => lanes.push(entry),
            By::Groups(groups, _) => groups.push(entry),
        }
    }

    /// Takes the next key, or returns `None` if there is none. Returns also whether other getters are to be
    /// notified.
    pub(crate) fn pop(&self) -> Option<(Queued<K>, bool)> {
        match &self.by {
            By::Lanes(lanes) => Some((lanes.pop()?, false)),
            By::Groups(groups, _) => groups.pop(),
        }
    }

    /// Pushes another entry of a key that was raised, or moves the one that it has.
    pub(crate) fn raise(&self, pin: &Pin<K>, from: Level, to: Level) {
        match &self.by {
            By::Lanes(lanes) => lanes.raise(pin, from, to),
            By::Groups(groups, _) => groups.raise(pin, to),
        }
    }

    /// Uncounts a key in flight. Returns whether a getter is to be notified.
    pub(crate) fn land(&self, held: &Held<K>) -> bool {
        match &self.by {
            By::Lanes(_) => false,
            By::Groups(groups, _) => groups.land(held),
        }
    }

    /// Returns the level at which a key was delivered.
    pub(crate) fn delivered(&self, held: &Held<K>) -> Level {
        match &self.by {
            By::Lanes(lanes) => held.place(lanes.laned()).delivered(),
            By::Groups(_, seated) => held.seat(seated).delivered(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.by {
            By::Lanes(lanes) => lanes.len(),
            By::Groups(groups, _) => groups.len(),
        }
    }

    /// Returns whether there is nothing to pop now. Groups may have keys that may not be delivered yet.
    pub(crate) fn is_idle(&self) -> bool {
        match &self.by {
            By::Lanes(lanes) => lanes.is_empty(),
            By::Groups(groups, _) => groups.is_idle(),
        }
    }
}
