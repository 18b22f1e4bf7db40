//! A resolved key: adds without hashing and without the table.

use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::Added;
use crate::engine::Core;
use crate::keys::node::{Pin, Pinned};
use crate::sync::Arc;

/// A handle to one key of a queue, created by [`WorkQueue::handle`](crate::WorkQueue::handle)
/// (promise C11).
///
/// Adding through it follows the same rules as [`WorkQueue::add`](crate::WorkQueue::add) and
/// accesses nothing but the key's node and the FIFO. A handle keeps its key interned, and may
/// outlive the queue; then, as after a shut-down, its adds are refused.
///
/// ```
/// # use keyqueue::{Added, WorkQueue};
/// let queue = WorkQueue::new();
/// let handle = queue.handle("a");
/// assert_eq!(handle.key(), &"a");
/// assert_eq!(handle.len(), 1); // of the `str`: a handle derefs to its key
/// assert!(queue.is_empty());
/// assert_eq!(handle.add(), Added::Queued);
/// let item = queue.get().unwrap();
/// assert_eq!(handle.add(), Added::Deferred);
/// drop(item);
/// drop(queue);
/// assert_eq!(handle.add(), Added::ShutDown);
/// ```
#[must_use = "a handle adds nothing by itself"]
pub struct KeyHandle<K> {
    /// Before `core`, so that it ends before the table may be dropped.
    pin: Pinned<K>,
    core: Arc<Core<K>>,
}

impl<K> KeyHandle<K> {
    pub(crate) fn new(core: Arc<Core<K>>, pin: Pin<K>) -> Self {
        let pin = Pinned(pin);
        KeyHandle { pin, core }
    }

    /// Adds the key; see [`WorkQueue::add`](crate::WorkQueue::add) for what it returns.
    #[doc(alias = "push")]
    #[inline]
    pub fn add(&self) -> Added {
        self.core.add_pinned(self.pin())
    }

    /// Adds the key after `delay`; see [`WorkQueue::add_after`](crate::WorkQueue::add_after).
    pub fn add_after(&self, delay: Duration) -> Added
    where
        K: Send + Sync + 'static,
    {
        let core = &self.core;
        core.delay(self.pin().clone(), core.default_level(), delay)
            .0
    }

    pub(crate) fn parts(&self) -> (&Arc<Core<K>>, &Pin<K>) {
        (&self.core, self.pin())
    }

    pub(crate) fn pin(&self) -> &Pin<K> {
        &self.pin.0
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.pin().key()
    }
}

// As for `WorkQueue`, which stays consistent if user code panics.
impl<K> UnwindSafe for KeyHandle<K> {}
impl<K> RefUnwindSafe for KeyHandle<K> {}

impl<K> Clone for KeyHandle<K> {
    /// # Panics
    ///
    /// Panics if 2^26 handles to the key are alive.
    fn clone(&self) -> Self {
        KeyHandle::new(Arc::clone(&self.core), self.pin().clone())
    }
}

impl<K> Deref for KeyHandle<K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K: fmt::Debug> fmt::Debug for KeyHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHandle")
            .field("key", self.key())
            .field("phase", &self.pin().phase())
            .finish()
    }
}
