//! Finding a key that the queue knows by something that is not a key: adding it, and its state.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::engine::Core;
use crate::keys::hash::hash_of;
use crate::keys::node::Node;
use crate::{Added, State, WorkQueue};

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> WorkQueue<K, V, S> {
    /// Adds a key by a borrowed form of it, which is copied only if the key is unknown: adding a
    /// known key allocates nothing. Otherwise like [`add`](Self::add).
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::<String>::new();
    /// assert_eq!(queue.add_ref("namespace/object"), Added::Queued);
    /// assert_eq!(queue.add_ref("namespace/object"), Added::Merged);
    /// ```
    #[inline]
    pub fn add_ref<Q>(&self, key: &Q) -> Added
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let core = &*self.core;
        let hash = hash_of(&self.hasher, key);
        // `move`: closures that borrow from the stack make the fast path store what they borrow.
        let eq = move |known: &K| known.borrow() == key;
        core.add_interned(hash, eq, move |core, hash| add_copy(core, hash, key))
    }

    /// Adds a key by anything that hashes like it: for keys whose borrowed form has no reference
    /// type, as for tuples, or no `ToOwned`, as for `Arc<str>`. Otherwise like [`add`](Self::add).
    ///
    /// `eq` returns whether a known key is the wanted one. It is called with the wanted key, and
    /// perhaps with others, under a lock, so it must not call the queue. If no known key is the wanted
    /// one, `make` makes it; adding a known key allocates nothing. After a shut-down neither is
    /// called.
    ///
    /// `key` must hash like the key that `make` returns: a `str` like a `String`, a tuple of
    /// references like a tuple of what they refer to. If it hashes differently, or if `eq` does not
    /// hold for what `make` returns, the result is that of `add(make())`: right, but each call makes
    /// a key.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # use std::sync::Arc;
    /// let queue = WorkQueue::<Arc<str>>::new();
    /// let add = |key: &str| queue.add_with(key, |known| **known == *key, || key.into());
    /// assert_eq!(add("pod"), Added::Queued);
    /// assert_eq!(add("pod"), Added::Merged); // allocates nothing
    ///
    /// let queue = WorkQueue::<(String, String)>::new();
    /// let add = |namespace: &str, name: &str| {
    ///     queue.add_with(
    ///         &(namespace, name),
    ///         |known| known.0 == namespace && known.1 == name,
    ///         || (namespace.to_owned(), name.to_owned()),
    ///     )
    /// };
    /// assert_eq!(add("default", "pod"), Added::Queued);
    /// assert_eq!(add("default", "pod"), Added::Merged);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) would, or if `eq` or `make` panics; then nothing was added.
    #[doc(alias = "get_or_insert_with")]
    pub fn add_with<Q>(
        &self,
        key: &Q,
        mut eq: impl FnMut(&K) -> bool,
        make: impl FnOnce() -> K,
    ) -> Added
    where
        Q: Hash + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        // `eq` is lent: its drop is user code, and must not run under the shard's lock. What `make`
        // returns is hashed again: it must be where its own hash belongs.
        self.core
            .add_interned(hash, &mut eq, |_, _| self.add(make()))
    }

    /// Returns the state of a key; [`State::Idle`] if the queue does not know it.
    ///
    /// A snapshot: another thread may change the state before this returns. Do not decide by it
    /// whether to add a key; [`add`](Self::add) does the right thing in every state.
    ///
    /// ```
    /// # use keyqueue::{State, WorkQueue};
    /// let queue = WorkQueue::<String>::new();
    /// assert_eq!(queue.state("pod"), State::Idle);
    /// queue.add_ref("pod");
    /// assert_eq!(queue.state("pod"), State::Queued);
    /// let item = queue.get();
    /// assert_eq!(queue.state("pod"), State::Processing);
    /// queue.add_ref("pod");
    /// assert_eq!(queue.state("pod"), State::Dirty);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics.
    #[must_use]
    pub fn state<Q>(&self, key: &Q) -> State
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let state = self.read(key, |node| node.state.phase());
        state.unwrap_or(State::Idle)
    }

    /// Returns whether a key is queued or processing, or has a pending delay. A snapshot, like
    /// [`state`](Self::state).
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// queue.add_after("b", Duration::from_secs(3600));
    /// assert!(queue.contains("a") && queue.contains("b") && !queue.contains("c"));
    /// let item = queue.get();
    /// assert!(queue.contains("a"));
    /// drop(item);
    /// assert!(!queue.contains("a"));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics.
    #[doc(alias = "has")]
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.read(key, Node::is_known) == Some(true)
    }

    /// Calls `f` with the node of a key, if the key is interned.
    fn read<Q, T>(&self, key: &Q, f: impl FnOnce(&Node<K>) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let shard = self.core.keys.lock(hash);
        shard.read(hash, |known| known.borrow() == key, f)
    }
}

/// Adds a copy of a key that was not interned. The copy is user code, so the shard's lock is not
/// held. If another thread interns the key meanwhile, `add` finds it.
#[inline(never)]
fn add_copy<K: Eq, V, Q>(core: &Core<K, V>, hash: u64, key: &Q) -> Added
where
    Q: ToOwned<Owned = K> + ?Sized,
{
    core.add(hash, key.to_owned())
}
