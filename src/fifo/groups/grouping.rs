//! What an engine knows of the groups of its queue: it does not know their type.

use std::any::Any;
use std::time::Duration;

use crate::keys::node::{Held, Pin, Pinned, Queued};
use crate::keys::seat::Seated;
use crate::keys::state::Level;
use crate::sync::atomic::AtomicUsize;

/// The order of a queue for which one FIFO is not enough.
pub(crate) struct Ordered<K> {
    /// The level of adds that name none.
    pub(crate) default_level: Level,
    pub(crate) last_level: Level,
    /// Whether groups have a limit of keys in flight. If not, nothing counts these.
    pub(crate) counts_in_flight: bool,
    /// The least interval between two deliveries of a key.
    pub(crate) min_interval: Option<Duration>,
    pub(crate) groups: Box<dyn Grouping<K>>,
    pub(crate) seated: Seated,
    /// How many wait for the ends of deliveries ([`crate::engine::leaving`]).
    pub(crate) leaving: AtomicUsize,
}

/// How many keys a change of the groups has made deliverable, and so which getters are to be notified
/// ([`Core::notify_ready`](crate::engine::Core::notify_ready)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub(crate) enum Ready {
    Nothing,
    /// One, by its own add. Or others have become deliverable earlier, and a getter leaves them to the next one.
    One,
    /// One, by its own add, of a queue with limits or rates: each getter that lingers counts it, whoever takes it, because
    /// a batch has room for fewer once another getter has it.
    Counted,
    /// Perhaps several; or one after which a batch has room for fewer than a getter that lingers has counted on.
    Several,
}

impl Ready {
    pub(crate) fn several(is_ready: bool) -> Self {
        match is_ready {
            true => Ready::Several,
            false => Ready::Nothing,
        }
    }
}

/// The groups of a queue. A call that returns [`Ready`] leaves the notification to its caller.
pub(crate) trait Grouping<K>: Send + Sync {
    /// Sets what is called with a time at which [`unpark`](Self::unpark) is to be called.
    fn wake_by(&self, wake: Box<dyn Fn(u64) + Send + Sync>);

    /// Whether [`push`](Self::push) may run user code.
    fn runs_user_code(&self) -> bool;

    /// Puts a queued key into its group.
    fn push(&self, entry: Queued<K>) -> Ready;

    /// Takes the next key, or returns `None` if there is none that may be delivered now.
    fn pop(&self) -> Option<(Queued<K>, Ready)>;

    /// Returns how many keys have to come until a getter that waits for `max` keys should wait no longer; `None` if
    /// no key may be delivered now.
    fn missing(&self, max: usize) -> Option<usize>;

    /// Takes all keys out, whatever they wait for.
    fn take_all(&self) -> Vec<Queued<K>>;

    /// Takes the keys of a group out, whatever they wait for. Runs user code.
    fn take_group(&self, group: &dyn Any) -> Vec<Queued<K>>;

    /// Returns whether groups have this type.
    fn are(&self, group: &dyn Any) -> bool;

    /// Returns whether a key is in this group. Runs user code.
    fn has(&self, group: &dyn Any, key: &K) -> bool;

    /// Begins the interval of a key that is delivered.
    fn delivered(&self, held: &Held<K>);

    /// Gives back what was taken for a key that is not delivered.
    fn refund(&self, held: &Held<K>) -> Ready;

    /// Uncounts a key in flight, of groups with a limit.
    fn end_delivery(&self, held: &Held<K>) -> Ready;

    /// Moves a key whose level was raised.
    fn raise(&self, pin: &Pin<K>);

    /// Lets go on what has waited for a time that has come.
    fn unpark(&self) -> Ready;

    /// Returns the next such time.
    fn next(&self) -> u64;

    /// Returns the number of queued keys.
    fn len(&self) -> usize;

    /// Returns whether no key may be delivered now.
    fn is_idle(&self) -> bool;

    /// Returns the number of groups with queued keys that wait for a time.
    #[cfg(feature = "metrics")]
    fn parked(&self) -> usize;

    /// Holds a group, or releases it (0). Returns `None` if groups have another type. Runs user code.
    fn hold(&self, group: &dyn Any, until: u64) -> Option<Ready>;

    /// Holds the group of a key in flight, unless it is held for longer. Returns `None`, and does nothing, if
    /// there is only the group without a name. May run user code.
    fn hold_of(&self, held: &Held<K>, until: u64) -> Option<Ready>;

    /// Pauses all deliveries, or lets them go on. Returns whether they were paused.
    fn pause(&self, pause: bool) -> (bool, Ready);

    /// Returns whether all deliveries are paused.
    fn is_paused(&self) -> bool;

    /// Calls `f` with each group that has keys or is held, as a `GroupCounts<G>`. `in_flight` has the keys in
    /// flight. Runs user code.
    fn visit(&self, in_flight: &[Pinned<K>], f: &mut dyn FnMut(&dyn Any));

    /// Unpins the keys whose interval is over, and forgets some idle groups if that is due. Returns whether
    /// there are more to forget now. Runs user code.
    fn look(&self) -> bool;

    /// Returns when that is due again, if it is; in nanoseconds.
    fn next_look(&self) -> Option<u64>;

    /// Forgets all idle groups, and with `ended` also all intervals. Runs user code.
    fn shrink(&self, ended: bool);
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
