use std::time::Duration;

use super::Backoff;
use crate::{Clock, ConfigError};

/// Exponential back-off that goes back to its start after an idle time.
///
/// This is an endless iterator. If the last call of [`next`](Iterator::next) was longer than
/// `reset` ago, the delays start over: in [`backoff_until`](super::backoff_until), after a
/// connection that held for an hour, the earlier failures no longer count.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::backoff::{Backoff, ExponentialBackoffManager};
/// use std::time::Duration;
///
/// let (duration, cap) = (Duration::from_secs(1), Duration::from_secs(5));
/// let backoff = Backoff { duration, cap, factor: 2.0, ..Backoff::default() };
/// let reset = Duration::from_secs(60);
/// let (clock, mock) = Clock::mock();
/// let mut manager = ExponentialBackoffManager::new(backoff, reset)?.with_clock(clock);
///
/// let delays: Vec<u64> = manager.by_ref().take(5).map(|delay| delay.as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 5, 5]);
/// mock.advance(reset + Duration::from_nanos(1));
/// assert_eq!(manager.next(), Some(Duration::from_secs(1)));
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExponentialBackoffManager {
    start: Backoff,
    current: Backoff,
    reset: Duration,
    clock: Clock,
    /// The time of the last call of `next`; before the first, starting over changes nothing.
    last: Duration,
}

impl ExponentialBackoffManager {
    /// Creates a manager with the delays of `backoff`, up to its `cap`; its `steps` do not count.
    ///
    /// # Errors
    ///
    /// Refuses what [`Backoff::validate`] refuses, and a `cap` below the `duration`, unless it is
    /// zero.
    pub fn new(mut backoff: Backoff, reset: Duration) -> Result<Self, ConfigError> {
        let Backoff { duration, cap, .. } = backoff;
        if cap < duration && !cap.is_zero() {
            let requirement = format!("must not be below `duration`, {duration:?}");
            return Err(ConfigError::new("back-off", "cap", requirement, cap));
        }
        backoff.validate()?;
        backoff.steps = u32::MAX;
        Ok(Self {
            current: backoff.clone(),
            start: backoff,
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
