//! What an engine knows of the groups of its queue: it does not know their type.

use std::any::Any;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::time::Duration;

use crate::keys::node::{Held, Pin, Queued};
use crate::keys::state::Level;

/// The groups of a queue, for an engine that does not know their type.
pub(crate) trait Grouping<K>: Send + Sync {
    /// Sets what is called with a time at which [`unpark`](Self::unpark) is to be called.
    fn wake_by(&self, wake: Box<dyn Fn(u64) + Send + Sync>);

    /// Puts a queued key into its group.
    fn push(&self, entry: Queued<K>);

    /// Takes the next key, or returns `None` if there is none that may be delivered now. Returns also
    /// whether other getters are to be notified.
    fn pop(&self) -> Option<(Queued<K>, bool)>;

    /// Takes all keys out, whatever they wait for.
    fn take_all(&self) -> Vec<Queued<K>>;

    /// Begins the interval of a key that is delivered.
    fn delivered(&self, held: &Held<K>);

    /// Gives back the tokens that were taken for a key, which is not delivered.
    fn refund(&self, held: &Held<K>);

    /// Uncounts a key in flight, of groups with a limit. Returns whether a getter is to be notified.
    fn land(&self, held: &Held<K>) -> bool;

    /// Moves a key whose level was raised, and ends the pin for its other entry: there is none.
    fn raise(&self, pin: &Pin<K>, to: Level);

    /// Takes out what has waited for a time that has come. Returns how many getters to notify.
    fn unpark(&self) -> usize;

    /// Returns the next such time.
    fn next(&self) -> u64;

    /// Returns the number of queued keys.
    fn len(&self) -> usize;

    /// Returns whether no group is ready. Does not miss one that is ready during the whole call.
    fn is_idle(&self) -> bool;

    /// Returns the number of groups with queued keys that wait for a time.
    #[cfg(feature = "metrics")]
    fn parked(&self) -> usize;

    /// Holds a group, or releases it (0). Returns whether a getter is to be notified; `None` if groups
    /// have another type.
    fn hold(&self, group: &dyn Any, until: u64) -> Option<bool>;

    /// Holds the group of a key in flight.
    fn hold_of(&self, held: &Held<K>, until: u64);

    /// Calls `f` with each group that has keys or is held, as a `GroupCounts<G>`. `in_flight` has the
    /// number of keys in flight by the address of the group.
    fn visit(&self, in_flight: &HashMap<NonNull<()>, usize>, f: &mut dyn FnMut(&dyn Any));

    /// Unpins the keys whose interval is over.
    fn forget(&self);

    /// Sweeps some idle groups if that is due, and returns whether there are more to sweep now.
    fn look(&self) -> bool;

    fn shrink(&self);
}

/// What a group has; see [`WorkQueue::groups`](crate::WorkQueue::groups).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GroupCounts<G> {
    /// The group.
    pub group: G,
    /// Keys that are queued.
    pub queued: usize,
    /// Keys that workers hold.
    pub in_flight: usize,
    /// The time until the group is not held any more, if it is.
    pub held_for: Option<Duration>,
}
