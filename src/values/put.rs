//! Putting values: [`super`] has the protocol.

use std::hash::{BuildHasher, Hash};

use super::Valued;
use crate::keys::hash::hash_of;
use crate::{Added, KeyHandle, ValueQueue};

impl<K, V, S> ValueQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    /// Adds a key with a value, like [`add`](crate::WorkQueue::add) adds a key.
    ///
    /// If the key has a value that is not delivered yet, the queue's merge function merges the new
    /// value into it. A value that is put while the key is processing belongs to the next delivery. A
    /// value that is put while the key is delayed is delivered now, with the delayed one; nothing is
    /// left to deliver when the delay ends then.
    ///
    /// Returns what `add` does; [`Added::ShutDown`] if the queue is shut down, and then the value is
    /// dropped.
    ///
    /// Waits while another thread merges a value of the same key.
    ///
    /// # Panics
    ///
    /// Panics if [`add`](crate::WorkQueue::add) would; then nothing was put. Panics if the merge
    /// function panics, or the one for the weight; then the key is queued all the same, with what the
    /// merge function has made of the older value (V4). Panics if the queue was built without
    /// [`merge`](crate::Builder::merge), which `WorkQueue::new` allows.
    ///
    /// ```
    /// use keyqueue::{Added, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().merge(|older: &mut u64, newer| *older += newer).build()?;
    /// assert_eq!(queue.put("a", 1), Added::Queued);
    /// assert_eq!(queue.put("a", 2), Added::Merged);
    ///
    /// let item = queue.get().unwrap();
    /// assert_eq!((**item.key(), *item.value()), ("a", 3));
    /// assert_eq!(queue.put("a", 4), Added::Deferred); // for the next delivery
    /// assert_eq!(*item.value(), 3);
    /// item.done();
    /// assert_eq!(*queue.get().unwrap().value(), 4);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("push", "send", "upsert"))]
    pub fn put(&self, key: K, value: V) -> Added {
        let hash = hash_of(&self.hasher, &key);
        let level = self.core.default_level();
        self.core.put(hash, level, key, value.into())
    }

    /// Changes the value of a key that waits for its delivery, or a default one, and adds the key:
    /// like [`put`](Self::put), but without a value to merge.
    ///
    /// The queue does not call its merge function, but `change`, under the same lock: it must not call
    /// the queue.
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// for line in ["GET /", "GET /cart"] {
    ///     queue.update("client", |lines: &mut Vec<_>| lines.push(line));
    /// }
    /// assert_eq!(*queue.get().unwrap().value(), ["GET /", "GET /cart"]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `put` would, with `change` for the merge function.
    #[doc(alias = "entry")]
    pub fn update(&self, key: K, change: impl FnOnce(&mut V)) -> Added
    where
        V: Default,
    {
        let hash = hash_of(&self.hasher, &key);
        let level = self.core.default_level();
        self.core.update(hash, level, key, |_, waiting, outdated| {
            waiting.load.update(change, outdated);
        })
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> KeyHandle<Valued<K, V>> {
    /// Puts a value for the key, without hashing and without the table; see
    /// [`ValueQueue::put`](crate::ValueQueue::put).
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// let clicks = queue.handle("clicks".into());
    /// assert_eq!(clicks.put(1), Added::Queued);
    /// assert_eq!(clicks.put(1), Added::Merged);
    /// assert_eq!(*queue.get().unwrap().value(), 2);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn put(&self, value: V) -> Added {
        let (core, pin) = self.parts();
        let load = value.into();
        core.put_pinned(pin, core.default_level(), |merger, waiting, outdated| {
            merger.merge(&mut waiting.load, load, outdated);
        })
    }
}
