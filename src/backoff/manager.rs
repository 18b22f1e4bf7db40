//! Back-off for a loop that runs for ever: grows while it is busy, starts over once it was idle.

use std::time::Duration;

use super::Backoff;
use crate::{Clock, ConfigError};

/// Exponential back-off that goes back to its start after an idle time.
///
/// An endless iterator: each [`next`](Iterator::next) is the delay before the next try. If it is asked again
/// after longer than `reset`, it starts over. Made for [`backoff_until`](super::backoff_until): a
/// connection that held for an hour is not punished for the failures before.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::backoff::ExponentialBackoffManager;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), keyqueue::ConfigError> {
/// let (initial, max, reset) = (Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(60));
/// let (clock, mock) = Clock::mock();
/// let mut manager = ExponentialBackoffManager::new(initial, max, reset, 2.0, 0.0)?.with_clock(clock);
///
/// let delays: Vec<u64> = manager.by_ref().take(5).map(|delay| delay.as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 5, 5]);
///
/// mock.advance(reset + Duration::from_nanos(1));
/// assert_eq!(manager.next(), Some(initial));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ExponentialBackoffManager {
    start: Backoff,
    current: Backoff,
    reset: Duration,
    clock: Clock,
    /// When it was last asked. Zero before the first time, where starting over changes nothing.
    last: Duration,
}

impl ExponentialBackoffManager {
    /// Creates a manager that starts at `initial` and multiplies by `factor` up to `max`.
    ///
    /// `jitter` adds `U[0, jitter)` times the delay, after the maximum: a delay may be up to
    /// `max * (1 + jitter)`. A `factor` of zero keeps the delay constant.
    ///
    /// # Errors
    ///
    /// Refuses a `max` below `initial`, and a `factor` or `jitter` that is negative, NaN or infinite.
    pub fn new(
        initial: Duration,
        max: Duration,
        reset: Duration,
        factor: f64,
        jitter: f64,
    ) -> Result<Self, ConfigError> {
        if max < initial {
            let requirement = format!("must not be below `initial`, {initial:?}");
            return Err(ConfigError::new("back-off", "max", requirement, max));
        }
        let start = Backoff {
            duration: initial,
            factor,
            jitter,
            steps: u32::MAX,
            cap: max,
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

    /// Tells idle time by `clock`; for a new manager.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

impl Iterator for ExponentialBackoffManager {
    type Item = Duration;

    /// Never `None`.
    fn next(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        if now.saturating_sub(self.last) > self.reset {
            self.current = self.start.clone();
        }
        self.last = now;
        Some(self.current.step())
    }
}
