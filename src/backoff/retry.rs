//! Retries of a fallible operation, a limited number of times.
//!
//! The number of tries is the back-off's `steps`. There is a delay between two tries and none after
//! the last, so there is one delay fewer than tries.

use std::future::Future;
use std::thread;
use std::time::Duration;

use super::Backoff;

/// Tries `f` until it succeeds, at most [`steps`](Backoff::steps) times, sleeping in between.
///
/// The first try is always made, even if `steps` is zero. To give up early on a permanent error,
/// return it as a success, with a `T` that is itself a `Result`.
///
/// # Errors
///
/// The error of the last try.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::{Backoff, retry};
/// use std::time::Duration;
///
/// let backoff = Backoff {
///     duration: Duration::from_micros(10),
///     factor: 2.0,
///     steps: 3,
///     ..Backoff::default()
/// };
/// let mut tries = 0;
/// let outcome = retry(backoff.clone(), || {
///     tries += 1;
///     if tries < 3 { Err("not yet") } else { Ok(tries) }
/// });
/// assert_eq!(outcome, Ok(3));
/// assert_eq!(retry(backoff, || Err::<(), _>("never")), Err("never"));
/// ```
pub fn retry<T, E>(backoff: Backoff, f: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    retry_with(backoff, f, thread::sleep)
}

/// Like [`retry()`], with the caller's `sleep`: for example one that can be interrupted, or one for
/// tests that does not sleep.
///
/// # Errors
///
/// The error of the last try.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::{Backoff, retry_with};
/// use std::time::Duration;
///
/// let backoff = Backoff {
///     duration: Duration::from_secs(1),
///     factor: 2.0,
///     steps: 4,
///     ..Backoff::default()
/// };
/// let mut slept = Vec::new();
/// let sleep = |delay: Duration| slept.push(delay.as_secs());
/// let outcome = retry_with(backoff, || Err::<(), _>("never"), sleep);
/// assert_eq!(outcome, Err("never"));
/// assert_eq!(slept, [1, 2, 4]);
/// ```
pub fn retry_with<T, E>(
    mut backoff: Backoff,
    mut f: impl FnMut() -> Result<T, E>,
    mut sleep: impl FnMut(Duration),
) -> Result<T, E> {
    loop {
        match f() {
            Err(_) if backoff.steps > 1 => sleep(backoff.step()),
            outcome => return outcome,
        }
    }
}

/// Like [`retry()`], for async code on any executor.
///
/// `sleep` returns a future that is ready after the given time, such as `tokio::time::sleep`.
///
/// # Cancel safety
///
/// Dropping the future gives up, and cancels a try in progress.
///
/// # Errors
///
/// The error of the last try.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::{Backoff, retry_async};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let backoff = Backoff {
///     duration: Duration::from_secs(1),
///     steps: 5,
///     ..Backoff::default()
/// };
/// let mut tries = 0;
/// let outcome = retry_async(
///     backoff,
///     || {
///         tries += 1;
///         let outcome = if tries < 3 { Err("not yet") } else { Ok(tries) };
///         async move { outcome }
///     },
///     tokio::time::sleep,
/// )
/// .await;
/// assert_eq!(outcome, Ok(3));
/// # }
/// ```
pub async fn retry_async<T, E, Try, Sleep>(
    mut backoff: Backoff,
    mut f: impl FnMut() -> Try,
    mut sleep: impl FnMut(Duration) -> Sleep,
) -> Result<T, E>
where
    Try: Future<Output = Result<T, E>>,
    Sleep: Future,
{
    loop {
        match f().await {
            Err(_) if backoff.steps > 1 => {
                sleep(backoff.step()).await;
            }
            outcome => return outcome,
        }
    }
}
