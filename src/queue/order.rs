//! The settings of a queue's order.

use crate::Builder;

impl<K, V, S> Builder<K, V, S> {
    /// Gives the queue this many levels, 2 to 8, of which 0 is the most urgent. Default: 1, which is a
    /// plain FIFO and costs nothing (P5).
    ///
    /// The queue delivers the keys of the most urgent level that has some (P1), and now and then one of
    /// another level, so that none starves ([`starvation_limit`](Self::starvation_limit)). Within a
    /// level keys come out first in, first out. [`Entry::level`](crate::Entry::level) names a level,
    /// every other add is at the [`default_level`](Self::default_level), and a retry keeps the level of the delivery that has failed (P4). With
    /// [groups](Self::group_by), levels count within a group.
    ///
    /// The default level is the middle one. With two levels that is the less urgent one.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::builder().levels(2).build()?;
    /// queue.add("first"); // at level 1
    /// queue.entry("urgent").level(0).add();
    /// assert_eq!(*queue.get().unwrap(), "urgent");
    /// assert_eq!(*queue.get().unwrap(), "first");
    ///
    /// let error = WorkQueue::<u64>::builder().levels(9).build().unwrap_err();
    /// assert_eq!(error.field(), "levels");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("priority", "priorities"))]
    pub fn levels(mut self, levels: usize) -> Self {
        self.settings.order.levels = levels;
        self
    }

    /// Sets the level of adds that name none. Default: the middle one, `levels / 2`, which is the
    /// less urgent of two.
    pub fn default_level(mut self, level: usize) -> Self {
        self.settings.order.default_level = Some(level);
        self
    }

    /// Sets how long the more urgent levels can be preferred: of this many deliveries in a row, at
    /// least one goes to the oldest key of a less urgent level that has keys (P2). The less urgent
    /// levels take turns at that. At least 2; default: 16. `usize::MAX` is strict priority: a less urgent level waits
    /// as long as a more urgent one has keys.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::<u32>::builder().levels(2).starvation_limit(3).build()?;
    /// queue.entry(100).level(1).add();
    /// (0..5).for_each(|n| _ = queue.entry(n).level(0).add());
    /// let order = [(); 6].map(|()| queue.get().map(|item| *item));
    /// assert_eq!(order.map(Option::unwrap), [0, 1, 100, 2, 3, 4]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias = "aging")]
    #[doc(alias = "strict priority")]
    pub fn starvation_limit(mut self, deliveries: usize) -> Self {
        self.settings.order.starvation_limit = deliveries;
        self
    }
}
