//! The guard of one key that keeps its queue alive, for threads and tasks that cannot borrow it.
//!
//! It stores the key's token and an [`Arc`] of the queue, but no reference: a reference to what the
//! `Arc` owns would dangle during the drop that frees the queue. Each call builds the [`Item`] that
//! it forwards to.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::keys::node::Held;
use crate::limiter::{NoLimit, RateLimiter};
use crate::{Added, DefaultHasher, Item, WorkQueue};

/// An [`Item`] without a lifetime, which can be moved into a spawned thread or task. Created by
/// [`WorkQueue::get_owned`] and [`WorkQueue::get_owned_async`].
///
/// It is a guard like [`Item`]: dropping it is [`done`](Self::done), also while a panic unwinds.
/// It keeps the queue alive. If it has the last reference, its drop finishes the key and then drops
/// the queue, which shuts it down and waits for the queue's threads to end (S6).
#[must_use = "dropping the item at once finishes its key"]
pub struct OwnedItem<K, L = NoLimit, S = DefaultHasher> {
    queue: Arc<WorkQueue<K, L, S>>,
    held: Held<K>,
}

impl<K, L, S> WorkQueue<K, L, S> {
    /// Like [`get`](Self::get), but the item keeps the queue alive instead of borrowing it.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::sync::Arc;
    /// # use std::thread;
    /// let queue = Arc::new(WorkQueue::from_iter(["a", "b"]));
    /// queue.shut_down();
    /// let mut workers = Vec::new();
    /// while let Some(item) = queue.get_owned() {
    ///     workers.push(thread::spawn(move || item.to_uppercase())); // then the item is dropped
    /// }
    /// let words: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    /// assert_eq!(words, ["A", "B"]);
    /// ```
    #[must_use = "dropping the item at once finishes its key"]
    pub fn get_owned(self: &Arc<Self>) -> Option<OwnedItem<K, L, S>> {
        let held = self.get()?.into_held();
        let queue = Arc::clone(self);
        Some(OwnedItem { queue, held })
    }

    /// Like [`get_async`](Self::get_async), but the future and the item keep the queue alive instead
    /// of borrowing it, so both can be moved into a spawned task.
    ///
    /// A loop that spawns a task for each key takes a permit first, and then the key: a key that is
    /// queued still merges adds.
    ///
    /// # Cancel safety
    ///
    /// As for [`get_async`](Self::get_async): dropping the future loses nothing.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::sync::Arc;
    /// # use tokio::sync::Semaphore;
    /// # #[tokio::main]
    /// # async fn main() {
    /// let queue = Arc::new(WorkQueue::from_iter(["a", "b", "c"]));
    /// queue.shut_down();
    /// let permits = Arc::new(Semaphore::new(2)); // at most two keys at a time
    /// loop {
    ///     let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
    ///     let Some(item) = queue.get_owned_async().await else { break };
    ///     tokio::spawn(async move {
    ///         println!("working on {}", *item);
    ///         item.done();
    ///         drop(permit);
    ///     });
    /// }
    /// assert!(queue.drain_async().await.left.is_nothing());
    /// # }
    /// ```
    pub fn get_owned_async(
        self: &Arc<Self>,
    ) -> impl Future<Output = Option<OwnedItem<K, L, S>>> + use<K, L, S> {
        let queue = Arc::clone(self);
        async move {
            let held = queue.get_async().await?.into_held();
            Some(OwnedItem { queue, held })
        }
    }
}

impl<K, L, S> OwnedItem<K, L, S> {
    /// Returns the item to forward a call to.
    #[inline]
    fn item(&self) -> ManuallyDrop<Item<'_, K, L, S>> {
        // SAFETY: the copy of the token is used while `self` is borrowed, and so before the key is
        // finished. Only the drop of `self` finishes it.
        let held = unsafe { ptr::read(&self.held) };
        ManuallyDrop::new(Item::of(&self.queue, held))
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.held.key()
    }

    /// Returns how long the key was queued before it was delivered; see [`Item::queue_time`].
    #[must_use]
    pub fn queue_time(&self) -> Option<Duration> {
        self.item().queue_time()
    }

    /// Returns the level at which the key was delivered; see [`Item::level`].
    #[must_use]
    pub fn level(&self) -> usize {
        self.item().level()
    }

    /// Finishes the key; see [`Item::done`].
    #[inline]
    pub fn done(self) {
        drop(self);
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, L, S: BuildHasher> OwnedItem<K, L, S> {
    /// Adds the key again after `delay`, and finishes it; see [`Item::retry_after`].
    pub fn retry_after(self, delay: Duration) -> Added {
        self.item().add_after(delay)
        // The drop of `self` finishes the key, after the delay is set.
    }
}

impl<K, L, S> OwnedItem<K, L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K>,
    S: BuildHasher,
{
    /// Adds the key again, rate limited, and finishes it; see [`Item::retry`].
    pub fn retry(self) -> Added {
        self.item().add_rate_limited()
    }
}

// As for `Item`.
impl<K: RefUnwindSafe, L, S> UnwindSafe for OwnedItem<K, L, S> {}
impl<K: RefUnwindSafe, L, S> RefUnwindSafe for OwnedItem<K, L, S> {}

impl<K, L, S> Drop for OwnedItem<K, L, S> {
    #[inline]
    fn drop(&mut self) {
        // Finishes the key. The reference to the queue is dropped after this.
        drop(ManuallyDrop::into_inner(self.item()));
    }
}

impl<K, L, S> Deref for OwnedItem<K, L, S> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K: fmt::Debug, L, S> fmt::Debug for OwnedItem<K, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedItem").field(self.key()).finish()
    }
}
