//! What is left when a queue of values has ended: [`crate::engine::left`] has the protocol.

use crate::values::Valued;
use crate::{Left, ValueQueue};

impl<K: Clone + Send + Sync + 'static, V: Send + 'static, S> ValueQueue<K, V, S> {
    /// Ends the queue like [`shut_down_now`](Self::shut_down_now), and returns every key that was accepted and
    /// will not be finished, with its value and the reason (S12). As for a queue without values; what was taken
    /// back is not returned.
    ///
    /// ```
    /// # use keyqueue::{LeftReason, ValueQueue, WorkQueue, merge};
    /// # use std::time::Duration;
    /// let queue: ValueQueue<&str, Vec<u32>> = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1]);
    /// let item = queue.get().unwrap();
    /// queue.put("a", vec![2]);
    /// queue.shut_down_now();
    /// let _ = item.retry(); // is refused
    ///
    /// let left = queue.take_left().pop().unwrap();
    /// assert_eq!((left.key, left.value), ("a", vec![1, 2]));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Clone` of a key panics. Nothing is taken then: another call returns all that is left.
    pub fn take_left(&self) -> Vec<Left<K, V>> {
        let clone = |known: &Valued<K, V>| known.key().clone();
        self.core
            .take_left(clone, |known, key, reason| match known.take_waiting() {
                Some(value) => Ok(Left { key, value, reason }),
                None => Err(key),
            })
    }
}
