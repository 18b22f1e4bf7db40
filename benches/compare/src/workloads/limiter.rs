//! Rate limiters: `when` and `forget`, on keys that fail over and over.
//!
//! The baseline is what client-go has: for each limiter one mutex around a map or a bucket, with
//! keyqueue's clock and hasher.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Duration;

use keyqueue::limiter::{ItemExponentialFailure, MaxOf, RateLimiter, default_controller};
use keyqueue::{Clock, DefaultHasher};
use parking_lot::Mutex;

use super::RECURRING;
use super::recurring::repeated;
use crate::keys::Key;
use crate::workload::{Kind, Round};

pub(crate) const BASE: Duration = Duration::from_millis(5);
pub(crate) const MAX: Duration = Duration::from_secs(1000);
const PER_SECOND: u32 = 10;
const BURST: u32 = 100;

/// The crate's limiters.
pub(crate) fn keyqueue(round: &Round<'_>) -> Option<Vec<f64>> {
    let exponential = ItemExponentialFailure::new(BASE, MAX).expect("in range");
    Some(match round.kind {
        Kind::LimiterExponential => measure(round, exponential),
        Kind::LimiterController => measure(round, default_controller()),
        _ => return None,
    })
}

/// The same, each behind a mutex.
pub(crate) fn locked(round: &Round<'_>) -> Option<Vec<f64>> {
    let exponential = LockedMap::new(|n| BASE * 1_u32.checked_shl(n).unwrap_or(u32::MAX));
    let bucket = LockedBucket::default();
    Some(match round.kind {
        Kind::LimiterExponential => measure(round, exponential),
        Kind::LimiterController => {
            let both: [Box<dyn RateLimiter<u64>>; 2] = [Box::new(exponential), Box::new(bucket)];
            measure(round, MaxOf::new(both))
        }
        _ => return None,
    })
}

/// Nanoseconds for one failure that is forgotten at once, on all threads together.
fn measure(round: &Round<'_>, limiter: impl RateLimiter<u64>) -> Vec<f64> {
    let keys = u64::first(RECURRING);
    let each = repeated(round, |n| {
        black_box(limiter.when(&keys[n]));
        limiter.forget(&keys[n]);
    });
    for key in &keys {
        assert_eq!(limiter.num_requeues(key), 0, "failures of {key:#x}");
    }
    vec![each]
}

/// Failures by key, and the delay after a number of them.
struct LockedMap {
    failures: Mutex<HashMap<u64, u32, DefaultHasher>>,
    delay: fn(u32) -> Duration,
}

impl LockedMap {
    fn new(delay: fn(u32) -> Duration) -> Self {
        Self {
            failures: Mutex::default(),
            delay,
        }
    }
}

impl RateLimiter<u64> for LockedMap {
    fn when(&self, key: &u64) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(*key).or_default();
        *count += 1;
        (self.delay)(*count - 1).min(MAX)
    }

    fn forget(&self, key: &u64) {
        self.failures.lock().remove(key);
    }

    fn num_requeues(&self, key: &u64) -> u32 {
        self.failures.lock().get(key).copied().unwrap_or(0)
    }
}

/// When all tokens taken so far will be filled in again.
#[derive(Default)]
struct LockedBucket {
    arrival: Mutex<Duration>,
    clock: Clock,
}

impl RateLimiter<u64> for LockedBucket {
    fn when(&self, _: &u64) -> Duration {
        const TOKEN: Duration = Duration::from_nanos(1_000_000_000 / PER_SECOND as u64);
        let mut arrival = self.arrival.lock();
        let now = self.clock.now();
        *arrival = (*arrival).max(now) + TOKEN;
        arrival.saturating_sub(TOKEN * BURST + now)
    }

    fn forget(&self, _: &u64) {}

    fn num_requeues(&self, _: &u64) -> u32 {
        0
    }
}
