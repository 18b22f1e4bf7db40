//! The order of a queue for which one FIFO is not enough: [levels](super::lanes), or
//! [groups](super::groups), which have levels of their own.

use crate::fifo::groups::grouping::{Grouping, Landing};
use crate::fifo::lanes::Lanes;
use crate::keys::node::{Held, Pin, Queued};
use crate::keys::state::Level;

#[allow(clippy::large_enum_variant, reason = "a queue has one, in a box")]
pub(crate) enum Ordered<K> {
    Lanes(Lanes<K>),
    Groups(Box<dyn Grouping<K>>),
}

impl<K> Ordered<K> {
    /// Returns the level of adds that name none.
    pub(crate) fn default_level(&self) -> Level {
        match self {
            Ordered::Lanes(lanes) => lanes.default_level,
            Ordered::Groups(groups) => groups.default_level(),
        }
    }

    pub(crate) fn last_level(&self) -> Level {
        match self {
            Ordered::Lanes(lanes) => lanes.last_level(),
            Ordered::Groups(groups) => groups.last_level(),
        }
    }

    /// Pushes an entry. `landed` is the group of a delivery that has ended with it.
    pub(crate) fn push(&self, entry: Queued<K>, landed: Option<Landing>) {
        match self {
            Ordered::Lanes(lanes) => lanes.push(entry),
            Ordered::Groups(groups) => groups.push(entry, landed),
        }
    }

    /// Takes the next key, or returns `None` if there is none. Returns also whether other getters are to be
    /// notified.
    pub(crate) fn pop(&self) -> Option<(Queued<K>, bool)> {
        match self {
            Ordered::Lanes(lanes) => Some((lanes.pop()?, false)),
            Ordered::Groups(groups) => groups.pop(),
        }
    }

    /// Pushes another entry of a key that was raised, or moves the one that it has.
    pub(crate) fn raise(&self, pin: &Pin<K>, from: Level, to: Level) {
        match self {
            Ordered::Lanes(lanes) => lanes.raise(pin, from, to),
            Ordered::Groups(groups) => groups.raise(pin, to),
        }
    }

    /// Returns the level at which a key was delivered.
    pub(crate) fn delivered(&self, held: &Held<K>) -> Level {
        match self {
            Ordered::Lanes(lanes) => held.place(lanes.laned()).delivered(),
            Ordered::Groups(groups) => held.seat(groups.seated()).delivered(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Ordered::Lanes(lanes) => lanes.len(),
            Ordered::Groups(groups) => groups.len(),
        }
    }

    /// Returns whether there is nothing to pop now. Groups may have keys that may not be delivered yet.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Ordered::Lanes(lanes) => lanes.is_empty(),
            Ordered::Groups(groups) => groups.is_idle(),
        }
    }
}
