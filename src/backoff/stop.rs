//! The token that ends a blocking loop, and on which the loop sleeps.
//!
//! Nothing here is on a hot path, so a mutex and a condition variable of the standard library
//! suffice.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::MockClock;

/// Tells a blocking loop to stop, and wakes it if it sleeps.
///
/// A clone is the same token. Stopping is permanent.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::Stop;
/// use std::thread;
/// use std::time::Duration;
///
/// let stop = Stop::new();
/// let sleeper = thread::spawn({
///     let stop = stop.clone();
///     move || stop.wait(Duration::from_secs(3600))
/// });
/// stop.stop();
/// assert!(sleeper.join().unwrap(), "stopped, not timed out");
/// ```
#[derive(Clone, Debug)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stopped: Mutex<bool>,
    changed: Condvar,
    time: Time,
}

#[derive(Debug)]
enum Time {
    /// Real time, measured from an arbitrary instant.
    Real(Instant),
    Simulated(MockClock),
}

impl Stop {
    /// Creates a token that is not stopped.
    #[must_use]
    pub fn new() -> Self {
        Self::over(Time::Real(Instant::now()))
    }

    /// Creates a token whose waits do not sleep: each advances `clock` by its length and returns.
    /// So a loop's timing can be tested exactly and without delay.
    ///
    /// # Examples
    ///
    /// ```
    /// use keyqueue::Clock;
    /// use keyqueue::backoff::Stop;
    /// use std::time::Duration;
    ///
    /// let (clock, mock) = Clock::mock();
    /// let stop = Stop::simulated(mock);
    /// assert!(!stop.wait(Duration::from_secs(3600)));
    /// assert_eq!(clock.now(), Duration::from_secs(3600));
    /// ```
    #[must_use]
    pub fn simulated(clock: MockClock) -> Self {
        Self::over(Time::Simulated(clock))
    }

    fn over(time: Time) -> Self {
        Self {
            shared: Arc::new(Shared {
                stopped: Mutex::new(false),
                changed: Condvar::new(),
                time,
            }),
        }
    }

    /// Stops permanently, and wakes all waiting threads. Calling it again is harmless.
    pub fn stop(&self) {
        *self.lock() = true;
        self.shared.changed.notify_all();
    }

    /// Returns whether [`stop`](Self::stop) was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.lock()
    }

    /// Waits for `d` or until stopped, whichever comes first. Returns whether it was stopped.
    ///
    /// Returns immediately if it is already stopped. Waits without a time limit if the deadline
    /// exceeds the range of the system's clock.
    pub fn wait(&self, d: Duration) -> bool {
        let mut stopped = self.lock();
        match &self.shared.time {
            Time::Real(_) => {
                let changed = &self.shared.changed;
                let waited = changed.wait_timeout_while(stopped, d, |stopped| !*stopped);
                stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            Time::Simulated(clock) if !*stopped => clock.advance(d),
            Time::Simulated(_) => {}
        }
        *stopped
    }

    /// Returns the time on the clock that measures the waits.
    pub(super) fn now(&self) -> Duration {
        match &self.shared.time {
            Time::Real(start) => start.elapsed(),
            Time::Simulated(clock) => clock.clock().now(),
        }
    }

    /// A flag cannot be half-changed, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, bool> {
        let stopped = self.shared.stopped.lock();
        stopped.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}
