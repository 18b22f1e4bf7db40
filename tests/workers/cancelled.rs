//! Futures of workers that are dropped at each of their awaits: the table in `src/worker/tasks.rs`, one test for each
//! row.

use std::cell::Cell;
use std::future::pending;
use std::sync::Mutex;
use std::task::Waker;

use crate::common::timed::{HOUR, MS, built, secs};
use crate::common::{Task, eager, figures, poll, poll_until_idle, take_all};
use futures_lite::future::yield_now;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Job, Reason, Verdict, Workers};
use keyqueue::{LeftReason, State, WorkQueue};

fn left(queue: &WorkQueue<u64, impl Sized>) -> Vec<(u64, LeftReason)> {
    let left = queue.take_left().into_iter();
    let mut left: Vec<_> = left.map(|left| (left.key, left.reason)).collect();
    left.sort_unstable();
    left
}

#[test] // C9 W6
fn a_worker_that_is_dropped_while_it_waits_passes_its_wake_up_on() {
    let queue = WorkQueue::<u64>::new();
    let mut run = Box::pin(
        Workers::new(&queue)
            .concurrency(1)
            .run_async(async |_: Job<'_, u64>| ()),
    );
    assert!(poll(&mut run, Waker::noop()).is_pending());
    let mut behind = Task::waiting(queue.get_async());
    queue.add(1);
    assert_eq!(behind.wakes(), 0);
    drop(run);
    assert_eq!(behind.wakes(), 1);
    assert_eq!(*behind.output().unwrap(), 1);
}

#[test] // W6 S11 S13 S16
fn a_key_whose_work_is_cancelled_is_delivered_again_or_left_or_done() {
    for (requeue, drains, delivered, is_left) in [
        (true, false, false, true),
        (true, true, true, false),
        (false, false, false, false),
        (false, true, false, false),
    ] {
        let limiter = ItemExponentialFailure::new(MS, secs(1)).unwrap();
        let queue = WorkQueue::builder()
            .drain_delays(drains)
            .rate_limiter(limiter);
        let queue = queue.build().unwrap();
        queue.add(1);
        let workers = Workers::new(&queue)
            .concurrency(1)
            .requeue_cancelled(requeue);
        let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| pending::<()>().await));
        assert!(poll(&mut run, Waker::noop()).is_pending());
        let mut drain = Box::pin(queue.drain_async());
        assert!(poll(&mut drain, Waker::noop()).is_pending());
        drop(run);
        assert_eq!(take_all(&queue).len(), usize::from(delivered));
        assert!(poll(&mut drain, Waker::noop()).is_ready());
        let refused = [(1, LeftReason::Refused)];
        assert_eq!(left(&queue), if is_left { &refused[..] } else { &[] });
        assert_eq!(queue.num_requeues(&1), 0, "not counted");
    }
}

#[test] // W2 W6
fn a_key_whose_work_is_cancelled_keeps_its_failures_if_it_is_put_back() {
    for (requeue, next) in [(true, 2), (false, 1)] {
        let queue = eager([1_u64]);
        let cancelled = Workers::new(&queue).concurrency(1);
        let cancelled = cancelled.requeue_cancelled(requeue);
        let mut run = Box::pin(cancelled.run_async(
            async |job: Job<'_, u64>| match job.attempt() {
                1 => Err("no"),
                _ => pending::<Result<(), _>>().await,
            },
        ));
        assert!(poll_until_idle(&mut run).is_pending());
        drop(run);
        queue.add(1);
        queue.shut_down();
        let again = Workers::new(&queue).concurrency(1);
        let seen = Mutex::new(Vec::new());
        let run = again.run(|job: Job<'_, u64>| seen.lock().unwrap().push(job.attempt()));
        run.unwrap();
        assert_eq!(seen.into_inner().unwrap(), [next]);
    }
}

#[test] // W2 W6 S16
fn a_key_whose_report_is_cancelled_keeps_its_failures_and_is_reported_again() {
    let limiter = ItemExponentialFailure::new(secs(1), HOUR).unwrap();
    let (queue, time) = built(|builder| builder.rate_limiter(limiter).manual_timers());
    queue.add(1);
    let (calls, reports) = (Cell::new(0), Mutex::new(Vec::new()));
    for is_cancelled in [true, false] {
        let workers = Workers::new(&queue).concurrency(1).max_retries(1);
        let reports = &reports;
        let workers = workers.on_give_up_async(move |_, given_up| async move {
            if is_cancelled {
                pending::<()>().await;
            }
            reports.lock().unwrap().push(given_up);
        });
        let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| {
            calls.set(calls.get() + 1);
            Err::<(), _>("no")
        }));
        assert!(poll_until_idle(&mut run).is_pending());
        if is_cancelled {
            time.advance(secs(1));
            assert_eq!(queue.fire_due(), 1);
            assert!(poll_until_idle(&mut run).is_pending());
            assert_eq!(queue.state(&1), Some(State::Processing), "the hook waits");
            drop(run);
            assert_eq!(queue.state(&1), Some(State::Queued));
            assert_eq!(queue.num_requeues(&1), 1, "neither counted nor forgotten");
        }
    }
    assert_eq!(calls.get(), 3, "two tries, and one more");
    let reports = reports.into_inner().unwrap();
    assert_eq!(reports.len(), 1);
    let report = (reports[0].reason, reports[0].retries);
    assert_eq!(report, (Reason::MaxRetries, 1));
    assert_eq!(queue.num_requeues(&1), 0, "forgotten once it is reported");
}

