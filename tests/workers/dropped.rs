//! Retries that are pending when the queue is shut down (the last sentence of S5).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::common::timed::{HOUR, built, ms, secs};
use crate::common::{eventually, poll, poll_until_idle, watchdog};
use crate::outcomes::{Exponential, bench};
use futures_lite::future::yield_now;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Failure, GivenUp, Job, Outcome, Reason, Workers};
use keyqueue::{Added, Clock, LeftReason, Remaining, WorkQueue, merge};

type Queue = WorkQueue<u64>;

/// Every way to end a queue, and how many delays it says that it has dropped.
const WAYS: [fn(&Queue) -> usize; 3] = [
    |queue| queue.shut_down().delayed,
    |queue| queue.shut_down_with_drain().delayed,
    |queue| {
        let _ = queue.drain_timeout(Duration::ZERO);
        queue.shut_down().delayed
    },
];

#[test] // S5
fn a_pending_retry_that_a_shut_down_drops_is_reported_once_with_its_last_failure() {
    for end in WAYS {
        let mut bench = bench(Some(5));
        bench.queue.add_all([1, 2]);
        bench.pass(0);
        bench.next(Err("still not"));
        bench.pass(5);
        bench.next(Ok(Outcome::Done));
        bench.queue.add(2); // Its retry stays pending, and it is well.
        bench.pass(0);
        assert_eq!(bench.given_up(), []);
        assert_eq!(end(&bench.queue), 2);
        bench.end();
        let ends = bench.given_up();
        assert_eq!(ends.len(), 1, "{ends:?}");
        let (key, end) = &ends[0];
        assert_eq!((*key, end.reason, end.retries), (1, Reason::Dropped, 1));
        assert_eq!(end.failure, Failure::Error("still not"));
        let text = "still not (retries: 1, the next dropped by the shut-down)";
        assert_eq!(end.to_string(), text);
        assert_eq!(bench.queue.num_requeues(&1), 0, "forgotten");
    }
}

#[test] // S5
fn threads_report_each_dropped_retry_exactly_once() {
    const KEYS: u64 = 100;
    let _watchdog = watchdog(120);
    let mut dropped = 0;
    for round in 0..30 {
        let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter).build();
        let queue = queue.unwrap();
        let (runs, ends) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        let (runs, ends) = (Arc::new(runs), Arc::new(ends));
        let workers = Workers::new(&queue).concurrency(4).on_give_up({
            let ends = Arc::clone(&ends);
            move |key: &u64, end: GivenUp<&str>| {
                let again = ends.lock().unwrap().insert(*key, end.reason);
                assert_eq!(again, None, "{key}");
            }
        });
        let work = Arc::clone(&runs);
        let running = workers.spawn(move |_: Job<'_, u64>| {
            work.fetch_add(1, Ordering::SeqCst);
            Err::<(), _>("no")
        });
        queue.add_all(0..KEYS);
        let enough = || runs.load(Ordering::SeqCst) > 3 * round;
        eventually("some have failed", enough);
        let counted = WAYS[round % 3](&queue);
        running.unwrap().join();
        let ends = ends.lock().unwrap();
        let reports = |why: Reason| ends.values().filter(|reason| **reason == why).count();
        assert_eq!(ends.len() as u64, KEYS, "each is reported");
        assert_eq!(reports(Reason::Dropped), counted);
        assert_eq!(reports(Reason::ShutDown), KEYS as usize - counted);
        dropped += counted;
    }
    assert!(dropped > 0);
}

#[test] // S5
fn a_scoped_worker_reports_a_dropped_retry_though_the_hook_panics() {
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let queue = WorkQueue::builder().rate_limiter(limiter).build().unwrap();
    queue.add_all([1, 2, 3_u64]);
    let ends = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1).on_give_up(|key, end| {
        ends.lock().unwrap().push((*key, end.reason));
        panic!("from the hook");
    });
    let run = workers.run(|job| match *job {
        3 => {
            queue.shut_down();
            Ok(())
        }
        _ => Err("no"),
    });
    run.unwrap();
    let mut ends = ends.into_inner().unwrap();
    ends.sort_by_key(|end| end.0);
    assert_eq!(ends, [(1, Reason::Dropped), (2, Reason::Dropped)]);
}

