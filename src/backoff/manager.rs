//! Back-off for a loop that runs forever: the delays grow while the loop keeps failing, and start
//! over once it was idle.

use std::time::Duration;

use super::Backoff;
use crate::{Clock, ConfigError};

/// Exponential back-off that goes back to its start after an idle time.
///
/// This is an endless iterator: each [`next`](Iterator::next) returns the delay before the next
/// try. If the last call was longer than `reset` ago, the delays start over. It suits
/// [`backoff_until`](super::backoff_until): after a connection that held for an hour, the earlier
/// failures no longer count.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::backoff::{Backoff, ExponentialBackoffManager};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let backoff = Backoff {
///     duration: Duration::from_secs(1),
///     factor: 2.0,
///     cap: Duration::from_secs(5),
///     ..Backoff::default()
/// };
/// let reset = Duration::from_secs(60);
/// let (clock, mock) = Clock::mock();
/// let mut manager = ExponentialBackoffManager::new(backoff, reset)?.with_clock(clock);
///
/// let delays: Vec<u64> = manager.by_ref().take(5).map(|delay| delay.as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 5, 5]);
///
/// mock.advance(reset + Duration::from_nanos(1));
/// assert_eq!(manager.next(), Some(Duration::from_secs(1)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ExponentialBackoffManager {
    start: Backoff,
    current: Backoff,
    reset: Duration,
    clock: Clock,
    /// The time of the last call of `next`; zero before the first, when starting over changes
    /// nothing.
    last: Duration,
}

impl ExponentialBackoffManager {
    /// Creates a manager whose delays are those of `backoff`, and that starts over if it is asked
    /// after longer than `reset`.
    ///
    /// The delays grow without end, or up to the `cap`: the `steps` of `backoff` do not count.
    ///
    /// # Errors
    ///
    /// Refuses what [`Backoff::validate`] refuses, and a `cap` below the `duration`, unless it is
    /// zero, which means no limit.
    pub fn new(backoff: Backoff, reset: Duration) -> Result<Self, ConfigError> {
        let Backoff { duration, cap, .. } = backoff;
        if cap < duration && !cap.is_zero() {
            let requirement = format!("must not be below `duration`, {duration:?}");
            return Err(ConfigError::new("back-off", "cap", requirement, cap));
        }
        let start = Backoff {
            steps: u32::MAX,
            ..backoff
        };
        start.validate()?;
        Ok(Self {
            current: start.clone(),
            start,
            reset,
            clock: Clock::new(),
            last: Duration::ZERO,
        })
    }

    /// Measures idle time by `clock`. Call it only on a new manager.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

impl Iterator for ExponentialBackoffManager {
    type Item = Duration;

    /// Returns the next delay; never `None`.
    fn next(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        if now.saturating_sub(self.last) > self.reset {
            self.current = self.start.clone();
        }
        self.last = now;
        Some(self.current.step())
    }
}
