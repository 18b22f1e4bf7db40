//! Items that keep their queue open, for threads and tasks that cannot borrow it.

use crate::Item;

impl<K, V> Item<'_, K, V> {
    /// Returns the item with the queue, which it keeps open instead of borrowing it: to move it into a spawned thread or
    /// task.
    ///
    /// If the queue was dropped before, the drop of the last such item finishes the key, and then shuts the queue down and
    /// waits for the queue's threads to end (S6).
    ///
    /// ```
    /// # use keyqueue::{Item, WorkQueue};
    /// # use std::thread;
    /// let queue = WorkQueue::from_iter(["a", "b"]);
    /// queue.shut_down();
    /// let mut workers = Vec::new();
    /// while let Some(item) = queue.get().map(Item::into_owned) {
    ///     workers.push(thread::spawn(move || item.to_uppercase())); // then the item is dropped
    /// }
    /// let words: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    /// assert_eq!(words, ["A", "B"]);
    /// ```
    ///
    /// A loop that spawns a task for each key takes a permit first, and then the key: a key that is
    /// queued still merges adds.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::sync::Arc;
    /// # use tokio::sync::Semaphore;
    /// # #[tokio::main]
    /// # async fn main() {
    /// let queue = WorkQueue::from_iter(["a", "b", "c"]);
    /// queue.shut_down();
    /// let permits = Arc::new(Semaphore::new(2)); // at most two keys at a time
    /// loop {
    ///     let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
    ///     let Some(item) = queue.get_async().await else { break };
    ///     let item = item.into_owned();
    ///     tokio::spawn(async move {
    ///         println!("working on {}", *item);
    ///         item.done();
    ///         drop(permit);
    ///     });
    /// }
    /// assert!(queue.drain_async().await.is_nothing());
    /// # }
    /// ```
    pub fn into_owned(self) -> Item<'static, K, V> {
        let (source, held) = self.disassemble();
        Item::of(source.to_owned(), held)
    }
}
