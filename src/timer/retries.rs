//! What becomes of the delay of a key: new, moved, kept or turned into a retry; and adds that wait for a retry (V7).

use super::{Entry, Timer};
use crate::keys::delay::{Delay, Set};
use crate::keys::node::Pin;
use crate::keys::state::Level;

/// The result of delaying a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// The key had no pending delay.
    New,
    /// The key had one, which was moved.
    Moved,
    /// The key had one, which was kept.
    Kept,
    /// The key had one that was no retry. It is a retry now, and was moved or kept.
    Turned { moved: bool },
    /// The key had none, and was not admitted.
    Refused,
    /// The queue is shut down.
    Closed,
}

impl Registered {
    #[inline]
    pub(super) fn of(set: Set) -> Self {
        match set {
            Set::Pending {
                turned: true,
                moved,
                ..
            } => Registered::Turned { moved },
            Set::Raised { turned: true, .. } => Registered::Turned { moved: false },
            Set::Pending { moved: false, .. } => Registered::New,
            Set::Pending { moved: true, .. } => Registered::Moved,
            Set::Kept | Set::Raised { .. } => Registered::Kept,
            Set::Refused => Registered::Refused,
            Set::Closed => Registered::Closed,
        }
    }

    /// Returns whether the delay that was asked for is used (L14).
    #[inline]
    pub(crate) fn is_used(self) -> bool {
        !matches!(self, Registered::Kept | Registered::Turned { moved: false })
    }
}

impl<K> Timer<K> {
    /// Lets an add at a level wait for the retry of its key, which becomes as urgent. Returns false if none is pending.
    ///
    /// The caller holds the lock of the key's shard, so this does not slow it down when many registrations are waiting;
    /// of one delay there are no more of these than levels.
    pub(crate) fn join_retry(
        &self,
        delay: &Delay,
        level: Level,
        pin: impl FnOnce() -> Pin<K>,
    ) -> bool {
        match delay.join_retry(level) {
            Set::Kept => true,
            Set::Raised { stamp, .. } => {
                self.note_stale();
                let pin = pin();
                self.enlist(stamp.due(), Entry { pin, stamp });
                true
            }
            Set::Pending { .. } | Set::Refused | Set::Closed => false,
        }
    }
}