#[test] // S5 D6
fn a_retry_that_was_cancelled_is_not_reported_even_if_another_delay_is_dropped() {
    let mut bench = bench(None);
    bench.queue.add_all([1, 2]);
    bench.pass(0);
    assert!(bench.queue.cancel(&1) && bench.queue.cancel(&2));
    bench.queue.add_after(2, ms(5)); // As long as the retry would have waited.
    assert_eq!(bench.queue.shut_down().delayed, 1);
    bench.end();
    assert_eq!(bench.given_up(), []);
}

#[test] // S5
fn a_retry_that_was_delivered_to_another_getter_is_not_reported() {
    let mut bench = bench(None);
    bench.queue.add(1);
    bench.pass(0);
    bench.wait(ms(5));
    let item = bench.queue.try_get().unwrap();
    assert_eq!(*item, 1);
    let _ = item.retry_after(ms(5));
    assert_eq!(bench.queue.shut_down().delayed, 1);
    bench.end();
    assert_eq!(bench.given_up(), []);
}

/// The keys that are left, each because a delay was dropped.
fn delayed(queue: &Queue) -> Vec<u64> {
    let left = queue.take_left();
    assert!(left.iter().all(|it| it.reason == LeftReason::Delayed));
    left.iter().map(|it| it.key).collect()
}

#[test] // S5 S2 S12 S13
fn a_key_that_is_delivered_after_its_retry_was_dropped_is_reported_for_what_it_does_then() {
    for (outcome, reports) in [(Ok(Outcome::Done), 0), (Err("again"), 1)] {
        let mut bench = bench(None);
        bench.queue.add(1);
        bench.pass(0);
        bench.queue.add(1);
        assert_eq!(bench.queue.shut_down(), left(1, 1));
        bench.next(outcome);
        bench.end();
        let ends = bench.given_up();
        assert_eq!(ends.len(), reports, "{ends:?}");
        assert!(ends.iter().all(|(_, end)| end.reason == Reason::ShutDown));
        // The retry was another add.
        assert_eq!(delayed(&bench.queue), [1]);
    }
}

#[test] // S5 S13: others than the workers whose retry it was get the key.
fn a_dropped_retry_whose_key_others_get_is_left() {
    let limiter = || ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    for others in [None, Some(Ok(())), Some(Err("again"))] {
        let (queue, _time) = built(|builder| builder.rate_limiter(limiter()));
        let ends = Mutex::new(Vec::new());
        let workers = || {
            let workers = Workers::new(&queue).concurrency(1);
            workers.on_give_up(|_, end| ends.lock().unwrap().push(end.reason))
        };
        let mut run = Box::pin(workers().run_async(async |_| Err::<(), _>("no")));
        queue.add(1);
        assert!(poll_until_idle(&mut run).is_pending());
        queue.add(1);
        assert_eq!(queue.shut_down(), left(1, 1));
        match others {
            None => queue.try_get().unwrap().done(),
            Some(outcome) => {
                let mut run = Box::pin(workers().run_async(async |_| outcome));
                assert!(poll_until_idle(&mut run).is_ready());
            }
        }
        assert!(poll_until_idle(&mut run).is_ready());
        drop(run);
        let expected: &[Reason] = match others {
            Some(Err(_)) => &[Reason::ShutDown],
            _ => &[],
        };
        assert_eq!(*ends.lock().unwrap(), expected);
        assert_eq!(delayed(&queue), [1]);
    }
}

