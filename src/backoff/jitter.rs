use std::time::Duration;

use crate::time::nanos;

/// Adds up to `max_factor` times `d` to `d`: `d + U[0, max_factor) * d`, saturating.
///
/// A factor that is not above zero adds nothing. (In apimachinery's `wait.Jitter`, such a factor
/// means 1.0.)
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::jitter;
/// use std::time::Duration;
///
/// let d = Duration::from_secs(10);
/// for _ in 0..100 {
///     let delay = jitter(d, 0.5);
///     assert!(d <= delay && delay < Duration::from_secs(15));
/// }
/// assert_eq!(jitter(d, 0.0), d);
/// assert_eq!(jitter(Duration::MAX, 0.5), Duration::MAX);
/// ```
#[must_use]
pub fn jitter(d: Duration, max_factor: f64) -> Duration {
    if max_factor > 0.0 {
        let most = max_factor * d.as_nanos() as f64;
        // The cast truncates, turns NaN (an infinite factor times zero) into zero, and saturates.
        d.saturating_add(nanos::duration((fastrand::f64() * most) as u128))
    } else {
        d
    }
}
