//! The async loops and retries, sleeping by tokio's clock.
//!
//! What [`retry_async`] and [`backoff_until_async`](super::backoff_until_async) are with
//! `tokio::time::sleep` as their sleep. To be awaited within a tokio runtime whose time is enabled.

use std::future::Future;
use std::time::Duration;

use ::tokio::time::sleep;

use super::{Backoff, retry_async};

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
/// If it sleeps outside of a tokio runtime with time, and if `f` does.
///
/// # Cancel safety
///
/// Dropping the future gives up, in the middle of a try if there is one.
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

/// Runs `f` again and again, with the delays of `manager` in between, until `stop` is ready.
///
/// See [`backoff_until_async`](super::backoff_until_async).
///
/// # Panics
///
/// If it sleeps outside of a tokio runtime with time, and if `f` or one of the futures does.
///
/// # Cancel safety
///
/// Dropping the future ends the loop where it is, in the middle of a run if there is one.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff;
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
///     false,
///     tokio::time::sleep(Duration::from_secs(25)),
/// )
/// .await;
/// assert_eq!(starts, [0, 10, 20]);
/// # }
/// ```
pub async fn backoff_until<Run>(
    f: impl FnMut() -> Run,
    manager: impl IntoIterator<Item = Duration>,
    sliding: bool,
    stop: impl Future,
) where
    Run: Future,
{
    super::backoff_until_async(f, manager, sliding, stop, sleep).await;
}
