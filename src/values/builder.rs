//! The settings of a queue whose keys carry values.

use super::Merging;
use crate::Builder;

impl<K, S> Builder<K, (), S> {
    /// Lets the keys carry values (V1 to V6): `merge` merges a value that is put into the one of the same key that is not
    /// delivered yet.
    ///
    /// Where a getter or a worker comes in the program before the first `put`, name the types:
    /// `let queue: WorkQueue<String, Vec<Event>> = WorkQueue::builder().merge(merge::append).build()?`.
    ///
    /// The first argument is the older value. [`keyqueue::merge`](crate::merge) has the usual
    /// functions. `merge` runs under a lock of the key, so it should be short, and must not call the
    /// queue, nor, with debug assertions, another one (S15). See [`WorkQueue::put`](crate::WorkQueue::put) for what a panic of it does.
    ///
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder()
    ///     .name("temperatures")
    ///     .merge(|warmest: &mut i32, new| *warmest = new.max(*warmest))
    ///     .build()?;
    /// queue.put("kitchen", 20);
    /// queue.put("kitchen", 24);
    /// queue.put("kitchen", 19);
    /// assert_eq!(*queue.get().unwrap().value(), 24);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn merge<V: Send + 'static>(
        self,
        merge: impl Fn(&mut V, V) + Send + Sync + 'static,
    ) -> Builder<K, V, S> {
        Builder {
            limiter: self.limiter,
            hasher: self.hasher,
            settings: self.settings,
            values: Some(Merging::new(merge)),
            grouping: self.grouping,
        }
    }
}

impl<K, V: Send + 'static, S> Builder<K, V, S> {
    /// Weighs values, so that [`capacity`](Self::capacity) counts bytes or messages instead of keys.
    ///
    /// `weight` is called with each value that is put, and with what values are merged to, under the
    /// lock of the key: it should be short, and must not call the queue, as `merge`. A weight above 2^40 counts as
    /// 2^40. Call it after [`merge`](Self::merge). See
    /// [`Entry::put`](crate::Entry::put) for an example.
    pub fn weight(mut self, weight: impl Fn(&V) -> usize + Send + Sync + 'static) -> Self {
        match &mut self.values {
            Some(values) => values.weight = Some(Box::new(weight)),
            None => self.settings.pacing.misplaced = Some(("weight", "must come after `merge`")),
        }
        self
    }
}
