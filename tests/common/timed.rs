//! Queues whose clock is moved, and whose delays are ended, by hand.

use std::hash::Hash;
use std::time::Duration;

use super::take_all;
use keyqueue::limiter::NoLimit;
use keyqueue::{Builder, Clock, MockClock, WorkQueue};

pub(crate) const NS: Duration = Duration::from_nanos(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A queue on a clock that stands still.
pub(crate) fn timed<K: Hash + Eq + Send + Sync + 'static>() -> (WorkQueue<K>, MockClock) {
    built(|builder| builder)
}

/// The same with other settings.
pub(crate) fn built<K: Hash + Eq + Send + Sync + 'static>(
    set: impl FnOnce(Builder<K>) -> Builder<K>,
) -> (WorkQueue<K>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = set(WorkQueue::builder().rate_limiter(NoLimit))
        .clock(clock)
        .manual_timers();
    (builder.build().expect("in range"), time)
}

/// Moves the clock, ends what is due, and takes what is queued: each key done before the next.
pub(crate) fn after<K: Clone>(queue: &WorkQueue<K>, time: &MockClock, d: Duration) -> Vec<K> {
    time.advance(d);
    queue.fire_due();
    take_all(queue)
}
