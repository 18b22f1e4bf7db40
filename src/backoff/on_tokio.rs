//! The async loops and retries with tokio's `sleep`.
//!
//! Await them within a tokio runtime that has time enabled.
//!
//! # Examples
//!
//! ```
//! use keyqueue::backoff::{self, Backoff, Interval};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let start = tokio::time::Instant::now();
//! let second = Duration::from_secs(1);
//! let backoff = Backoff { duration: second, factor: 2.0, steps: 3, ..Backoff::default() };
//! let outcome = backoff::on_tokio::retry(backoff.clone(), async || Err::<(), _>("never")).await;
//! assert_eq!(outcome, Err("never"));
//! assert_eq!(start.elapsed(), second * (1 + 2));
//!
//! let stop = tokio::time::sleep(second * 5);
//! backoff::on_tokio::backoff_until(async || (), backoff, Interval::FromStart, stop).await;
//! assert_eq!(start.elapsed(), second * (3 + 5));
//! # }
//! ```

use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;

use super::{Backoff, Interval, backoff_until_async, retry_async};

/// [`retry_async`] with tokio's `sleep`.
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
pub async fn retry<T, E, Try>(backoff: Backoff, f: impl FnMut() -> Try) -> Result<T, E>
where
    Try: Future<Output = Result<T, E>>,
{
    retry_async(backoff, f, sleep).await
}

/// [`backoff_until_async`] with tokio's `sleep`.
///
/// # Panics
///
/// Panics if it sleeps outside of a tokio runtime with time enabled, or if `f` or one of the
/// futures panics.
///
/// # Cancel safety
///
/// Dropping the future ends the loop, and cancels a run in progress.
pub async fn backoff_until<Run>(
    f: impl FnMut() -> Run,
    manager: impl IntoIterator<Item = Duration>,
    interval: Interval,
    stop: impl Future,
) where
    Run: Future,
{
    backoff_until_async(f, manager, interval, stop, sleep).await;
}
