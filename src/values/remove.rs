//! Taking back a value that waits for its delivery.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::WorkQueue;
use crate::keys::hash::hash_of;

impl<K, V, S> WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    /// Takes back the value of a key that waits for its delivery, and returns it: the key is not
    /// delivered for it any more, and its pending delay is cancelled. The value of a delivery in
    /// progress is left alone.
    ///
    /// A key that is processing, and was to be delivered again for that value, is not. The place of a queued key stays until it
    /// is reached, so [`len`](crate::WorkQueue::len)
    /// counts the key until then, and a value that is put before takes the same place.
    ///
    /// Of a key without a value this only cancels the delay. Returns `None` in a queue without values.
    ///
    /// After a shut-down this finds the values of the delays that the shut-down has dropped, unless
    /// [`shrink`](crate::WorkQueue::shrink) has dropped them.
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// queue.put("a", 1);
    /// queue.put("b", 2);
    /// assert_eq!(queue.remove("a"), Some(1));
    /// assert_eq!(queue.remove("a"), None);
    /// assert_eq!(*queue.get().unwrap().key(), "b");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics; then nothing was taken back.
    #[doc(alias("take_back", "withdraw"))]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let core = &*self.core;
        let merger = core.values()?;
        let hash = hash_of(&self.hasher, key);
        let pin = core
            .keys
            .lock(hash)
            .pin(hash, |known| known.borrow() == key)?;
        let waiting = pin.carried(&merger.carries).waiting.lock();
        let load = core.withdraw(&pin, &waiting).map(|_| merger.take(waiting));
        pin.unpin();
        load?.value
    }
}
