//! The state of a key that is found by a borrowed form of it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::keys::hash::hash_of;
use crate::keys::node::Node;
use crate::{State, WorkQueue};

impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> WorkQueue<K, V, S> {
    /// Returns the state of a key that is queued or processing, or has a pending delay, and `None` of another one. A key
    /// that waits for its delay and for nothing else is [`State::Idle`].
    ///
    /// A snapshot: another thread may change the state before this returns. Do not decide by it
    /// whether to add a key; [`add`](Self::add) does the right thing in every state.
    ///
    /// ```
    /// # use keyqueue::{State, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::<String>::new();
    /// assert_eq!(queue.state("pod"), None);
    /// queue.entry_ref("pod").after(Duration::from_secs(3600)).add();
    /// assert_eq!(queue.state("pod"), Some(State::Idle));
    /// queue.entry_ref("pod").add();
    /// assert_eq!(queue.state("pod"), Some(State::Queued));
    /// let item = queue.get();
    /// assert_eq!(queue.state("pod"), Some(State::Processing));
    /// queue.entry_ref("pod").add();
    /// assert_eq!(queue.state("pod"), Some(State::Dirty));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics.
    #[doc(alias("contains", "has"))]
    #[must_use]
    pub fn state<Q>(&self, key: &Q) -> Option<State>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        let shard = self.core.keys.lock(hash);
        let eq = |known: &K| known.borrow() == key;
        shard.read(hash, eq, Node::known).flatten()
    }
}
