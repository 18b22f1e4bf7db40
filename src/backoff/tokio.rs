//! The async loops and retries with tokio's `sleep`.
//!
//! These are [`retry_async`] and [`backoff_until_async`](super::backoff_until_async) with
//! `tokio::time::sleep`. Await them within a tokio runtime that has time enabled.

use std::future::Future;
use std::time::Duration;

use ::tokio::time::sleep;

use super::{Backoff, Interval, retry_async};

/// Tries `f` until it succeeds, at most [`steps`](Backoff::steps) times, sleeping in between.
///
/// See [`retry_async`].
///
/// # Errors
///
/// The error of the last try.
///
/// # Panics
///
/// Panics if it sleeps outside of a tokio runtime with time enabled, or if `f` panics.
///
/// # Cancel safety
///
/// Dropping the future gives up, and cancels a try in progress.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::{self, Backoff};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let backoff = Backoff {
///     duration: Duration::from_secs(1),
///     factor: 2.0,
///     steps: 3,
///     ..Backoff::default()
/// };
/// let start = tokio::time::Instant::now();
/// let outcome = backoff::tokio::retry(backoff, async || Err::<(), _>("never")).await;
/// assert_eq!(outcome, Err("never"));
/// assert_eq!(start.elapsed().as_secs(), 1 + 2);
/// # }
/// ```
pub async fn retry<T, E, Try>(backoff: Backoff, f: impl FnMut() -> Try) -> Result<T, E>
where
    Try: Future<Output = Result<T, E>>,
{
    retry_async(backoff, f, sleep).await
}

/// Runs `f` repeatedly, with the delays of `manager` in between, until `stop` is ready.
///
/// See [`backoff_until_async`](super::backoff_until_async).
///
/// # Panics
///
/// Panics if it sleeps outside of a tokio runtime with time enabled, or if `f` or one of the
/// futures panics.
///
/// # Cancel safety
///
/// Dropping the future ends the loop, and cancels a run in progress.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::{self, Interval};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let mut starts = Vec::new();
/// backoff::tokio::backoff_until(
///     || {
///         starts.push(start.elapsed().as_secs());
///         tokio::time::sleep(Duration::from_secs(1))
///     },
///     std::iter::repeat(Duration::from_secs(10)),
///     Interval::FromStart,
///     tokio::time::sleep(Duration::from_secs(25)),
/// )
/// .await;
/// assert_eq!(starts, [0, 10, 20]);
/// # }
/// ```
pub async fn backoff_until<Run>(
    f: impl FnMut() -> Run,
    manager: impl IntoIterator<Item = Duration>,
    interval: Interval,
    stop: impl Future,
) where
    Run: Future,
{
    super::backoff_until_async(f, manager, interval, stop, sleep).await;
}
