//! The loops and retries of back-off: apimachinery's tables under their names, then the promises.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn, ready};
use std::iter;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::backoff::{doubling, manager};
use crate::common::timed::{NS, ms, secs};
use crate::common::watchdog;
use keyqueue::Clock;
use keyqueue::backoff::Interval::{FromEnd, FromStart};
use keyqueue::backoff::{
    Interval, Stop, backoff_until, backoff_until_async, retry_async, retry_with,
};

// ---- blocking loops

/// Runs a loop of runs of `takes` each and delays of a second; returns when the runs started.
fn starts(takes: Duration, interval: Interval, until: Duration) -> Vec<Duration> {
    let (clock, mock) = Clock::mock();
    let stop = Stop::simulated(mock.clone());
    let mut starts = Vec::new();
    let run = || {
        starts.push(clock.now());
        mock.advance(takes);
        if clock.now() >= until {
            stop.stop();
        }
    };
    backoff_until(run, iter::repeat(secs(1)), interval, &stop);
    starts
}

/// How long a run takes, the interval, how long the loop runs, and when its runs start.
const STARTS: [(u64, Interval, u64, &[u64]); 3] = [
    (300, FromEnd, 3950, &[0, 1300, 2600, 3900]),
    (300, FromStart, 3050, &[0, 1000, 2000, 3000]),
    // Longer than its interval: followed by the next at once.
    (2500, FromStart, 5050, &[0, 2500, 5000]),
];

#[test] // L11
fn an_interval_counts_from_the_end_of_a_run_or_from_its_start() {
    for (takes, interval, until, expected) in STARTS {
        let expected: Vec<_> = expected.iter().copied().map(ms).collect();
        assert_eq!(starts(ms(takes), interval, ms(until)), expected);
    }
}

#[test] // L11
fn test_until() {
    for interval in [FromEnd, FromStart] {
        let (clock, mock) = Clock::mock();
        let stop = Stop::simulated(mock);
        stop.stop();
        backoff_until(|| panic!("ran"), iter::repeat(secs(1)), interval, &stop);
        assert_eq!(clock.now(), Duration::ZERO, "no wait either");
    }
}

#[test] // L11
fn a_stop_interrupts_the_sleep_and_nothing_runs_after_it() {
    let _watchdog = watchdog(60);
    for (interval, delay) in [
        (FromEnd, secs(3600)),
        (FromEnd, Duration::MAX),
        (FromStart, secs(3600)),
    ] {
        let stop = Stop::new();
        let (ran, runs) = mpsc::channel();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let run = || ran.send(()).unwrap();
                backoff_until(run, iter::repeat(delay), interval, &stop);
            });
            runs.recv().unwrap();
            stop.stop();
            sleeper.join().unwrap();
        });
        assert!(runs.try_recv().is_err(), "one run only");
        assert!(stop.is_stopped());
    }
}

#[test] // L11
fn a_loop_ends_with_its_delays() {
    for interval in [FromEnd, FromStart] {
        let (clock, mock) = Clock::mock();
        let stop = Stop::simulated(mock);
        let mut runs = 0;
        backoff_until(|| runs += 1, doubling(secs(1), 3), interval, &stop);
        assert_eq!((runs, clock.now()), (4, secs(1 + 2 + 4)));
        assert!(!stop.is_stopped());
    }
}

#[test] // L10 L11: a run that held for longer than `reset` was no failure.
fn a_long_run_starts_the_back_off_over() {
    let (manager, mock) = manager(secs(60));
    let clock = mock.clock();
    let stop = Stop::simulated(mock.clone());
    let mut starts = Vec::new();
    let run = || {
        starts.push(clock.now().as_secs());
        match starts.len() {
            4 => mock.advance(secs(100)),
            6 => stop.stop(),
            _ => {}
        }
    };
    backoff_until(run, manager, FromEnd, &stop);
    assert_eq!(starts, [0, 1, 3, 7, 108, 110]);
}

// ---- async loops

/// `starts`, async and under tokio's paused clock.
async fn starts_async<S: Future>(
    takes: Duration,
    interval: Interval,
    until: Duration,
    sleep: impl FnMut(Duration) -> S,
) -> Vec<Duration> {
    let begin = tokio::time::Instant::now();
    let mut starts = Vec::new();
    let run = || {
        starts.push(begin.elapsed());
        tokio::time::sleep(takes)
    };
    let stop = tokio::time::sleep(until);
    backoff_until_async(run, iter::repeat(secs(1)), interval, stop, sleep).await;
    starts
}

