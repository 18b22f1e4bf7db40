//! apimachinery v0.37 (eed236ce), `pkg/util/wait/wait_test.go` and `loop_test.go`.
//!
//! A loop (`Until`, `JitterUntil`, `loopConditionUntilContext`) is `backoff_until`, whose stop is a
//! closed channel or a context, and a poll is `retry`. Both begin at once here. TestBackoff_Step,
//! TestExponentialBackoff, TestJitterUntilNegativeFactor and the loops that are stopped before
//! their first run are in `tests/limits/`. What tests tickers, contexts and channels has no
//! counterpart.

use std::cell::{Cell, RefCell};
use std::future::ready;
use std::iter::{repeat, repeat_with};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, NS, ms, secs};
use crate::common::{poll, watchdog};
use futures_lite::future::{or, yield_now, zip};
use keyqueue::backoff::Interval::{self, FromEnd, FromStart};
use keyqueue::backoff::{
    Backoff, ExponentialBackoffManager, Stop, backoff_until, backoff_until_async, jitter,
    retry_async, retry_with,
};
use keyqueue::{Clock, MockClock};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

const INTERVALS: [Interval; 2] = [FromEnd, FromStart];

/// Delays from 1 to 10, each twice the one before, of some unit.
fn doubling(unit: Duration) -> Backoff {
    Backoff {
        duration: unit,
        cap: unit * 10,
        factor: 2.0,
        steps: 10,
        ..Backoff::default()
    }
}

fn jittered() -> impl Iterator<Item = Duration> + Send {
    repeat_with(|| jitter(Duration::from_micros(10), 1.0))
}

// ---- loops with threads, and with tasks -----------------------------------------------------

/// Runs a loop that another thread stops after the first run, and returns when it has ended.
fn until(delays: impl Iterator<Item = Duration> + Send, interval: Interval) {
    let _watchdog = watchdog(60);
    let stop = Stop::new();
    let (called, calls) = mpsc::sync_channel(0);
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || backoff_until(|| _ = called.send(()), delays, interval, stop));
        calls.recv().unwrap();
        stop.stop();
        // A run may have begun before the stop, but only one.
        assert!(calls.iter().count() <= 1);
    });
}

#[test] // L11
fn test_until_with_a_stop_from_another_thread() {
    until(repeat(Duration::ZERO), FromEnd);
}

#[test] // L11
fn test_non_sliding_until() {
    until(repeat(Duration::ZERO), FromStart);
}

#[test] // L11
fn test_jitter_until() {
    until(jittered(), FromEnd);
}

/// The same in a task.
async fn until_with_context(delays: impl Iterator<Item = Duration>, interval: Interval) {
    let _watchdog = watchdog(60);
    let (stop, runs, called) = (Notify::new(), Cell::new(0), Notify::new());
    let run = || async {
        runs.set(runs.get() + 1);
        called.notify_one();
        yield_now().await;
    };
    let ends = backoff_until_async(run, delays, interval, stop.notified(), sleep);
    let stops = async {
        called.notified().await;
        stop.notify_one();
        runs.get()
    };
    let ((), before) = zip(ends, stops).await;
    assert_eq!(runs.get(), before, "none begins after the stop");
}

#[tokio::test] // L11
async fn test_until_with_context() {
    until_with_context(repeat(Duration::ZERO), FromEnd).await;
}

#[tokio::test] // L11
async fn test_non_sliding_until_with_context() {
    until_with_context(repeat(Duration::ZERO), FromStart).await;
}

#[tokio::test] // L11
async fn test_jitter_until_with_context() {
    until_with_context(jittered(), FromEnd).await;
}

/// Runs a loop on a simulated clock. `run` returns whether it stops the loop. Returns when the runs
/// began.
fn starts(
    delays: impl IntoIterator<Item = Duration>,
    interval: Interval,
    run: impl Fn(usize) -> bool,
) -> (Vec<Duration>, MockClock) {
    let (clock, time) = Clock::mock();
    let stop = Stop::simulated(time.clone());
    let mut starts = Vec::new();
    let run = || {
        starts.push(clock.now());
        if run(starts.len()) {
            stop.stop();
        }
    };
    backoff_until(run, delays, interval, &stop);
    (starts, time)
}

