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
