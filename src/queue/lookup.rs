//! The state of a key that is found by a borrowed form of it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::keys::hash::hash_of;
use crate::keys::node::Node;
use crate::{State, WorkQueue};

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> WorkQueue<K, V, S> {
    /// Returns the state of a key; [`State::Idle`] if the queue does not know it.
    ///
    /// A snapshot: another thread may change the state before this returns. Do not decide by it
    /// whether to add a key; [`add`](Self::add) does the right thing in every state.
    ///
    /// ```
    /// # use keyqueue::{State, WorkQueue};
    /// let queue = WorkQueue::<String>::new();
    /// assert_eq!(queue.state("pod"), State::Idle);
    /// queue.entry_ref("pod").add();
    /// assert_eq!(queue.state("pod"), State::Queued);
    /// let item = queue.get();
    /// assert_eq!(queue.state("pod"), State::Processing);
    /// queue.entry_ref("pod").add();
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
