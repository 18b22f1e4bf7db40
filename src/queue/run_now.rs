//! Ending a delay before its time.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::keys::hash::hash_of;
use crate::{Added, WorkQueue};

impl<K: Hash + Eq + Send + Sync + 'static, L, S: BuildHasher> WorkQueue<K, L, S> {
    /// Ends the pending delay of a key now: adds the key as when the delay is over, at its level and with its value.
    /// Returns what the add did, or `None` if no delay is pending (X3).
    ///
    /// If the queue is shut down, no delay is pending any more. If another thread ends or changes the delay at the same
    /// time, the key is added all the same.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::<String>::new();
    /// queue.add_after("a".into(), Duration::from_secs(3600));
    /// assert_eq!(queue.run_now("a"), Some(Added::Queued));
    /// assert_eq!(queue.run_now("a"), None);
    /// assert_eq!(queue.counts().delayed, 0);
    /// assert_eq!(*queue.get().unwrap(), "a");
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics; then nothing was changed.
    #[doc(alias("expedite", "promote"))]
    pub fn run_now<Q>(&self, key: &Q) -> Option<Added>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let core = &*self.core;
        let hash = hash_of(&self.hasher, key);
        let pin = core
            .keys
            .lock(hash)
            .pin(hash, |known| known.borrow() == key)?;
        let delay = pin.delay();
        let pending = delay.stamp().filter(|stamp| delay.is(*stamp));
        let added = pending.map(|stamp| {
            // The add comes first: a shut-down in between finds the delay or the key, and a value that waits for the
            // delivery is never without one. An add that supersedes the delay has ended it, which is fine, too.
            let added = core.add_pinned_at(&pin, hash, stamp.level());
            if added.is_accepted() && delay.end(stamp) {
                core.note_cancelled();
                if let Some(room) = core.room() {
                    room.release(1);
                }
            }
            added
        });
        pin.unpin();
        added
    }
}