#[test] // S12 S13: the delay of the retry may be that of an add that has come since the delivery began.
fn a_delay_that_was_kept_for_a_later_add_is_left_though_its_key_succeeds() {
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let (queue, _time) = built(|builder| builder.rate_limiter(limiter));
    let is_first = Cell::new(true);
    let workers = Workers::new(&queue).concurrency(1);
    let workers = workers.on_give_up(|_, end| panic!("{end}"));
    let mut run = Box::pin(workers.run_async(async |job: Job<'_, u64>| {
        if is_first.take() {
            return Err("no");
        }
        assert_eq!(queue.add_after(*job, 2 * HOUR), Added::Delayed);
        queue.shut_down();
        Ok(())
    }));
    queue.add(1);
    assert!(poll_until_idle(&mut run).is_pending());
    queue.add(1);
    assert!(poll_until_idle(&mut run).is_ready());
    assert_eq!(delayed(&queue), [1]);
}

#[test] // S5: the key is processing, for another add, while the other worker ends.
fn a_worker_that_ends_does_not_report_a_key_that_another_one_processes() {
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let (queue, _time) = built(|builder| builder.rate_limiter(limiter));
    let (is_first, gate) = (Cell::new(true), Cell::new(false));
    let ends = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(2);
    let workers = workers.on_give_up(|_, end| ends.lock().unwrap().push(end));
    let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| {
        if is_first.take() {
            return Err("no");
        }
        while !gate.get() {
            yield_now().await;
        }
        Ok(())
    }));
    queue.add(1);
    assert!(poll_until_idle(&mut run).is_pending());
    queue.add(1);
    assert!(poll(&mut run, Waker::noop()).is_pending());
    let left = queue.shut_down();
    assert_eq!((left.processing, left.delayed), (1, 1));
    for _ in 0..10 {
        assert!(poll(&mut run, Waker::noop()).is_pending());
    }
    gate.set(true);
    assert!(poll_until_idle(&mut run).is_ready());
    drop(run);
    assert_eq!(ends.into_inner().unwrap(), []);
}

fn left(queued: usize, delayed: usize) -> Remaining {
    let mut left = Remaining::default();
    (left.queued, left.delayed) = (queued, delayed);
    left
}

#[test] // S5 S11
fn a_retry_that_a_drain_delivers_is_not_dropped() {
    let (clock, _time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let builder = WorkQueue::builder().rate_limiter(limiter).clock(clock);
    let queue = builder.manual_timers().drain_delays(true).build().unwrap();
    queue.add_all([1, 2]);
    let reasons = Mutex::new(Vec::new());
    let worked = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1).max_retries(2);
    let workers = workers.on_give_up(|key, end| reasons.lock().unwrap().push((*key, end.reason)));
    let mut run = Box::pin(workers.run_async(async |job: Job<'_, u64>| {
        worked.lock().unwrap().push(*job);
        Err::<(), _>("no")
    }));
    assert!(poll_until_idle(&mut run).is_pending());
    let mut drain = Box::pin(queue.drain_async());
    assert!(poll_until_idle(&mut drain).is_pending());
    // The drain delivers the retry of 1 to another getter, and those of 2 until there are too many.
    assert_eq!(*queue.try_get().unwrap(), 1);
    assert!(poll_until_idle(&mut run).is_ready());
    assert!(poll_until_idle(&mut drain).is_ready());
    drop(run);
    assert_eq!(worked.into_inner().unwrap(), [1, 2, 2, 2]);
    assert_eq!(reasons.into_inner().unwrap(), [(2, Reason::MaxRetries)]);
    assert_eq!(queue.take_left(), []);
}