#[tokio::test(start_paused = true)] // L11
async fn async_intervals_slide_or_not_as_the_blocking_ones() {
    for (takes, interval, until, expected) in STARTS {
        let expected: Vec<_> = expected.iter().copied().map(ms).collect();
        let starts = starts_async(ms(takes), interval, ms(until), tokio::time::sleep).await;
        assert_eq!(starts, expected);
        // A sleep whose time begins when it is first polled begins with the run, not after it.
        let sleep = async |time| tokio::time::sleep(time).await;
        let starts = starts_async(ms(takes), interval, ms(until), sleep).await;
        assert_eq!(starts, expected);
    }
}

/// A future that is ready once `flag` is set, and must not be polled again then.
fn when_set(flag: &Cell<bool>) -> impl Future<Output = ()> {
    let mut done = false;
    poll_fn(move |_| {
        assert!(!done, "polled after it was ready");
        done = flag.get();
        if done { Poll::Ready(()) } else { Poll::Pending }
    })
}

#[test] // L11
fn an_async_loop_never_runs_once_stop_is_seen() {
    let _watchdog = watchdog(60);
    for interval in [FromEnd, FromStart] {
        // Stopped before it begins.
        pollster::block_on(backoff_until_async(
            || -> std::future::Ready<()> { panic!("ran") },
            iter::repeat(secs(1)),
            interval,
            ready(()),
            |_| ready(()),
        ));
        // Stopped by the third run, whose sleep is over at once.
        let (stopped, runs) = (Cell::new(false), Cell::new(0));
        pollster::block_on(backoff_until_async(
            || {
                runs.set(runs.get() + 1);
                stopped.set(runs.get() == 3);
                ready(())
            },
            iter::repeat(secs(1)),
            interval,
            when_set(&stopped),
            |_| ready(()),
        ));
        assert_eq!(runs.get(), 3);
    }
}

#[test] // L11
fn an_async_stop_interrupts_the_sleep() {
    let _watchdog = watchdog(60);
    for interval in [FromEnd, FromStart] {
        let (stopped, runs) = (Cell::new(false), Cell::new(0));
        futures_lite::future::block_on(backoff_until_async(
            || async { runs.set(runs.get() + 1) },
            iter::repeat(secs(1)),
            interval,
            when_set(&stopped),
            |_| {
                // A sleep that never ends, in which the stop arrives.
                poll_fn(|cx| {
                    stopped.set(true);
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                })
            },
        ));
        assert_eq!(runs.get(), 1);
    }
}

#[test] // L11
fn an_async_loop_ends_with_its_delays_on_any_executor() {
    for interval in [FromEnd, FromStart] {
        let (runs, slept) = (Cell::new(0), RefCell::new(Vec::new()));
        futures_lite::future::block_on(backoff_until_async(
            || {
                runs.set(runs.get() + 1);
                futures_lite::future::yield_now()
            },
            doubling(secs(1), 3),
            interval,
            pending::<()>(),
            |delay| {
                slept.borrow_mut().push(delay);
                futures_lite::future::yield_now()
            },
        ));
        assert_eq!(
            (runs.get(), slept.into_inner()),
            (4, [1, 2, 4].map(secs).to_vec())
        );
    }
}

#[test]
fn async_loops_can_move_between_threads() {
    fn assert_send<T: Send>(_: T) {}
    assert_send(backoff_until_async(
        || ready(()),
        iter::repeat(secs(1)),
        FromEnd,
        ready(()),
        |_| ready(()),
    ));
    assert_send(retry_async(
        doubling(NS, 1),
        || ready(Ok::<_, ()>(())),
        |_| ready(()),
    ));
}

// ---- retries

/// Tries what succeeds at the `success`th try; returns the outcome and the sleeps.
fn retried(is_async: bool, steps: u32, success: u32) -> (Result<u32, u32>, Vec<Duration>) {
    let (mut tries, mut slept) = (0, Vec::new());
    let mut attempt = || {
        tries += 1;
        if tries == success {
            Ok(tries)
        } else {
            Err(tries)
        }
    };
    let mut sleep = |delay| slept.push(delay);
    let backoff = doubling(secs(1), steps);
    let outcome = if is_async {
        let sleep = |delay| {
            sleep(delay);
            ready(())
        };
        pollster::block_on(retry_async(backoff, || ready(attempt()), sleep))
    } else {
        retry_with(backoff, attempt, sleep)
    };
    (outcome, slept)
}

#[test]
fn test_exponential_backoff() {
    for is_async in [false, true] {
        let retried = |steps, success| retried(is_async, steps, success);
        assert_eq!(retried(3, 0), (Err(3), [1, 2].map(secs).to_vec()));
        assert_eq!(retried(3, 1), (Ok(1), vec![]));
        assert_eq!(retried(3, 3), (Ok(3), [1, 2].map(secs).to_vec()));
        assert_eq!(retried(3, 4), (Err(3), [1, 2].map(secs).to_vec()));
        assert_eq!(retried(1, 0), (Err(1), vec![]));
        assert_eq!(retried(0, 0), (Err(1), vec![]), "one try is always made");
    }
}
