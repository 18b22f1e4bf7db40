//! The value of a delivery, as the holder of the key sees it.

use std::ops::Deref;

use super::Valued;
use crate::{Item, ValueQueue};

impl<K, V, S, Q: Deref<Target = ValueQueue<K, V, S>>> Item<'_, Valued<K, V>, S, Q> {
    /// Returns the value: all that was put for the key since its last delivery began, merged.
    ///
    /// When the item is dropped, the value is dropped, too. When the key is [retried](Self::retry),
    /// the value goes back, and newer values are merged into it (V3).
    ///
    /// # Panics
    ///
    /// Panics if the value was [taken](Self::take).
    #[must_use]
    pub fn value(&self) -> &V
    where
        V: Sync,
    {
        self.held.value().expect(TAKEN)
    }

    /// Returns the value, to be changed: a retry carries what it is then.
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1, 2, 3]);
    /// let mut item = queue.get().unwrap();
    /// item.value_mut().retain(|number| *number == 2); // the others have been handled
    /// queue.put("a", vec![4]);
    /// let _ = item.retry();
    /// assert_eq!(*queue.get().unwrap().value(), [2, 4]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the value was [taken](Self::take).
    #[must_use]
    pub fn value_mut(&mut self) -> &mut V {
        self.loaded().as_mut().expect(TAKEN)
    }

    /// Takes the value out; `None` if it was taken before. The key stays processing.
    ///
    /// A retry has no value then: the key is not delivered again for it, and its receipts end as
    /// [`GivenUp`](crate::Ended::GivenUp). To keep what a retry needs, use
    /// [`value_mut`](Self::value_mut), or clone the value.
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1]);
    /// let mut item = queue.get().unwrap();
    /// assert_eq!(item.take(), Some(vec![1]));
    /// assert_eq!(item.take(), None);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn take(&mut self) -> Option<V> {
        self.loaded().take()
    }

    /// Returns the value, or where it was.
    pub(crate) fn loaded(&mut self) -> &mut Option<V> {
        &mut self.held.values().1.value
    }
}

const TAKEN: &str = "the value was taken";

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::super::Load;
    use super::*;
    use crate::keys::hash::ShortHash;
    use crate::keys::node::{Node, NodeRef, Queued};
    use crate::keys::state::State;

    #[test] // V2, under Miri: the ring hides from it what comes out of a queue.
    fn two_threads_that_share_an_item_read_its_value() {
        let key = Valued::with(1, Load::default());
        let node = Node::new(ShortHash::of(0), State::Queued, false, key);
        let (mut held, _) = Queued::of_new(NodeRef(NonNull::from(&node))).begin();
        *held.values().1 = Load::from(5);
        let value = || held.value();
        let first = value();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(value(), Some(&5)));
            assert_eq!(value(), Some(&5));
        });
        assert_eq!(first, Some(&5));
    }
}
