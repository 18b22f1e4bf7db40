//! What is left when a queue has ended: [`crate::engine::left`] has the protocol.

use crate::{Left, WorkQueue};

impl<K: Clone, V, S> WorkQueue<K, V, S> {
    /// Ends the queue like [`shut_down_now`](Self::shut_down_now), and returns every key that was accepted and
    /// will not be finished (S12): once, with the reason. In no particular order.
    ///
    /// | a key that | is returned as |
    /// | --- | --- |
    /// | is queued, or was added again while it is processing | [`Queued`](crate::LeftReason::Queued) |
    /// | had a pending delay when the queue was shut down | [`Delayed`](crate::LeftReason::Delayed) |
    /// | was retried, or whose worker was cancelled, and was refused | [`Refused`](crate::LeftReason::Refused) |
    /// | is processing, or being reported | nothing: call this again when that has ended, as it may be retried or cancelled |
    ///
    /// A retry that [`on_give_up`](crate::worker::Workers::on_give_up) reports is not left. Each key is returned
    /// by one call; another call returns what is left since. To let the workers finish first, drain the queue with a
    /// limit of time before. [`shrink`](Self::shrink), and the drop of the queue, drop what is left.
    ///
    /// ```
    /// # use keyqueue::{LeftReason, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::from_iter(["a", "b"]);
    /// queue.add_after("c", Duration::from_secs(60));
    /// let item = queue.get().unwrap();
    /// queue.drain_timeout(Duration::ZERO);
    /// let _ = item.retry(); // is refused
    ///
    /// let mut left: Vec<_> = queue.take_left().into_iter().map(|left| (left.key, left.reason)).collect();
    /// left.sort_by_key(|(key, _)| *key);
    /// assert_eq!(left, [
    ///     ("a", LeftReason::Refused),
    ///     ("b", LeftReason::Queued),
    ///     ("c", LeftReason::Delayed),
    /// ]);
    /// assert!(queue.take_left().is_empty());
    /// ```
    ///
    /// A key that carries a value comes with it; one whose value was taken back is not returned.
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1]);
    /// let item = queue.get().unwrap();
    /// queue.put("a", vec![2]);
    /// queue.shut_down_now();
    /// let _ = item.retry(); // is refused
    ///
    /// let left = queue.take_left().pop().unwrap();
    /// assert_eq!((left.key, left.value), ("a", Some(vec![1, 2])));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Clone` of a key panics. Nothing is taken then: another call returns all that is left.
    pub fn take_left(&self) -> Vec<Left<K, V>> {
        self.core.take_left()
    }
}