#[test] // S5: the same key fails for two sets of workers, at first with a retry for each.
fn of_two_sets_of_workers_one_reports_a_dropped_retry() {
    for fires in [true, false] {
        let (clock, time) = Clock::mock();
        let limiter = Exponential::new(ms(5), secs(1)).unwrap();
        let builder = WorkQueue::builder().rate_limiter(limiter.with_clock(clock.clone()));
        let queue = builder.clock(clock).manual_timers().build().unwrap();
        let ends = Mutex::new(Vec::new());
        let run = |error: &'static str| {
            let workers = Workers::new(&queue).concurrency(1);
            let workers = workers.on_give_up(|key, end| ends.lock().unwrap().push((*key, end)));
            Box::pin(workers.run_async(async move |_: Job<'_, u64>| Err::<(), _>(error)))
        };
        let (mut first, mut second) = (run("first"), run("second"));
        queue.add(1);
        assert!(poll_until_idle(&mut first).is_pending());
        if fires {
            time.advance(ms(5));
            assert_eq!(queue.fire_due(), 1);
        } else {
            // The retry of the second would be later, so that of the first is kept.
            queue.add(1);
        }
        assert!(poll_until_idle(&mut second).is_pending());
        assert_eq!(queue.num_requeues(&1), 2);
        assert_eq!(queue.shut_down().delayed, 1);
        assert!(poll_until_idle(&mut first).is_ready());
        assert!(poll_until_idle(&mut second).is_ready());
        drop((first, second));
        let ends = ends.into_inner().unwrap();
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert_eq!((ends[0].0, ends[0].1.reason), (1, Reason::Dropped));
        if fires {
            assert_eq!(ends[0].1.failure, Failure::Error("second"));
        }
    }
}

#[test] // S5: its value was taken back, or another getter has delivered it.
fn a_dropped_retry_without_a_value_is_not_reported() {
    for is_taken in [true, false] {
        let (clock, time) = Clock::mock();
        let builder = WorkQueue::<u64>::builder().merge(merge::append::<Vec<u64>>);
        let queue = builder.clock(clock).manual_timers().build().unwrap();
        let ends = Mutex::new(Vec::new());
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.on_give_up(|key, _| ends.lock().unwrap().push(*key));
        let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64, _>| Err::<(), _>("no")));
        queue.put(1, vec![1]);
        assert!(poll_until_idle(&mut run).is_pending());
        queue.put(1, vec![2]);
        if is_taken {
            assert_eq!(queue.clear(), 1);
        } else {
            let mut item = queue.try_get().unwrap();
            assert_eq!(item.take(), Some(vec![1, 2]));
        }
        assert_eq!(queue.shut_down().delayed, 0);
        assert!(poll_until_idle(&mut run).is_ready());
        drop((run, time));
        assert_eq!(ends.into_inner().unwrap(), []);
    }
}

#[test] // S5 C10
fn a_retry_that_ends_elsewhere_does_not_keep_its_key_in_memory() {
    let fails = |key: &Arc<u64>| match **key {
        1 => Err("no"),
        _ => Ok(()),
    };
    for (hook, cancels) in [(true, true), (true, false), (false, true)] {
        let limiter = ItemExponentialFailure::new(secs(1), secs(1)).unwrap();
        let (queue, time) = built(|builder| builder.rate_limiter(limiter));
        let mut workers = Workers::new(&queue).concurrency(1);
        if hook {
            workers = workers.on_give_up(|_, _| panic!("none is given up"));
        }
        let mut run = Box::pin(workers.run_async(async move |job: Job<'_, Arc<u64>>| fails(&job)));
        let key = Arc::new(1);
        queue.add(Arc::clone(&key));
        assert!(poll_until_idle(&mut run).is_pending());
        if cancels {
            assert!(queue.cancel(&key));
        } else {
            time.advance(secs(1));
            assert_eq!(queue.fire_due(), 1);
            drop(queue.try_get());
        }
        if hook {
            // Any other key will do.
            queue.add(Arc::new(2));
            assert!(poll_until_idle(&mut run).is_pending());
        }
        queue.shrink();
        assert_eq!(Arc::strong_count(&key), 1, "hook {hook}, cancels {cancels}");
        queue.shut_down();
        assert!(poll_until_idle(&mut run).is_ready());
    }
}
