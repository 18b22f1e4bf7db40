//! The retries of each key that the workers of a queue have made, all of them together, whatever the limiter counts.

use std::hash::Hash;
use std::sync::OnceLock;
use std::time::Duration;

use super::Core;
use crate::limiter::{ItemFastSlow, RateLimiter};

/// How long the retries of a key that is not added again are remembered, once it could be tried.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Created at the first retry.
pub(super) type Retries<K> = OnceLock<Counted<K>>;

pub(super) struct Counted<K> {
    counts: ItemFastSlow<K>,
    /// Whoever finishes a key cannot hash it.
    forget: fn(&ItemFastSlow<K>, &K),
}

impl<K, V> Core<K, V> {
    /// Forgets the retries of a key, and what the limiter has counted of it.
    pub(crate) fn forget(&self, key: &K) {
        if let Some(counted) = self.retries.get() {
            (counted.forget)(&counted.counts, key);
        }
        self.limiter.forget(key);
    }
}

impl<K: Hash, V> Core<K, V> {
    /// Returns the number of retries of a key.
    pub(crate) fn retries(&self, key: &K) -> u32 {
        let counted = self.retries.get();
        counted.map_or(0, |counted| counted.counts.num_requeues(key))
    }

    /// Counts a retry that comes after a delay. The caller holds the key, so no worker forgets it meanwhile.
    pub(crate) fn count_retry(&self, key: &K, delay: Duration) {
        let counted = self.retries.get_or_init(|| Counted {
            counts: ItemFastSlow::new(Duration::ZERO, Duration::ZERO, 0)
                .expect("a delay of zero is in range")
                .remember_for(REMEMBERED),
            forget: RateLimiter::forget,
        });
        counted.counts.count(key, self.until_tried(delay));
    }

    /// Remembers the retries of a key that waits again, which is no retry.
    pub(crate) fn postpone_retries(&self, key: &K, delay: Duration) {
        if let Some(counted) = self.retries.get() {
            counted.counts.postpone(key, self.until_tried(delay));
        }
    }

    /// An interval of the key may last longer than its delay.
    fn until_tried(&self, delay: Duration) -> Duration {
        let interval = self.ordered().and_then(|ordered| ordered.min_interval);
        delay.max(interval.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkQueue;

    #[test] // W2
    fn an_interval_counts_as_a_wait() {
        let week = 7 * REMEMBERED;
        let queue = WorkQueue::<u64>::builder().min_interval(week).build();
        let queue = queue.unwrap();
        let until_tried = |delay| queue.core.until_tried(delay);
        assert_eq!(until_tried(REMEMBERED), week);
        assert_eq!(until_tried(2 * week), 2 * week);
        assert_eq!(WorkQueue::<u64>::new().core.until_tried(week), week);
    }
}
