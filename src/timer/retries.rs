//! Adds that wait for the retry of their key (V7).

use super::{Entry, Timer};
use crate::keys::delay::{Delay, Set};
use crate::keys::node::Pin;
use crate::keys::state::Level;

impl<K> Timer<K> {
    /// Lets an add at a level wait for the retry of its key, which becomes as urgent. Returns false if none is pending.
    ///
    /// The caller holds the lock of the key's shard, so this does not slow it down when many registrations are waiting;
    /// of one delay there are no more of these than levels.
    #[cold]
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
