use std::future::Future;
use std::thread;
use std::time::Duration;

use super::Backoff;

/// Tries `f` until it succeeds, at most [`steps`](Backoff::steps) times, sleeping in between.
///
/// The first try is always made, even if `steps` is zero, and no sleep follows the last. To give up
/// early on a permanent error, return it as a success, with a `T` that is itself a `Result`.
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
/// let backoff = Backoff { duration: Duration::from_micros(10), steps: 3, ..Backoff::default() };
/// let mut tries = 0;
/// let outcome = retry(backoff, || {
///     tries += 1;
///     if tries < 3 { Err("not yet") } else { Ok(tries) }
/// });
/// assert_eq!(outcome, Ok(3));
/// ```
pub fn retry<T, E>(backoff: Backoff, f: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    retry_with(backoff, f, thread::sleep)
}

/// Like [`retry()`], with the caller's `sleep`.
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
/// let second = Duration::from_secs(1);
/// let backoff = Backoff { duration: second, factor: 2.0, steps: 4, ..Backoff::default() };
/// let mut slept = Vec::new();
/// let outcome = retry_with(backoff, || Err::<(), _>("never"), |delay| slept.push(delay));
/// assert_eq!(outcome, Err("never"));
/// assert_eq!(slept, [second, second * 2, second * 4]);
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
/// let backoff = Backoff { duration: Duration::from_secs(1), steps: 3, ..Backoff::default() };
/// let outcome = retry_async(backoff, async || Err::<(), _>("never"), tokio::time::sleep).await;
/// assert_eq!(outcome, Err("never"));
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
