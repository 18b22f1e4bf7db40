//! Ending a delay before its time.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::keys::hash::hash_of;
use crate::{Added, WorkQueue};

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> WorkQueue<K, V, S> {
    /// Ends the pending delay of a key now: adds the key as when the delay is over, at its level and with its value.
    /// Returns what the add did, or `None` if no delay is pending (X3).
    ///
    /// If the queue is shut down, no delay is pending any more. If the delay ends at the same time, or another thread ends it,
    /// only one of them adds the key; if that is not this call, it returns `None`.
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
        let hash = hash_of(&self.hasher, key);
        self.core.run_now(hash, |known| known.borrow() == key)
    }
}
