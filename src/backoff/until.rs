//! Loops that run something again and again until they are stopped.
//!
//! | `sliding` | an interval lasts from | the delay is asked for |
//! | --- | --- | --- |
//! | true | the end of a run to the start of the next | after the run |
//! | false | the start of a run to the start of the next, or to the end of the run if that is later | before the run |
//!
//! Ground rules: stop is looked at before each run, and not during one; after it was seen, nothing runs.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use super::Stop;

/// Runs `f` again and again, with the delays of `manager` in between, until `stop`.
///
/// Runs `f` at once, unless stopped already. With `sliding`, a delay counts from the end of a run;
/// without, from its start, so that the time `f` takes is part of the delay (and if `f` takes longer, it
/// runs again at once: missed runs are not made up for). A stop interrupts the delay, but not a run.
///
/// `manager` is any iterator of delays; the loop also ends once it has no more: `n` delays make `n + 1`
/// runs. An [`ExponentialBackoffManager`](super::ExponentialBackoffManager) never ends. A constant delay
/// is [`std::iter::repeat`], one with jitter `std::iter::repeat_with(|| jitter(d, 0.1))`.
///
/// # Panics
///
/// If `f` does: the loop ends there.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::backoff::{Stop, backoff_until};
/// use std::time::Duration;
///
/// let (clock, mock) = Clock::mock();
/// let stop = Stop::simulated(mock.clone());
/// let mut starts = Vec::new();
/// backoff_until(
///     || {
///         starts.push(clock.now().as_secs());
///         mock.advance(Duration::from_secs(1)); // the run takes a second
///         if starts.len() == 4 {
///             stop.stop();
///         }
///     },
///     std::iter::repeat(Duration::from_secs(10)),
///     false,
///     &stop,
/// );
/// assert_eq!(starts, [0, 10, 20, 30]);
/// ```
pub fn backoff_until(
    mut f: impl FnMut(),
    manager: impl IntoIterator<Item = Duration>,
    sliding: bool,
    stop: &Stop,
) {
    let mut delays = manager.into_iter();
    while !stop.is_stopped() {
        let delay = if sliding {
            f();
            delays.next()
        } else {
            let delay = delays.next();
            let start = stop.now();
            f();
            delay.map(|delay| delay.saturating_sub(stop.now().saturating_sub(start)))
        };
        let Some(delay) = delay else { return };
        stop.wait(delay);
    }
}

/// [`backoff_until`] for async code, on any executor.
///
/// `sleep` makes the future that ends after a given time, such as `tokio::time::sleep`. `stop` is any
/// future: the loop stops when it is ready; [`std::future::pending`] never stops it. A stop interrupts
/// the delay, but not a run.
///
/// Without `sliding`, the sleep is made and polled along with the run, so that both start together.
///
/// # Cancel safety
///
/// Dropping the future ends the loop where it is, in the middle of a run if there is one.
///
/// # Panics
///
/// If `f`, `sleep` or one of the futures does: the loop ends there.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::backoff_until_async;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let mut starts = Vec::new();
/// backoff_until_async(
///     || {
///         starts.push(start.elapsed().as_secs());
///         async { tokio::time::sleep(Duration::from_secs(1)).await }
///     },
///     std::iter::repeat(Duration::from_secs(10)),
///     true,
///     tokio::time::sleep(Duration::from_secs(30)),
///     tokio::time::sleep,
/// )
/// .await;
/// assert_eq!(starts, [0, 11, 22]);
/// # }
/// ```
pub async fn backoff_until_async<Run, Sleep>(
    mut f: impl FnMut() -> Run,
    manager: impl IntoIterator<Item = Duration>,
    sliding: bool,
    stop: impl Future,
    mut sleep: impl FnMut(Duration) -> Sleep,
) where
    Run: Future,
    Sleep: Future,
{
    let mut stop = pin!(stop);
    let mut delays = manager.into_iter();
    if is_ready(stop.as_mut()).await {
        return;
    }
    loop {
        let stopped = if sliding {
            f().await;
            match delays.next() {
                None => return,
                Some(delay) => stops_before(stop.as_mut(), pin!(sleep(delay))).await,
            }
        } else {
            match delays.next() {
                None => {
                    f().await;
                    return;
                }
                Some(delay) => {
                    let mut pause = pin!(sleep(delay));
                    if alongside(pin!(f()), pause.as_mut()).await {
                        is_ready(stop.as_mut()).await
                    } else {
                        stops_before(stop.as_mut(), pause).await
                    }
                }
            }
        };
        if stopped {
            return;
        }
    }
}

/// Polls once: whether the future is ready. If it is, it must not be polled again.
async fn is_ready(mut future: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// Waits for the end of `pause`, or for `stop`: whether that came. It wins a tie.
async fn stops_before(mut stop: Pin<&mut impl Future>, mut pause: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| {
        if stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        pause.as_mut().poll(cx).map(|_| false)
    })
    .await
}

/// Waits for the end of `run` and keeps `pause` going: whether that has ended, too.
async fn alongside(mut run: Pin<&mut impl Future>, mut pause: Pin<&mut impl Future>) -> bool {
    let mut paused = false;
    poll_fn(|cx| {
        // The pause first: its time starts with its first poll, before the run's.
        if !paused {
            paused = pause.as_mut().poll(cx).is_ready();
        }
        run.as_mut().poll(cx).map(|_| paused)
    })
    .await
}
