use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Clock, MockClock};

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
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: Mutex<bool>,
    changed: Condvar,
    clock: Clock,
    /// Advances `clock` instead of a wait, if the token is simulated.
    mock: Option<MockClock>,
}

impl Stop {
    /// Creates a token that is not stopped.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token whose waits do not sleep: each advances `clock` by its length and returns,
    /// so that a test of a loop takes no time.
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
        let shared = Shared {
            clock: clock.clock(),
            mock: Some(clock),
            ..Shared::default()
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Stops permanently, and wakes all waiting threads.
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
    /// Waits without a time limit if the deadline exceeds the range of the system's clock.
    pub fn wait(&self, d: Duration) -> bool {
        let stopped = self.lock();
        if let Some(mock) = &self.shared.mock {
            if !*stopped {
                mock.advance(d);
            }
            return *stopped;
        }
        let changed = &self.shared.changed;
        let waited = changed.wait_timeout_while(stopped, d, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns the time on the clock that measures the waits.
    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.clock.nanos())
    }

    /// A flag cannot be half-changed, so a poisoned lock is used as it is.
    fn lock(&self) -> MutexGuard<'_, bool> {
        let stopped = self.shared.stopped.lock();
        stopped.unwrap_or_else(PoisonError::into_inner)
    }
}
