use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::time::Duration;

use super::Stop;
use crate::wait::race::race;

/// When the delay between two runs begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interval {
    /// With the start of the first run. A run that takes longer than its delay is followed by the
    /// next at once; missed runs are not made up for. In apimachinery: `sliding` is false.
    FromStart,
    /// With the end of the first run. In apimachinery: `sliding` is true.
    FromEnd,
}

/// Runs `f` again and again, with the delays of `manager` in between, until `stop`. A stop
/// interrupts a delay, but not a run; it is checked before each run.
///
/// `manager` is any iterator of delays, such as an
/// [`ExponentialBackoffManager`](super::ExponentialBackoffManager), [`std::iter::repeat`], or
/// `std::iter::repeat_with(|| jitter(d, 0.1))`. The loop also ends when the iterator does: `n`
/// delays make `n + 1` runs.
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
/// let run = || {
///     starts.push(clock.now().as_secs());
///     mock.advance(Duration::from_secs(1)); // the run takes a second
/// };
/// let delays = [Duration::from_secs(10); 3];
/// backoff_until(run, delays, Interval::FromStart, &stop);
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
/// `sleep` returns a future that is ready after the given time, such as `tokio::time::sleep`. The
/// loop stops when the future `stop` is ready; [`std::future::pending`] never is. With
/// [`Interval::FromStart`], the sleep is polled along with the run, so that both start together.
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
/// use tokio::time::sleep;
///
/// let start = tokio::time::Instant::now();
/// let mut starts = Vec::new();
/// let run = || {
///     starts.push(start.elapsed().as_secs());
///     sleep(Duration::from_secs(1))
/// };
/// let delays = std::iter::repeat(Duration::from_secs(10));
/// let stop = sleep(Duration::from_secs(30));
/// backoff_until_async(run, delays, Interval::FromEnd, stop, sleep).await;
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
    while race(stop.as_mut(), pin!(ready(()))).await.is_err() {
        let stopped = match interval {
            Interval::FromEnd => {
                f().await;
                let Some(delay) = delays.next() else { return };
                race(stop.as_mut(), pin!(sleep(delay))).await.is_ok()
            }
            Interval::FromStart => {
                let Some(delay) = delays.next() else {
                    f().await;
                    return;
                };
                let mut pause = pin!(sleep(delay));
                let paused = alongside(pin!(f()), pause.as_mut()).await;
                !paused && race(stop.as_mut(), pause).await.is_ok()
            }
        };
        if stopped {
            return;
        }
    }
}

/// Waits for the end of `run`, polling `pause` along with it, and returns whether `pause` has
/// ended.
async fn alongside(mut run: Pin<&mut impl Future>, mut pause: Pin<&mut impl Future>) -> bool {
    let mut paused = false;
    poll_fn(|cx| {
        // The pause is polled first, so that its time starts before the run.
        paused = paused || pause.as_mut().poll(cx).is_ready();
        run.as_mut().poll(cx).map(|_| paused)
    })
    .await
}
