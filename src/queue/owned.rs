//! Items that keep their queue alive, for threads and tasks that cannot borrow it.

use std::sync::Arc;

use crate::{DefaultHasher, GetAsync, Item, WorkQueue};

/// An [`Item`] without a lifetime, which can be moved into a spawned thread or task. Created by
/// [`WorkQueue::get_owned`] and [`WorkQueue::get_owned_async`].
///
/// It keeps the queue alive. If it has the last reference, its drop finishes the key and then drops
/// the queue, which shuts it down and waits for the queue's threads to end (S6).
pub type OwnedItem<K, S = DefaultHasher> = Item<'static, K, S, Arc<WorkQueue<K, S>>>;

impl<K, S> WorkQueue<K, S> {
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
    pub fn get_owned(self: &Arc<Self>) -> Option<OwnedItem<K, S>> {
        let taken = self.core.take_wait(None);
        Item::new(Arc::clone(self), taken).ok()
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
    pub fn get_owned_async(self: &Arc<Self>) -> GetAsync<'static, K, S, Arc<Self>> {
        GetAsync::new(Arc::clone(self))
    }
}
