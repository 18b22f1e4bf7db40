//! Several keys that are delivered together.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::vec;

use crate::{Added, Item, RetryOnDrop};

/// One or more keys delivered together, each with its own [`Item`]; see
/// [`WorkQueue::get_batch`](crate::WorkQueue::get_batch). It derefs to a slice of the items.
///
/// Dropping it finishes the keys that are in it, in order; [`retry`](Self::retry) adds all of them again.
/// An iterator over the items takes them out one by one, and its drop finishes those that are left. To retry these
/// instead, collect them into a batch again:
///
/// ```
/// # use keyqueue::{Batch, WorkQueue};
/// let queue = WorkQueue::from_iter([1, 2, 3, 4]);
/// let mut items = queue.get_batch(10).unwrap().into_iter();
/// for item in items.by_ref() {
///     if *item == 2 {
///         assert!(item.retry().is_accepted());
///         break; // the connection is lost
///     }
///     item.done();
/// }
/// let rest: Batch<'_, _> = items.collect();
/// assert_eq!(rest.retry(), 0);
/// assert_eq!([1, 2, 3, 4].map(|key| queue.num_requeues(&key)), [0, 1, 1, 1]);
/// ```
#[must_use = "dropping the batch at once finishes all of its keys"]
pub struct Batch<'q, K, V = ()> {
    pub(super) items: Vec<Item<'q, K, V>>,
}

impl<K, V> Batch<'_, K, V> {
    /// Finishes the keys, in order; see [`Item::done`].
    #[doc(alias("ack", "acknowledge", "commit"))]
    pub fn done(self) {
        drop(self);
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Batch<'_, K, V> {
    /// Retries each key as [`Item::retry`] does, in order: charges the limiter, adds the key again after the
    /// limiter's delay, with its value, and finishes it. Keys with the same delay are delivered in their order.
    ///
    /// Returns the number of keys that are refused, because the queue is shut down. Each of them is left for
    /// [`take_left`](crate::WorkQueue::take_left). It is 0 while the queue is open, and during a drain that delivers
    /// delays ([`drain_delays`](crate::Builder::drain_delays)).
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::limiter::NoLimit;
    /// let queue = WorkQueue::builder().rate_limiter(NoLimit).build()?;
    /// queue.add_all([1, 2]);
    /// let batch = queue.get_batch(10).unwrap();
    /// assert_eq!(batch.retry(), 0);
    /// let batch = queue.get_batch(10).unwrap();
    /// queue.shut_down();
    /// assert_eq!(batch.retry(), 2);
    /// assert_eq!(queue.take_left().len(), 2);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the limiter does. That key is finished without a retry; those behind it are
    /// retried.
    #[doc(alias("nack", "reject", "requeue", "rollback"))]
    #[must_use = "the keys that are refused are not delivered again"]
    pub fn retry(self) -> usize {
        // A panic retries the rest.
        let guards: Vec<_> = self.into_iter().map(Item::retry_on_drop).collect();
        let retried = guards.into_iter().map(|guard| guard.into_item().retry());
        retried.filter(|added| *added == Added::ShutDown).count()
    }

    /// Wraps the batch in a guard that retries its keys when it is dropped, also by `?` or a panic; see
    /// [`Item::retry_on_drop`].
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// fn commit(queue: &WorkQueue<&'static str>) -> Result<(), std::num::ParseIntError> {
    ///     let batch = queue.get_batch(500).unwrap().retry_on_drop();
    ///     for item in batch.iter() {
    ///         item.parse::<u32>()?; // an error retries all
    ///     }
    ///     batch.done();
    ///     Ok(())
    /// }
    ///
    /// let queue = WorkQueue::from_iter(["7", "seven"]);
    /// assert!(commit(&queue).is_err());
    /// assert_eq!(["7", "seven"].map(|key| queue.num_requeues(&key)), [1, 1]);
    /// ```
    pub fn retry_on_drop(self) -> RetryOnDrop<Self> {
        RetryOnDrop::new(self, |batch| _ = batch.retry())
    }
}

impl<K, V> RetryOnDrop<Batch<'_, K, V>> {
    /// Finishes all keys without a retry, as their work has succeeded: clears the limiter's record of their failures.
    ///
    /// # Panics
    ///
    /// Panics if the limiter does, or the `Hash` of a key that it calls. All keys are finished all the same.
    #[doc(alias("ack", "commit"))]
    pub fn done(self) {
        self.into_item().into_iter().for_each(Item::succeed);
    }
}

impl<'q, K, V> Deref for Batch<'q, K, V> {
    type Target = [Item<'q, K, V>];

    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

impl<K, V> DerefMut for Batch<'_, K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.items
    }
}

impl<'q, K, V> IntoIterator for Batch<'q, K, V> {
    type Item = Item<'q, K, V>;
    type IntoIter = vec::IntoIter<Item<'q, K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'b, 'q, K, V> IntoIterator for &'b Batch<'q, K, V> {
    type Item = &'b Item<'q, K, V>;
    type IntoIter = slice::Iter<'b, Item<'q, K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'b, 'q, K, V> IntoIterator for &'b mut Batch<'q, K, V> {
    type Item = &'b mut Item<'q, K, V>;
    type IntoIter = slice::IterMut<'b, Item<'q, K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter_mut()
    }
}

/// What is left of a batch that was taken apart, or items of several gets.
impl<'q, K, V> FromIterator<Item<'q, K, V>> for Batch<'q, K, V> {
    fn from_iter<I: IntoIterator<Item = Item<'q, K, V>>>(items: I) -> Self {
        let items = items.into_iter().collect();
        Batch { items }
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Batch<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.items).finish()
    }
}