#[test] // S13 S16
fn a_key_whose_report_is_cancelled_after_a_shut_down_is_left() {
    for (requeue, drains) in [(true, false), (true, true), (false, false)] {
        let queue = WorkQueue::builder().drain_delays(drains).build().unwrap();
        queue.add(1);
        let workers = Workers::new(&queue)
            .concurrency(1)
            .requeue_cancelled(requeue);
        let workers = workers.on_give_up_async(|_, _| pending());
        let work = async |_: Job<'_, u64>| Verdict::GiveUp("no");
        let mut run = Box::pin(workers.run_async(work));
        assert!(poll_until_idle(&mut run).is_pending());
        queue.shut_down();
        drop(run);
        let refused = [(1, LeftReason::Refused)];
        assert_eq!(left(&queue), if requeue { &refused[..] } else { &[] });
    }
}

#[test] // W6
fn a_worker_that_is_dropped_between_two_keys_has_finished_one_and_takes_no_other() {
    let queue = WorkQueue::from_iter([1, 2]);
    let mut run = Box::pin(
        Workers::new(&queue)
            .concurrency(1)
            .run_async(async |_: Job<'_, u64>| ()),
    );
    // It lets others run after each key.
    assert!(poll(&mut run, Waker::noop()).is_pending());
    assert_eq!(
        (queue.state(&1), queue.state(&2)),
        (None, Some(State::Queued))
    );
    drop(run);
    assert_eq!(take_all(&queue), [2]);
    assert_eq!(figures(queue.shut_down()), (0, 0, 0));
}

#[test] // S5 S12 S13 S16
fn a_dropped_retry_whose_report_is_cancelled_is_left() {
    for (requeue, left_of_two) in [
        (
            true,
            &[(1, LeftReason::Refused), (2, LeftReason::Refused)][..],
        ),
        (false, &[]),
    ] {
        let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter).build().unwrap();
        queue.add_all(1..=3_u64);
        let workers = Workers::new(&queue)
            .concurrency(2)
            .requeue_cancelled(requeue);
        let workers = workers.on_give_up_async(|_, _| async {
            yield_now().await;
            pending::<()>().await;
        });
        let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| Err::<(), _>("no")));
        assert!(poll_until_idle(&mut run).is_pending());
        assert_eq!(queue.shut_down().delayed, 3);
        assert!(poll_until_idle(&mut run).is_pending());
        // Two are being reported, the third is not.
        let unreported = queue.take_left();
        assert_eq!(unreported.len(), 1);
        assert_eq!(unreported[0].reason, LeftReason::Delayed);
        drop(run);
        let left = left(&queue);
        assert_eq!(left.len(), left_of_two.len());
        assert!(
            left.iter()
                .all(|(_, reason)| *reason == LeftReason::Refused)
        );
        assert!(queue.take_left().is_empty());
        assert_eq!(queue.shut_down().delayed, 3, "as before");
    }
}

#[test] // S13 S16
fn a_report_that_has_ended_or_panicked_leaves_nothing() {
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let queue = WorkQueue::builder().rate_limiter(limiter).build().unwrap();
    queue.add_all([1, 2, 3]);
    let workers = Workers::new(&queue).concurrency(1);
    let workers = workers.on_give_up_async(|key, _| {
        assert_ne!(*key, 1, "in the hook");
        async move {
            yield_now().await;
            assert_ne!(*key, 2, "in its future");
        }
    });
    let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| Err::<(), _>("no")));
    assert!(poll_until_idle(&mut run).is_pending());
    queue.shut_down();
    assert!(poll_until_idle(&mut run).is_ready());
    drop(run);
    assert_eq!(left(&queue), []);
    let requeues = [1, 2, 3].map(|key| queue.num_requeues(&key));
    assert_eq!(requeues, [0; 3], "forgotten");
}

mod handles {
    use std::collections::BTreeSet;
    use std::future::ready;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use keyqueue::worker::Running;
    use keyqueue::{Added, Remaining};
    use tokio::runtime::Handle;

    use super::*;

    /// Workers that are tasks, of a queue whose one key the caller holds.
    fn idle(queue: &WorkQueue<u64>) -> Running<u64> {
        let workers = Workers::new(queue).concurrency(1);
        workers.spawn_on(&Handle::current(), |_| ready(())).unwrap()
    }

