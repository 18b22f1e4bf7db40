use std::hash::Hash;
use std::time::Duration;

use super::{ItemExponentialFailure, RateLimiter, usual_backoff};
use crate::Clock;
use crate::sync::OnceLock;

/// The limiter of a queue that was built without one (L15). Until a key fails, it has no table of keys and hashes none.
pub(crate) struct Unset<K> {
    clock: Clock,
    /// Created at the first failure.
    backoff: OnceLock<Box<ItemExponentialFailure<K>>>,
}

impl<K> Unset<K> {
    pub(crate) fn new(clock: Clock) -> Self {
        let backoff = OnceLock::new();
        Unset { clock, backoff }
    }
}

impl<K: Hash> RateLimiter<K> for Unset<K> {
    fn when(&self, key: &K) -> Duration {
        let create = || Box::new(usual_backoff(self.clock.clone()));
        self.backoff.get_or_init(create).when(key)
    }

    fn forget(&self, key: &K) {
        if let Some(backoff) = self.backoff.get() {
            backoff.forget(key);
        }
    }

    fn num_requeues(&self, key: &K) -> u32 {
        let backoff = self.backoff.get();
        backoff.map_or(0, |backoff| backoff.num_requeues(key))
    }
}
