//! Putting values: [`super`] has the protocol.

use std::hash::{BuildHasher, Hash};

use crate::engine::many::in_chunks;
use crate::keys::hash::hash_of;
use crate::sync::assert_unlocked;
use crate::values::core::putting;
use crate::{Added, KeyHandle, WorkQueue};

impl<K, V, S> WorkQueue<K, V, S>
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
    /// left to deliver when the delay ends then. With
    /// [`adds_wait_for_retries`](crate::Builder::adds_wait_for_retries) it waits if the delay is a retry.
    ///
    /// Returns what `add` does; [`Added::ShutDown`] if the queue is shut down, and then the value is
    /// dropped.
    ///
    /// Waits while another thread merges a value of the same key. In a queue without values, where the value is `()`, this
    /// is `add`.
    ///
    /// # Panics
    ///
    /// Panics if [`add`](crate::WorkQueue::add) would; then nothing was put. Panics if the merge
    /// function panics, or the one for the weight; then the key is queued all the same, with what the
    /// merge function has made of the older value (V4).
    ///
    /// ```
    /// use keyqueue::{Added, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().merge(|older: &mut u64, newer| *older += newer).build()?;
    /// assert_eq!(queue.put("a", 1), Added::Queued);
    /// assert_eq!(queue.put("a", 2), Added::Merged);
    ///
    /// let item = queue.get().unwrap();
    /// assert_eq!((*item.key(), *item.value()), ("a", 3));
    /// assert_eq!(queue.put("a", 4), Added::Deferred); // for the next delivery
    /// assert_eq!(*item.value(), 3);
    /// item.done();
    /// assert_eq!(*queue.get().unwrap().value(), 4);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("push", "send", "upsert"))]
    pub fn put(&self, key: K, value: V) -> Added {
        let core = &*self.core;
        let Some(merger) = core.values() else {
            return self.add(key);
        };
        let at = (hash_of(&self.hasher, &key), core.default_level());
        core.update(merger, at, key, putting(value.into()))
    }

    /// Puts many values, in order, as [`put`](Self::put) puts one. Returns the number of keys that became queued; the
    /// other values were merged, deferred, or refused after a shut-down.
    ///
    /// Takes up to 128 items before it puts them, as [`add_all`](crate::WorkQueue::add_all) does, and for the same reason
    /// (C14).
    ///
    /// ```
    /// use keyqueue::{WorkQueue, merge};
    ///
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// assert_eq!(queue.put_all([("a", vec![1]), ("b", vec![2]), ("a", vec![3])]), 2);
    /// assert_eq!(*queue.get().unwrap().value(), [1, 3]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) or the iterator panics; see [`add_all`](crate::WorkQueue::add_all). If the merge
    /// function panics, the values before it are put, those behind it are perhaps dropped, and its key is queued (V4).
    pub fn put_all(&self, items: impl IntoIterator<Item = (K, V)>) -> usize {
        let core = &*self.core;
        let Some(merger) = core.values() else {
            return self.add_all(items.into_iter().map(|(key, _)| key));
        };
        let level = core.default_level();
        let (mut single, mut together) = (0, 0);
        in_chunks(
            items,
            || core.puts_chunks(),
            |key| hash_of(&self.hasher, key),
            |hash, key, value| {
                let added = core.update(merger, (hash, level), key, putting(value.into()));
                single += usize::from(added == Added::Queued);
            },
            |chunk| together += core.put_chunk(merger, chunk),
        );
        single + together
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> KeyHandle<K, V> {
    /// Puts a value for the key, without hashing and without the table; see
    /// [`WorkQueue::put`](crate::WorkQueue::put).
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// let clicks = queue.handle("clicks");
    /// assert_eq!(clicks.put(1), Added::Queued);
    /// assert_eq!(clicks.put(1), Added::Merged);
    /// assert_eq!(*queue.get().unwrap().value(), 2);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn put(&self, value: V) -> Added {
        let (core, pin) = self.parts();
        let Some(merger) = core.values() else {
            return self.add();
        };
        let (level, change) = (core.default_level(), putting(value.into()));
        core.put_pinned(merger, pin, level, change, &mut &**core)
    }
}

impl<K, V> KeyHandle<K, V> {
    /// Merges `newer` into `older` as the key's queue does. User code.
    pub(crate) fn merge(&self, older: &mut V, newer: V) {
        assert_unlocked();
        if let Some(values) = self.parts().0.values() {
            drop(values.merging.merge(older, newer));
        }
    }
}
