//! The key of an entry that is given by its parts, and made only if it is unknown.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::Entry;
use super::key::{EntryKey, Key, Owned, Pinning, Spot};
use crate::keys::hash::hash_of;
use crate::keys::node::Pinned;
use crate::values::{Change, Merger};
use crate::wait::room::Share;
use crate::{Added, WorkQueue};

/// The key of [`WorkQueue::entry_with`].
pub struct Parts<'q, K, S, E, M>(Given<'q, K, S, E, M>);

enum Given<'q, K, S, E, M> {
    Parts {
        hasher: &'q S,
        hash: u64,
        eq: E,
        make: M,
    },
    /// It was unknown.
    Made(Owned<K>),
}

impl<K, S, E, M> Parts<'_, K, S, E, M>
where
    K: Hash,
    S: BuildHasher,
    M: FnOnce() -> K,
{
    fn made(key: Owned<K>) -> Self {
        Parts(Given::Made(key))
    }

    /// Makes the key, which is user code, so no lock is held. It must be where its own hash belongs.
    fn make(self) -> Owned<K> {
        match self.0 {
            Given::Made(key) => key,
            Given::Parts { hasher, make, .. } => {
                let key = make();
                let hash = hash_of(hasher, &key);
                Owned { key, hash }
            }
        }
    }
}

impl<K, V, S, E, M> EntryKey<K, V> for Parts<'_, K, S, E, M>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
    E: Fn(&K) -> bool,
    M: FnOnce() -> K,
{
    type Back = ();

    fn back(self) {}
}

impl<K, V, S, E, M> Key<K, V> for Parts<'_, K, S, E, M>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
    E: Fn(&K) -> bool,
    M: FnOnce() -> K,
{
    fn add(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Result<Added, Self> {
        if let Given::Parts { hash, eq, .. } = &self.0
            && let Some(added) = at.core.add_known(*hash, at.level, eq, share)
        {
            return added.ok_or(self);
        }
        self.make().add(at, share).map_err(Self::made)
    }

    fn pin(self, at: Spot<'_, K, V>, share: &mut Share<'_>) -> Pinning<K, Self> {
        if let Given::Parts { hash, eq, .. } = &self.0 {
            let shard = at.core.keys.lock(*hash);
            if let Some(pin) = shard.pin(*hash, eq) {
                drop(shard);
                return Ok((Pinned(pin), Some(self)));
            }
            // Under the lock, as in `add_known`.
            if !share.admit(true, || false) {
                drop(shard);
                return Err(self);
            }
        }
        let (pinned, known) = self.make().pin(at, share).map_err(Self::made)?;
        Ok((pinned, known.map(Self::made)))
    }

    fn find(&self, at: Spot<'_, K, V>) -> Option<Pinned<K>> {
        match &self.0 {
            Given::Parts { hash, eq, .. } => at.core.keys.lock(*hash).pin(*hash, eq).map(Pinned),
            Given::Made(key) => key.find(at),
        }
    }

    fn change(self, at: Spot<'_, K, V>, merger: &Merger<V>, change: impl Change<V>) -> Added {
        let change = match &self.0 {
            Given::Made(_) => change,
            Given::Parts { hash, eq, .. } => {
                match at.core.update_known(merger, (*hash, at.level), eq, change) {
                    Ok(added) => return added,
                    Err(change) => change,
                }
            }
        };
        self.make().change(at, merger, change)
    }
}

impl<K, S, E, M> fmt::Debug for Parts<'_, K, S, E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl<K, V, S> WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    /// Returns the entry of a key by anything that hashes like it: for keys whose borrowed form has no reference type, as
    /// for tuples, or no `ToOwned`, as for `Arc<str>`. Otherwise like [`entry`](Self::entry): a verb that fails gives back the
    /// value alone.
    ///
    /// `eq` returns whether a known key is the wanted one. It is called with the wanted key, and perhaps with others, under
    /// a lock, so it must not call the queue, nor, with debug assertions, another one. If no known key is the wanted one, `make` makes it; adding a known key
    /// allocates nothing. After a shut-down neither is called.
    ///
    /// `key` must hash like the key that `make` returns: a `str` like a `String`, a tuple of references like a tuple of what
    /// they refer to. If it hashes differently, or if `eq` does not hold for what `make` returns, the result is that of
    /// `entry(make())`: right, but each call makes a key.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// # use std::sync::Arc;
    /// let queue = WorkQueue::<Arc<str>>::new();
    /// let add = |key: &str| queue.entry_with(key, |known| **known == *key, || key.into()).add();
    /// assert_eq!(add("pod"), Added::Queued);
    /// assert_eq!(add("pod"), Added::Merged); // allocates nothing
    ///
    /// let queue = WorkQueue::<(String, u32)>::builder().merge(merge::append).build()?;
    /// let put = |name: &str, number: u32, value| {
    ///     let eq = |known: &(String, u32)| known.0 == name && known.1 == number;
    ///     let entry = queue.entry_with(&(name, number), eq, || (name.to_owned(), number));
    ///     entry.put(vec![value])
    /// };
    /// assert_eq!(put("sensor", 7, 1), Added::Queued);
    /// assert_eq!(put("sensor", 7, 2), Added::Merged); // allocates no key
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` of `key` panics. A verb panics if it would for another entry, or if `eq` or `make` panics; then
    /// nothing was added.
    #[doc(alias = "get_or_insert_with")]
    pub fn entry_with<'q, Q, E, M>(
        &'q self,
        key: &Q,
        eq: E,
        make: M,
    ) -> Entry<'q, K, V, Parts<'q, K, S, E, M>>
    where
        Q: Hash + ?Sized,
        E: Fn(&K) -> bool,
        M: FnOnce() -> K,
    {
        let hasher = &self.hasher;
        let hash = hash_of(hasher, key);
        let given = Given::Parts {
            hasher,
            hash,
            eq,
            make,
        };
        Entry::new(&self.core, Parts(given))
    }
}
