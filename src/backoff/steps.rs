//! `Backoff`: a sequence of growing delays.

use std::time::Duration;

use super::jitter;
use crate::ConfigError;
use crate::nanos;

/// A sequence of growing delays: apimachinery's `wait.Backoff` without its traps.
///
/// There are two ways to read it. [`step`](Self::step) answers for ever: `steps` is how often the delay
/// may still change, after that it stays. As an iterator it ends: it gives `steps` delays.
///
/// What differs from apimachinery: the first delay keeps to the cap, too; reaching the cap does not use up
/// the steps left; nothing overflows; and a factor of zero does not switch the cap off.
///
/// The fields may hold anything. [`validate`](Self::validate) refuses what makes no sense; unvalidated, a
/// negative or NaN `factor` counts as 0 and a negative or NaN `jitter` as none.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::Backoff;
/// use std::time::Duration;
///
/// let backoff = Backoff {
///     duration: Duration::from_secs(1),
///     factor: 2.0,
///     steps: 5,
///     cap: Duration::from_secs(6),
///     ..Backoff::default()
/// };
/// assert!(backoff.validate().is_ok());
///
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
    /// What a step multiplies `duration` by: 0 or above, and finite. Zero leaves it as it is; below one,
    /// the delays shrink.
    ///
    /// A product is cut to whole nanoseconds. It is exact for a whole factor, and for any other has the
    /// 53 bits of an `f64`: less than 1 ns off up to 104 days.
    pub factor: f64,
    /// How much chance adds to each delay: [`jitter()`] of this factor. Zero adds nothing; must not be
    /// negative, and must be finite.
    ///
    /// It is added after the cap, so that callers at the cap are spread out, too: a delay may be up to
    /// `cap * (1 + jitter)`. It does not go into the next delay.
    pub jitter: f64,
    /// How often the delay may still change, and how many delays the iterator still gives.
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
                let requirement = "must not be below 0, and finite";
                return Err(ConfigError::new("back-off", field, requirement, value));
            }
        }
        Ok(())
    }

    /// Returns the next delay, with jitter, and uses up one step.
    ///
    /// Without steps left, it returns the same delay (with fresh jitter) again and again.
    pub fn step(&mut self) -> Duration {
        let delay = self.capped(self.duration);
        if self.steps > 0 {
            self.steps -= 1;
            self.duration = self.capped(self.grown(delay));
        }
        jitter(delay, self.jitter)
    }

    fn capped(&self, delay: Duration) -> Duration {
        if self.cap.is_zero() {
            delay
        } else {
            delay.min(self.cap)
        }
    }

    fn grown(&self, delay: Duration) -> Duration {
        let nanos = delay.as_nanos();
        if self.factor.is_nan() || self.factor <= 0.0 {
            return delay;
        }
        // Float to integer casts saturate; an infinite factor of nothing is NaN, which becomes zero.
        let product = if self.factor.fract() == 0.0 {
            nanos.saturating_mul(self.factor as u128)
        } else {
            (nanos as f64 * self.factor) as u128
        };
        nanos::duration(product)
    }
}

/// Gives [`steps`](Backoff::steps) delays, each by [`step`](Backoff::step).
impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        (self.steps > 0).then(|| self.step())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.steps) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

impl std::iter::FusedIterator for Backoff {}
