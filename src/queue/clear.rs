//! Taking back what is queued.

use std::iter;

use crate::{Ended, Item, WorkQueue};

impl<K, V, S> WorkQueue<K, V, S> {
    /// Takes the keys that are queued now from the queue, without delivering them, and returns how
    /// many it took: a key that is added again meanwhile may be taken, and counted, twice.
    ///
    /// They are idle then, and can be added again. Keys that are processing or dirty, and pending
    /// delays, are left alone. The call takes at most as many keys as are queued when it begins, so
    /// it ends even while other threads add keys; a key that is added during the call may be taken
    /// instead of one that another thread has taken. The metrics count each key as delivered and
    /// done at once.
    ///
    /// In a queue with [groups](crate::Builder::group_by) or a pace it takes all queued keys, whatever they
    /// wait for: also those of groups that are held or at their limit, and those that wait for a token or for
    /// the end of an interval. It takes no tokens, and holds and intervals go on.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::new();
    /// queue.add_all(["a", "b", "c"]);
    /// let item = queue.get().unwrap();
    /// assert_eq!(queue.clear(), 2);
    /// assert!(queue.is_empty());
    /// assert_eq!(queue.add("b"), Added::Queued);
    /// assert_eq!(queue.add("a"), Added::Deferred); // still processing
    /// ```
    #[doc(alias("discard", "drain", "purge"))]
    pub fn clear(&self) -> usize {
        let drop = |mut item: Item<'_, K, V>| item.end_as(Ended::Dropped);
        match self.core.groups() {
            None => iter::from_fn(|| self.try_get().ok())
                .take(self.len())
                .map(drop)
                .count(),
            Some(groups) => {
                let taken = self.core.begin_all(groups.take_all());
                let items = taken.into_iter().map(|held| Item::of(self.source(), held));
                items.map(drop).count()
            }
        }
    }
}
