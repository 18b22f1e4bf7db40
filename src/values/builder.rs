//! The settings of a queue whose keys carry values.

use std::time::Duration;

use super::Merger;
use crate::limiter::RateLimiter;
use crate::{Builder, Valued};

impl<K, S> Builder<K, S> {
    /// Makes the queue a [`ValueQueue`](crate::ValueQueue), whose keys carry values: `merge` merges a
    /// value that is put into the one of the same key that is not delivered yet.
    ///
    /// The first argument is the older value. [`keyqueue::merge`](crate::merge) has the usual
    /// functions. `merge` runs under a lock of the key, so it should be short, and must not call the
    /// queue. See [`ValueQueue::put`](crate::ValueQueue::put) for what a panic of it does.
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
    ) -> Builder<Valued<K, V>, S>
    where
        K: Send + Sync + 'static,
    {
        let mut settings = self.settings;
        if self.grouping.is_some() {
            settings.pacing.misplaced = Some(("group_by", "must come after `merge`"));
        }
        Builder::new(Box::new(OfKeys(self.limiter)), self.hasher, settings)
            .with(Some(Box::new(Merger::new(merge))), None)
    }
}

/// A limiter that was set for the keys before they carried values.
struct OfKeys<K>(Box<dyn RateLimiter<K>>);

impl<K, V> RateLimiter<Valued<K, V>> for OfKeys<K> {
    fn when(&self, key: &Valued<K, V>) -> Duration {
        self.0.when(key.key())
    }

    fn reserve(&self, key: &Valued<K, V>, used: &mut dyn FnMut(Duration) -> bool) -> bool {
        self.0.reserve(key.key(), used)
    }

    fn forget(&self, key: &Valued<K, V>) {
        self.0.forget(key.key());
    }

    fn num_requeues(&self, key: &Valued<K, V>) -> u32 {
        self.0.num_requeues(key.key())
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static, S> Builder<Valued<K, V>, S> {
    /// Weighs values, so that [`capacity`](Self::capacity) counts bytes or messages instead of keys.
    ///
    /// `weight` is called with each value that is put, and with what values are merged to, under the
    /// lock of the key: it should be short, and must not call the queue. A weight above 2^40 counts as
    /// 2^40. See
    /// [`Entry::put`](crate::Entry::put) for an example.
    pub fn weight(mut self, weight: impl Fn(&V) -> usize + Send + Sync + 'static) -> Self {
        if let Some(values) = &mut self.values {
            Merger::of_mut(&mut **values).weigh_by(weight);
        }
        self
    }
}
