//! The token that ends a blocking loop, and what the loop sleeps on.
//!
//! Nothing here is for hot paths: one lock, one condition variable, both of the standard library, because
//! what it does is to sleep in real time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::MockClock;

/// Tells a blocking loop to stop, and wakes it if it sleeps.
///
/// A clone is the same token. Stopping is for good.
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
    /// Since an instant that does not matter.
    Real(Instant),
    Simulated(MockClock),
}

impl Stop {
    /// Creates a token that is not stopped.
    #[must_use]
    pub fn new() -> Self {
        Self::over(Time::Real(Instant::now()))
    }

    /// Creates a token whose sleepers do not sleep: a wait moves `clock` forward by its length, and is
    /// over. So a loop's timing can be tested at once, and exactly.
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

    /// Stops, for ever, and wakes all that wait. Doing it again is harmless.
    pub fn stop(&self) {
        *self.lock() = true;
        self.shared.changed.notify_all();
    }

    /// Returns whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.lock()
    }

    /// Waits for `d` or until stopped, whichever is first; returns whether it was stopped.
    ///
    /// Returns at once if it is stopped already. Waits without an end if `d` is beyond what the system's
    /// clock can hold.
    pub fn wait(&self, d: Duration) -> bool {
        let stopped = self.lock();
        match &self.shared.time {
            Time::Real(_) => self.wait_until(stopped, Instant::now().checked_add(d)),
            Time::Simulated(clock) => {
                if !*stopped {
                    clock.advance(d);
                }
                *stopped
            }
        }
    }

    /// `None` is never.
    fn wait_until(&self, mut stopped: MutexGuard<'_, bool>, deadline: Option<Instant>) -> bool {
        let changed = &self.shared.changed;
        while !*stopped {
            stopped = match deadline {
                None => changed
                    .wait(stopped)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = changed.wait_timeout(stopped, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *stopped
    }

    /// The time that the waits are measured in.
    pub(super) fn now(&self) -> Duration {
        match &self.shared.time {
            Time::Real(start) => start.elapsed(),
            Time::Simulated(clock) => clock.clock().now(),
        }
    }

    /// A flag cannot be half-way: it is taken as it is, also after a panic under the lock.
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
