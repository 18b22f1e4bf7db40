//! The value of a delivery, as the holder of the key sees it.

use crate::keys::carried::Load;
use crate::values::Merger;
use crate::wait::receipt::Receipts;
use crate::{Ended, Item};

impl<K, V> Item<'_, K, V> {
    /// Returns the value: all that was put for the key since its last delivery began, merged.
    ///
    /// When the item is dropped, the value is dropped, too. When the key is [retried](Self::retry),
    /// the value goes back, and newer values are merged into it (V3).
    ///
    /// # Panics
    ///
    /// Panics if the value was [taken](Self::take), or if the queue was built without [`merge`](crate::Builder::merge).
    #[must_use]
    pub fn value(&self) -> &V
    where
        V: Sync,
    {
        let value = |values: &Merger<V>| self.held.value(&values.carries);
        self.core().values().and_then(value).expect(TAKEN)
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
    /// Panics if the value was [taken](Self::take), or if the queue was built without [`merge`](crate::Builder::merge).
    #[must_use]
    pub fn value_mut(&mut self) -> &mut V {
        self.loaded().and_then(Option::as_mut).expect(TAKEN)
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
        self.loaded()?.take()
    }

    /// Returns the value, or where it was; `None` in a queue without values.
    pub(crate) fn loaded(&mut self) -> Option<&mut Option<V>> {
        self.load().map(|load| &mut load.value)
    }

    fn load(&mut self) -> Option<&mut Load<V>> {
        let (core, held) = self.parts();
        Some(held.loads(&core.values()?.carries).1)
    }

    fn receipts(&mut self) -> Option<&mut Receipts> {
        self.load()?.receipts.as_deref_mut()
    }

    /// Sets how the delivery ends for the receipts. Keeps the item.
    pub(crate) fn end_as(&mut self, end: Ended) {
        if let Some(receipts) = self.receipts() {
            receipts.end_as(end);
        }
    }

    /// Ends the receipts now. Keeps the item.
    pub(crate) fn end_receipts(&mut self) {
        if let Some(receipts) = self.load().and_then(|load| load.receipts.take()) {
            receipts.fire(None);
        }
    }

    /// Goes on with a delivery of which something is done or given up.
    pub(crate) fn go_on(&mut self) {
        if let Some(receipts) = self.receipts() {
            receipts.go_on();
        }
    }
}

const TAKEN: &str = "the value was taken, or the queue has none";