#[test] // L11
fn test_until_returns_immediately() {
    for interval in INTERVALS {
        let (starts, time) = starts(repeat(secs(30)), interval, |_| true);
        assert_eq!((starts.len(), time.clock().now()), (1, Duration::ZERO));
    }
}

#[test] // L11
fn test_jitter_until_returns_immediately() {
    let delays = repeat_with(|| jitter(secs(30), 1.0));
    let (starts, time) = starts(delays, FromEnd, |_| true);
    assert_eq!((starts.len(), time.clock().now()), (1, Duration::ZERO));
}

#[test]
fn test_jitter_until_recovers_panic() {
    let runs = Cell::new(0);
    let run = |_| {
        runs.set(runs.get() + 1);
        resume_unwind(Box::new("the first run"));
    };
    let ended = catch_unwind(AssertUnwindSafe(|| starts(jittered(), FromEnd, run)));
    // There the panic is reported, and the loop goes on. Here it ends the loop, and reaches the
    // caller: that is documented at `backoff_until`, and has no number.
    let panic = ended.map(drop).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"the first run"));
    assert_eq!(runs.get(), 1);
}

// ---- loopConditionUntilContext --------------------------------------------------------------

#[test] // L11
fn test_loop_condition_with_context_immediate_delay() {
    for interval in INTERVALS {
        // There the first run can wait for the first delay. Here it is immediate (L11) ...
        let (starts, _) = starts(repeat(secs(1)), interval, |runs| runs == 2);
        assert_eq!(starts, [secs(0), secs(1)]);
        // ... unless the caller waits.
        let (clock, time) = Clock::mock();
        let stop = Stop::simulated(time);
        assert!(!stop.wait(secs(1)));
        let run = || {
            assert_eq!(clock.now(), secs(1));
            stop.stop();
        };
        backoff_until(run, repeat(secs(1)), interval, &stop);
        assert!(stop.is_stopped());
    }
}

// A condition that is met, an error and a cancelled context are all a stop here.
#[test] // L11
fn test_loop_condition_until_context_semantic() {
    for interval in INTERVALS {
        for last in [1, 2, 5, 100] {
            let (starts, time) = starts(repeat(ms(1)), interval, |runs| runs == last);
            assert_eq!(starts.len(), last);
            assert_eq!(time.clock().now(), ms(last as u64 - 1));
        }
        // There a context that was cancelled before has one run if that is immediate. Here none
        // begins once the stop is seen (L11).
        let stop = Stop::new();
        stop.stop();
        backoff_until(|| panic!("ran"), repeat(NS), interval, &stop);
    }
}

/// Runs take `run`, and are `delay` apart. Returns how many have begun by the fourth or within a
/// second, and when the loop ended.
async fn within_a_second(run: u64, delay: u64, interval: Interval) -> (u32, Duration) {
    let (runs, enough, start) = (Cell::new(0), Notify::new(), Instant::now());
    let work = || {
        runs.set(runs.get() + 1);
        if runs.get() == 4 {
            enough.notify_one();
        }
        sleep(ms(run))
    };
    let stop = or(enough.notified(), sleep(secs(1)));
    backoff_until_async(work, repeat(ms(delay)), interval, stop, sleep).await;
    (runs.get(), start.elapsed())
}

#[tokio::test(start_paused = true)] // L11
async fn test_loop_condition_until_context_semantic_with_a_deadline() {
    for interval in INTERVALS {
        let outcome = within_a_second(0, 2000, interval).await;
        assert_eq!(outcome, (1, secs(1)), "stopped before the second");
    }
    assert_eq!(within_a_second(200, 200, FromStart).await, (4, ms(800)));
    assert_eq!(within_a_second(200, 200, FromEnd).await, (3, secs(1)));
}

#[test] // L11
fn test_loop_condition_until_context_timings() {
    let backoff = Backoff {
        duration: secs(1),
        factor: 2.0,
        steps: 2,
        ..Backoff::default()
    };
    for interval in INTERVALS {
        for (last, expected) in [(1, &[1][..]), (2, &[1, 2])] {
            let taken = RefCell::new(Vec::new());
            let delays = backoff.clone();
            let delays = delays.inspect(|delay| taken.borrow_mut().push(delay.as_secs()));
            let (starts, _) = starts(delays, interval, |runs| runs == last);
            assert_eq!(starts, [secs(0), secs(1)][..last]);
            assert_eq!(taken.into_inner(), expected, "one for each run");
        }
    }
}