    fn drains_delays() -> WorkQueue<u64> {
        let queue = WorkQueue::builder().drain_delays(true).build();
        let queue = queue.unwrap();
        queue.add(1);
        queue
    }

    #[tokio::test(start_paused = true)] // S11 S16 W8
    async fn a_stop_that_is_dropped_ends_its_redelivery_and_no_workers() {
        for until in [false, true] {
            let queue = drains_delays();
            let item = queue.get().unwrap();
            let mut running = idle(&queue);
            let mut stop: std::pin::Pin<Box<dyn Future<Output = Remaining> + '_>> = match until {
                false => Box::pin(running.drain_within_async(HOUR)),
                true => Box::pin(running.run_until(ready(()), HOUR)),
            };
            assert!(poll(&mut stop, Waker::noop()).is_pending());
            drop(stop);
            assert!(queue.is_shutting_down() && !running.is_finished());
            assert_eq!(item.retry(), Added::ShutDown);
            running.join_async().await;
            assert_eq!(left(&queue), [(1, LeftReason::Refused)]);
        }
    }

    #[tokio::test(start_paused = true)] // S11 S16
    async fn a_stop_that_is_dropped_ends_no_redelivery_of_another_drain() {
        let queue = drains_delays();
        let item = queue.get().unwrap();
        let mut drain = Box::pin(queue.drain_async());
        assert!(poll(&mut drain, Waker::noop()).is_pending());
        let mut running = idle(&queue);
        drop(running.drain_within_async(HOUR));
        let mut stop = Box::pin(running.drain_within_async(HOUR));
        assert!(poll(&mut stop, Waker::noop()).is_pending());
        drop(stop);
        assert_eq!(item.retry(), Added::Deferred);
        running.join_async().await;
        assert!(drain.await.is_finished());
    }

    #[tokio::test(start_paused = true)] // S16 W8
    async fn a_stop_that_is_dropped_while_workers_report_aborts_none_of_them() {
        let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter);
        let queue = queue.build().unwrap();
        queue.add_all([1, 2]);
        let reports = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reports);
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.on_give_up_async(move |_, _| {
            let count = Arc::clone(&count);
            async move {
                tokio::time::sleep(secs(1)).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut running = workers
            .spawn_on(&Handle::current(), |_| ready(Err::<(), _>("no")))
            .unwrap();
        while queue.counts().delayed < 2 {
            tokio::task::yield_now().await;
        }
        let stop = tokio::time::timeout(MS, running.drain_within_async(HOUR)).await;
        assert!(stop.is_err());
        running.join_async().await;
        assert_eq!(reports.load(Ordering::Relaxed), 2);
        assert_eq!(queue.take_left(), []);
    }

    /// The hooks take longer than the time for the stop.
    #[tokio::test(start_paused = true)] // S12 S13 S16 W8
    async fn retries_whose_reports_a_stop_cancels_are_left() {
        const KEYS: u64 = 100;
        let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter);
        let queue = queue.build().unwrap();
        queue.add_all(0..KEYS);
        let begun = Arc::new(Mutex::new(BTreeSet::new()));
        let begins = Arc::clone(&begun);
        let workers = Workers::new(&queue).concurrency(20);
        let workers = workers.on_give_up_async(move |key, _| {
            begins.lock().unwrap().insert(*key);
            tokio::time::sleep(Duration::from_millis(300))
        });
        let mut running = workers
            .spawn_on(&Handle::current(), |_| ready(Err::<(), _>("no")))
            .unwrap();
        while queue.counts().delayed < KEYS as usize {
            tokio::task::yield_now().await;
        }
        let drained = running.drain_within_async(Duration::from_millis(100)).await;
        assert_eq!(figures(drained), (0, 0, KEYS as usize));
        running.join_async().await;
        let begun = begun.lock().unwrap();
        assert_eq!(begun.len(), 20);
        let left = left(&queue);
        assert!(left.iter().map(|(key, _)| *key).eq(0..KEYS));
        for (key, reason) in left {
            let is_refused = reason == LeftReason::Refused;
            assert_eq!(is_refused, begun.contains(&key), "{key} {reason:?}");
        }
    }

    #[tokio::test] // W6 W8 S16
    async fn a_join_that_is_dropped_leaves_the_keys_of_a_queue_that_is_shut_down() {
        let queue = WorkQueue::from_iter([1]);
        let workers = Workers::new(&queue).concurrency(1);
        let work = |_| pending::<()>();
        let running = workers.spawn_on(&Handle::current(), work).unwrap();
        while queue.counts().processing == 0 {
            tokio::task::yield_now().await;
        }
        queue.shut_down();
        drop(running.join_async());
        while queue.counts().processing > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(left(&queue), [(1, LeftReason::Refused)]);
    }
}
