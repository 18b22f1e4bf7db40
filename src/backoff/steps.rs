use std::time::Duration;

use super::jitter;
use crate::ConfigError;
use crate::time::nanos;

/// A sequence of growing delays: apimachinery's `wait.Backoff` without its traps.
///
/// [`step`](Self::step) can be called forever: the delay changes `steps` more times, then stays the
/// same. As an iterator, it ends after `steps` delays.
///
/// Unlike in apimachinery, the cap applies to the first delay, too, and with a factor of zero;
/// reaching it does not use up the remaining steps; and nothing overflows.
///
/// A negative or NaN `factor` or `jitter`, which [`validate`](Self::validate) refuses, counts as 0.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::Backoff;
/// use std::time::Duration;
///
/// let (duration, cap) = (Duration::from_secs(1), Duration::from_secs(6));
/// let backoff = Backoff { duration, cap, factor: 2.0, steps: 5, ..Backoff::default() };
/// let delays: Vec<u64> = backoff.clone().map(|delay| delay.as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 6, 6]);
///
/// let mut two_changes = Backoff { steps: 2, ..backoff };
/// let delays: Vec<u64> = (0..5).map(|_| two_changes.step().as_secs()).collect();
/// assert_eq!(delays, [1, 2, 4, 4, 4]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backoff {
    /// The next delay, before jitter. Each step changes it.
    pub duration: Duration,
    /// The factor by which a step multiplies `duration`: finite, and not negative. Zero leaves
    /// `duration` unchanged; with a factor below one, the delays shrink.
    ///
    /// The product is truncated to whole nanoseconds. It is exact for a whole factor; for any other
    /// it has the 53-bit precision of an `f64`, an error below 1 ns up to 104 days.
    pub factor: f64,
    /// The factor of the random part that [`jitter()`] adds to each delay: finite, and not
    /// negative.
    ///
    /// It is added after the cap, so that callers at the cap are spread out, too: a delay may be up
    /// to `cap * (1 + jitter)`. It does not affect the next delay.
    pub jitter: f64,
    /// How many more times the delay changes, and how many more delays the iterator returns.
    pub steps: u32,
    /// The longest delay, before jitter. Zero means no limit.
    pub cap: Duration,
}

impl Backoff {
    /// Checks the fields.
    ///
    /// # Errors
    ///
    /// Refuses a `factor` or `jitter` that is negative, NaN or infinite.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, value) in [("factor", self.factor), ("jitter", self.jitter)] {
            if !(value >= 0.0 && value.is_finite()) {
                let requirement = "must be finite and not below 0";
                return Err(ConfigError::new("back-off", field, requirement, value));
            }
        }
        Ok(())
    }

    /// Returns the next delay, with jitter, and uses up one step. Without steps left, it keeps
    /// returning the same delay, with fresh jitter.
    pub fn step(&mut self) -> Duration {
        let delay = self.capped(self.duration);
        if self.steps > 0 {
            self.steps -= 1;
            self.duration = self.capped(self.grown(delay));
        }
        jitter(delay, self.jitter)
    }

    fn capped(&self, delay: Duration) -> Duration {
        match self.cap {
            Duration::ZERO => delay,
            cap => delay.min(cap),
        }
    }

    fn grown(&self, delay: Duration) -> Duration {
        let nanos = delay.as_nanos();
        // Casts to integers saturate, and turn NaN (an infinite factor times zero) into zero.
        nanos::duration(if self.factor.is_nan() || self.factor <= 0.0 {
            nanos
        } else if self.factor.fract() == 0.0 {
            nanos.saturating_mul(self.factor as u128)
        } else {
            (nanos as f64 * self.factor) as u128
        })
    }
}

/// Returns [`steps`](Backoff::steps) delays, each from [`step`](Backoff::step).
impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        (self.steps > 0).then(|| self.step())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.steps as usize;
        (left, Some(left))
    }
}

impl std::iter::FusedIterator for Backoff {}
