//! A guard around an item that retries its key, unless it is told that the work succeeded.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::Item;
use crate::sync::catch_panic::catch_panic;

/// An item whose drop is a retry: `I` is an [`Item`] or a [`Batch`](crate::Batch). Created by
/// [`Item::retry_on_drop`] or [`Batch::retry_on_drop`](crate::Batch::retry_on_drop).
///
/// It derefs to the item. However the scope that holds it is left, by `?`, by a panic, or because
/// its task is aborted, dropping it is [`Item::retry`]; only [`done`](Self::done) finishes the key
/// for good.
///
/// | the queue is | the drop |
/// | --- | --- |
/// | open | charges the limiter, adds the key again after the limiter's delay, and finishes it |
/// | shut down | finishes the key, whose retry is refused: it is left for [`take_left`](crate::WorkQueue::take_left); a drain that delivers delays ([`drain_delays`](crate::Builder::drain_delays)) delivers it again immediately, as often as that happens. Does not charge the limiter |
///
/// A retry that waits for its delay at a shut-down is dropped and counted, like every delay: see
/// [`docs::how_it_ends`](crate::docs::how_it_ends).
///
/// # Panics
///
/// The drop does not panic, so it does not abort a thread that is unwinding. If the limiter, or the
/// key's `Hash` that it calls, panics in it, the key is finished without a retry, as after a panic in
/// [`Item::retry`]; the panic hook reports it.
#[must_use = "dropping the guard at once retries its key"]
pub struct RetryOnDrop<I> {
    /// `None` once the guard is used up.
    item: Option<I>,
    retry: fn(I),
}

impl<K: Send + Sync + 'static, V: Send + 'static> Item<'_, K, V> {
    /// Wraps the item in a guard that retries the key when it is dropped, also by `?`, by a panic, or
    /// because its task is aborted. Dropping the bare item finishes the key instead.
    ///
    /// In a loop of your own, it keeps a key whose work was cut off;
    /// [`Workers`](crate::worker::Workers) need no guard.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// fn work(queue: &WorkQueue<&'static str>) -> Result<(), std::num::ParseIntError> {
    ///     let item = queue.get().unwrap().retry_on_drop();
    ///     item.parse::<u32>()?; // an error retries the key
    ///     item.done();
    ///     Ok(())
    /// }
    ///
    /// let queue = WorkQueue::from_iter(["7", "seven"]);
    /// assert!(work(&queue).is_ok());
    /// assert!(work(&queue).is_err());
    /// assert_eq!(["7", "seven"].map(|key| queue.num_requeues(&key)), [0, 1]);
    /// ```
    ///
    /// In a task:
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::from_iter(["a"]);
    /// let item = queue.get_async().await.unwrap().into_owned().retry_on_drop();
    /// let task = tokio::spawn(async move {
    ///     std::future::pending::<()>().await; // the work
    ///     item.done();
    /// });
    /// task.abort();
    /// assert!(task.await.unwrap_err().is_cancelled());
    /// assert_eq!(*queue.get_async().await.unwrap(), "a"); // it is delivered again
    /// # }
    /// ```
    pub fn retry_on_drop(self) -> RetryOnDrop<Self> {
        RetryOnDrop::new(self, |item| _ = item.retry())
    }
}

impl<K, V> RetryOnDrop<Item<'_, K, V>> {
    /// Finishes the key without a retry, as its work has succeeded: clears the limiter's record of its failures, like
    /// [`forget`](crate::WorkQueue::forget).
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::from_iter(["a"]);
    /// drop(queue.get().unwrap().retry_on_drop());
    /// assert_eq!(queue.num_requeues(&"a"), 1);
    /// queue.get().unwrap().retry_on_drop().done();
    /// assert_eq!(queue.num_requeues(&"a"), 0);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the limiter does, or the key's `Hash` that it calls. The key is finished all the same.
    #[doc(alias("ack", "disarm", "defuse"))]
    pub fn done(self) {
        self.into_item().succeed();
    }
}

impl<I> RetryOnDrop<I> {
    pub(crate) fn new(item: I, retry: fn(I)) -> Self {
        let item = Some(item);
        RetryOnDrop { item, retry }
    }

    /// Returns the item. Dropping it finishes the key, as without the guard, and keeps the limiter's record of its failures.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::from_iter(["a"]);
    /// let guard = queue.get().unwrap().retry_on_drop();
    /// assert_eq!(guard.into_item().retry_after(Duration::from_secs(1)), Added::Delayed);
    /// assert!(queue.is_empty());
    /// ```
    pub fn into_item(mut self) -> I {
        self.item.take().expect(HELD)
    }
}

/// Why a guard that can be used has an item: only `into_item` and the drop take it out.
const HELD: &str = "a guard holds its item to its end";

impl<I> Drop for RetryOnDrop<I> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            // The limiter is user code, and the thread may be unwinding.
            let _ = catch_panic(|| (self.retry)(item));
        }
    }
}

impl<I> Deref for RetryOnDrop<I> {
    type Target = I;

    fn deref(&self) -> &I {
        self.item.as_ref().expect(HELD)
    }
}

impl<I> DerefMut for RetryOnDrop<I> {
    fn deref_mut(&mut self) -> &mut I {
        self.item.as_mut().expect(HELD)
    }
}

impl<I: fmt::Debug> fmt::Debug for RetryOnDrop<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetryOnDrop").field(&**self).finish()
    }
}