#[test] // L9 L11: of ten runs; there the first has a delay, too
fn test_loop_condition_until_context_elapsed() {
    for interval in INTERVALS {
        let elapsed = |factor, delay| {
            let delays = repeat_with(|| jitter(delay, factor));
            let (_, time) = starts(delays, interval, |runs| runs == 10);
            time.clock().now()
        };
        assert!((ms(9)..ms(18)).contains(&elapsed(1.0, ms(1))));
        assert_eq!(elapsed(0.0, ms(1)), ms(9));
        assert_eq!(elapsed(0.0, Duration::ZERO), Duration::ZERO);
    }
}

// ---- polls ----------------------------------------------------------------------------------

/// What a condition returns: whether it is met, or an error that ends the poll.
type Said = Result<bool, &'static str>;

/// How a poll ended: with the condition met or an error of it, or out of steps.
type End = Result<Result<(), &'static str>, &'static str>;

const MET: End = Ok(Ok(()));
const FAILED: End = Ok(Err("failed"));
const TIMED_OUT: End = Err("timed out");

/// Polls a condition every second, in a thread and in a task, and returns the end, the number of
/// tries and of seconds slept.
fn polled(steps: u32, condition: impl Fn(u32) -> Said) -> (End, u32, u64) {
    let backoff = || Backoff {
        duration: secs(1),
        steps,
        ..Backoff::default()
    };
    let one = |tries: &Cell<u32>| {
        tries.set(tries.get() + 1);
        match condition(tries.get()) {
            Ok(true) => MET,
            Ok(false) => TIMED_OUT,
            // An error that ends the retries is a success for them.
            Err(error) => Ok(Err(error)),
        }
    };
    let (tries, slept) = (Cell::new(0), Cell::new(0));
    let sleep = |d: Duration| slept.set(slept.get() + d.as_secs());
    let end = retry_with(backoff(), || one(&tries), sleep);
    let in_thread = (end, tries.get(), slept.get());

    let (tries, slept) = (Cell::new(0), Cell::new(0));
    let sleep = |d: Duration| ready(slept.replace(slept.get() + d.as_secs()));
    let end = pollster::block_on(retry_async(backoff(), || ready(one(&tries)), sleep));
    assert_eq!((end, tries.get(), slept.get()), in_thread);
    in_thread
}

// There it waits for a tick first. Here the first try is immediate, as in `PollImmediate` there.
#[test] // L9
fn test_poll() {
    assert_eq!(polled(1, |_| Ok(true)), (MET, 1, 0));
    assert_eq!(polled(5, |_| Ok(true)), (MET, 1, 0));
}

#[test] // L9
fn test_poll_error() {
    assert_eq!(polled(1, |_| Err("failed")), (FAILED, 1, 0));
    assert_eq!(polled(5, |_| Err("failed")), (FAILED, 1, 0));
    assert_eq!(
        polled(5, |tries| if tries < 3 { Ok(false) } else { Err("failed") }),
        (FAILED, 3, 2)
    );
}

#[test] // L9: of two ticks, after each of which there is a try
fn test_wait_for() {
    assert_eq!(polled(3, |_| Ok(true)), (MET, 1, 0));
    assert_eq!(polled(3, |_| Ok(false)), (TIMED_OUT, 3, 2));
    assert_eq!(polled(3, |_| Err("failed")), (FAILED, 1, 0));
}

#[test] // L9
fn test_poll_forever() {
    let tries = 100_000;
    let forever = u32::MAX;
    let end = polled(forever, |n| Ok(n == tries));
    assert_eq!(end, (MET, tries, u64::from(tries) - 1));
}

