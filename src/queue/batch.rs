//! Several keys at once: waiting for the first like a get of one, and for no more.

use std::time::Duration;

use crate::limiter::NoLimit;
use crate::{DefaultHasher, GetTimeoutError, Item, TryGetError, WorkQueue};

/// The number of items that a batch has room for at first.
const ROOM: usize = 64;

impl<K, L, S> WorkQueue<K, L, S> {
    /// Takes between 1 and `max` keys from the head of the queue, in order. Waits for the first
    /// like [`get`](Self::get), and does not wait for more. Returns `None` when `get` does. A `max`
    /// of 0 counts as 1.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// queue.add_all([1, 2, 3]);
    /// let batch = queue.get_batch(2).unwrap();
    /// assert_eq!(batch.iter().map(|item| **item).collect::<Vec<_>>(), [1, 2]);
    /// drop(batch); // done with both
    /// queue.shut_down();
    /// while let Some(batch) = queue.get_batch(100) {
    ///     assert_eq!(batch.len(), 1);
    /// }
    /// ```
    #[doc(alias("chunk", "recv_many"))]
    #[must_use = "dropping the batch at once finishes all of its keys"]
    pub fn get_batch(&self, max: usize) -> Option<Batch<'_, K, L, S>> {
        Some(self.fill(self.get()?, max))
    }

    /// Like [`get_batch`](Self::get_batch), but waits for no key at all.
    ///
    /// # Errors
    ///
    /// Returns an error when [`try_get`](Self::try_get) does.
    ///
    /// ```
    /// # use keyqueue::{TryGetError, WorkQueue};
    /// let queue = WorkQueue::from_iter([1, 2, 3]);
    /// assert_eq!(queue.try_get_batch(100).unwrap().len(), 3);
    /// assert_eq!(queue.try_get_batch(100).unwrap_err(), TryGetError::Empty);
    /// ```
    pub fn try_get_batch(&self, max: usize) -> Result<Batch<'_, K, L, S>, TryGetError> {
        Ok(self.fill(self.try_get()?, max))
    }

    /// Like [`get_batch`](Self::get_batch), but waits for the first key for at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error when [`get_timeout`](Self::get_timeout) does.
    ///
    /// ```
    /// # use keyqueue::{GetTimeoutError, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::from_iter([1, 2, 3]);
    /// let limit = Duration::from_millis(1);
    /// assert_eq!(queue.get_batch_timeout(2, limit).unwrap().len(), 2);
    /// assert_eq!(queue.get_batch_timeout(2, limit).unwrap().len(), 1); // did not wait for another
    /// assert_eq!(queue.get_batch_timeout(2, limit).unwrap_err(), GetTimeoutError::Timeout);
    /// ```
    pub fn get_batch_timeout(
        &self,
        max: usize,
        limit: Duration,
    ) -> Result<Batch<'_, K, L, S>, GetTimeoutError> {
        Ok(self.fill(self.get_timeout(limit)?, max))
    }

    /// Like [`get_batch`](Self::get_batch), for tasks of any executor.
    ///
    /// # Cancel safety
    ///
    /// As for [`get_async`](Self::get_async): dropping the future loses nothing. No key is taken
    /// before the poll that returns the batch.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::from_iter([1, 2, 3]);
    /// assert_eq!(queue.get_batch_async(2).await.unwrap().len(), 2);
    /// queue.shut_down();
    /// assert_eq!(queue.get_batch_async(2).await.unwrap().len(), 1);
    /// assert!(queue.get_batch_async(2).await.is_none());
    /// # });
    /// ```
    pub async fn get_batch_async(&self, max: usize) -> Option<Batch<'_, K, L, S>> {
        let first = self.get_async().await?;
        Some(self.fill(first, max))
    }

    /// Takes what is queued behind `first`, up to `max` keys in all, without waiting.
    fn fill<'q>(&'q self, first: Item<'q, K, L, S>, max: usize) -> Batch<'q, K, L, S> {
        let mut batch = Vec::with_capacity(max.clamp(1, ROOM));
        batch.push(first);
        let core = &*self.core;
        while batch.len() < max
            && let Ok(item) = Item::new(self, core.take())
        {
            batch.push(item);
        }
        batch
    }
}

/// One or more keys delivered together, each with its own [`Item`] (C12); see
/// [`WorkQueue::get_batch`].
///
/// Dropping it finishes the keys that are left in it.
pub type Batch<'q, K, L = NoLimit, S = DefaultHasher> = Vec<Item<'q, K, L, S>>;
