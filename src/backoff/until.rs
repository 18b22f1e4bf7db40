//! Loops that run something repeatedly until they are stopped.
//!
//! | [`Interval`] | lasts from | the delay is asked for |
//! | --- | --- | --- |
//! | `FromEnd` | the end of a run to the start of the next | after the run |
//! | `FromStart` | the start of a run to the start of the next, or to the end of the run if that is later | before the run |
//!
//! Ground rules: the loop checks `stop` before each run and not during one; once it has observed
//! the stop, it runs nothing more.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use super::Stop;

/// When the delay between two runs begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interval {
    /// With the first of the two runs, so the time that the run takes is part of the delay. A run
    /// that takes longer than its delay is followed by the next at once; missed runs are not made
    /// up for. In apimachinery: `sliding` is false.
    FromStart,
    /// After the first of the two runs. In apimachinery: `sliding` is true.
    FromEnd,
}

/// Runs `f` again and again, with the delays of `manager` in between, until `stop`.
///
/// Runs `f` at once, unless stopped already. A delay begins as `interval` says. A stop interrupts the
/// delay, but not a run.
///
/// `manager` is any iterator of delays. The loop also ends when the iterator does: `n` delays make
/// `n + 1` runs. An [`ExponentialBackoffManager`](super::ExponentialBackoffManager) never ends. A
/// constant delay is [`std::iter::repeat`]; a delay with jitter is
/// `std::iter::repeat_with(|| jitter(d, 0.1))`.
///
/// # Panics
///
/// Panics if `f` does, which ends the loop.
///
/// # Examples
///
/// ```
/// use keyqueue::Clock;
/// use keyqueue::backoff::{Interval, Stop, backoff_until};
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
///     Interval::FromStart,
///     &stop,
/// );
/// assert_eq!(starts, [0, 10, 20, 30]);
/// ```
pub fn backoff_until(
    mut f: impl FnMut(),
    manager: impl IntoIterator<Item = Duration>,
    interval: Interval,
    stop: &Stop,
) {
    let mut delays = manager.into_iter();
    while !stop.is_stopped() {
        let delay = match interval {
            Interval::FromEnd => {
                f();
                delays.next()
            }
            Interval::FromStart => {
                let delay = delays.next();
                let start = stop.now();
                f();
                delay.map(|delay| delay.saturating_sub(stop.now().saturating_sub(start)))
            }
        };
        let Some(delay) = delay else { return };
        stop.wait(delay);
    }
}

/// Like [`backoff_until`], for async code on any executor.
///
/// `sleep` returns a future that is ready after the given time, such as `tokio::time::sleep`.
/// `stop` is any future: the loop stops when it is ready; [`std::future::pending`] never stops it.
/// A stop interrupts a delay, but not a run.
///
/// With [`Interval::FromStart`], the sleep is made and polled along with the run, so that both start together.
///
/// # Cancel safety
///
/// Dropping the future ends the loop, and cancels a run in progress.
///
/// # Panics
///
/// Panics if `f`, `sleep` or one of the futures does, which ends the loop.
///
/// # Examples
///
/// ```
/// use keyqueue::backoff::{Interval, backoff_until_async};
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
///     Interval::FromEnd,
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
    interval: Interval,
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
        let stopped = match interval {
            Interval::FromEnd => {
                f().await;
                match delays.next() {
                    None => return,
                    Some(delay) => stops_before(stop.as_mut(), pin!(sleep(delay))).await,
                }
            }
            Interval::FromStart => match delays.next() {
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
            },
        };
        if stopped {
            return;
        }
    }
}

/// Polls the future once, and returns whether it is ready. If so, it must not be polled again.
async fn is_ready(mut future: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// Waits for `pause` or `stop`, and returns whether `stop` is ready. If both are, `stop` wins.
async fn stops_before(mut stop: Pin<&mut impl Future>, mut pause: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| {
        if stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        pause.as_mut().poll(cx).map(|_| false)
    })
    .await
}

/// Waits for the end of `run`, polling `pause` along with it. Returns whether `pause` has ended,
/// too.
async fn alongside(mut run: Pin<&mut impl Future>, mut pause: Pin<&mut impl Future>) -> bool {
    let mut paused = false;
    poll_fn(|cx| {
        // The pause is polled first, so that its time starts before the run.
        if !paused {
            paused = pause.as_mut().poll(cx).is_ready();
        }
        run.as_mut().poll(cx).map(|_| paused)
    })
    .await
}