#[test] // L9
fn test_exponential_backoff_with_context() {
    // There no step is no try. Here the first try is always made.
    assert_eq!(polled(0, |_| Ok(false)), (TIMED_OUT, 1, 0));
    assert_eq!(polled(1, |_| Ok(false)), (TIMED_OUT, 1, 0));
    assert_eq!(polled(1, |_| Ok(true)), (MET, 1, 0));
    assert_eq!(polled(5, |_| Ok(false)), (TIMED_OUT, 5, 4));
    assert_eq!(polled(5, |tries| Ok(tries == 3)), (MET, 3, 2));
    assert_eq!(polled(5, |_| Err("failed")), (FAILED, 1, 0));
}

/// Retries what fails until its future is dropped, which is a cancelled context here, and returns
/// the number of tries.
fn cancelled_after(tries: u32) -> u32 {
    let count = Cell::new(0);
    let backoff = Backoff {
        steps: 5,
        ..Backoff::default()
    };
    let one = || {
        count.set(count.get() + 1);
        ready(Err::<(), _>(()))
    };
    let mut retries = Box::pin(retry_async(backoff, one, |_| yield_now()));
    for _ in 0..tries {
        assert!(poll(&mut retries, Waker::noop()).is_pending());
    }
    drop(retries);
    count.get()
}

#[test] // L9
fn test_poll_immediate_until_with_context() {
    assert_eq!(polled(9, |_| Err("failed")), (FAILED, 1, 0));
    assert_eq!(polled(9, |tries| Ok(tries > 3)), (MET, 4, 3));
    // There a context that was cancelled before has one try. Here a future that is not polled has
    // none.
    assert_eq!(cancelled_after(0), 0);
    assert_eq!(cancelled_after(4), 4);
}

// ---- managers -------------------------------------------------------------------------------

#[test] // L10
fn test_exponential_backoff_manager_get_next_backoff() {
    let (clock, time) = Clock::mock();
    let manager = ExponentialBackoffManager::new(doubling(NS), NS * 10).unwrap();
    let mut manager = manager.with_clock(clock);
    for expected in [1, 2, 4, 8, 10, 10, 10] {
        assert_eq!(manager.next(), Some(NS * expected));
    }
    time.advance(NS * 11);
    assert_eq!(manager.next(), Some(NS));
}

// A wait on a simulated clock takes exactly as long as it is to take at least there.
#[test] // L10 L11
fn test_exponential_backoff_manager_with_real_clock() {
    let (clock, time) = Clock::mock();
    let manager = ExponentialBackoffManager::new(doubling(ms(1)), HOUR).unwrap();
    let stop = Stop::simulated(time.clone());
    let waits = manager.with_clock(time.clock()).take(7).map(|delay| {
        let start = clock.now();
        assert!(!stop.wait(delay));
        clock.now() - start
    });
    assert!(waits.eq([1, 2, 4, 8, 10, 10, 10].map(ms)));
}

#[test] // L10
fn test_backoff_delay_with_reset_empty() {
    let (clock, time) = Clock::mock();
    let manager = ExponentialBackoffManager::new(doubling(NS), Duration::ZERO).unwrap();
    let mut manager = manager.with_clock(clock);
    // There a `reset` of zero starts over in each call. Here the time must be longer than that
    // (L10), and the clock stands still.
    let delays: Vec<_> = manager.by_ref().take(5).collect();
    assert_eq!(delays, [1, 2, 4, 8, 10].map(|n| NS * n));
    for _ in 0..5 {
        time.advance(NS);
        assert_eq!(manager.next(), Some(NS));
    }
}

#[test] // L9 L10 L13
fn test_backoff_delay_with_reset_jitter() {
    let backoff = |jitter| Backoff {
        duration: secs(1),
        jitter,
        ..Backoff::default()
    };
    let manager = ExponentialBackoffManager::new(backoff(1.0), Duration::ZERO).unwrap();
    let delays: Vec<_> = manager.take(100).collect();
    assert!(delays.iter().all(|d| (secs(1)..secs(2)).contains(d)));
    assert!(delays.iter().any(|d| *d > ms(1500)), "{delays:?}");
    // There a negative jitter is none. Here a manager refuses it (L13).
    let refused = ExponentialBackoffManager::new(backoff(-1.0), Duration::ZERO).unwrap_err();
    assert_eq!((refused.field(), refused.value()), ("jitter", "-1.0"));
}
