//! The value of a delivery, as the holder of the key sees it.

use std::ops::Deref;

use super::Valued;
use crate::{Item, ValueQueue};

impl<K, V, L, S, Q> Item<'_, Valued<K, V>, L, S, Q>
where
    Q: Deref<Target = ValueQueue<K, V, L, S>>,
{
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
        // SAFETY: this item is the holder of the key. It is borrowed while the reference is used, so
        // no other method changes the value; `V: Sync`, because the item may be shared.
        unsafe { self.key().loaded_ref() }.expect(TAKEN)
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
    /// item.retry();
    /// assert_eq!(*queue.get().unwrap().value(), [2, 4]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the value was [taken](Self::take).
    #[must_use]
    pub fn value_mut(&mut self) -> &mut V {
        // SAFETY: this item is the holder of the key, and borrowed exclusively.
        unsafe { self.key().loaded() }.as_mut().expect(TAKEN)
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
        // SAFETY: this item is the holder of the key, and borrowed exclusively.
        unsafe { self.key().loaded() }.take()
    }
}

const TAKEN: &str = "the value was taken";

#[cfg(test)]
mod tests {
    use super::super::Load;
    use super::*;

    #[test] // V2, under Miri: the ring hides from it what comes out of a queue.
    fn two_threads_that_share_an_item_read_its_value() {
        let mut key = Valued::with(1, Load::default(), 0);
        *key.loaded.get_mut() = Load::from(5);
        // SAFETY: nobody changes the value.
        let value = || unsafe { key.loaded_ref() };
        let first = value();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(value(), Some(&5)));
            assert_eq!(value(), Some(&5));
        });
        assert_eq!(first, Some(&5));
    }
}
