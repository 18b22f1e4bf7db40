//! What a shut-down leaves, and what a drain still delivers (S11 to S13).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, MS};
use crate::common::{eventually, poll, poll_until_idle, scaled, with_queues};
use keyqueue::limiter::NoLimit;
use keyqueue::worker::{GivenUp, Job, Outcome, Reason, Verdict, Workers};
use keyqueue::{Added, GetError, LeftReason, State, WorkQueue};

type Queue = WorkQueue<u64>;

fn drains_delays() -> Queue {
    WorkQueue::builder().drain_delays(true).build().unwrap()
}

/// The keys that are left for this reason.
fn left(queue: &Queue, reason: LeftReason) -> Vec<u64> {
    let all = queue.take_left().into_iter();
    let mut keys: Vec<_> = all
        .map(|left| {
            assert_eq!(left.reason, reason, "{}", left.key);
            left.key
        })
        .collect();
    keys.sort_unstable();
    keys
}

#[test] // S12 S5 S8
fn each_key_that_is_not_finished_is_left_once() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(1..=4);
        let [dirty, retried, done] = [(); 3].map(|()| queue.get().unwrap());
        queue.add(*dirty);
        queue.add_after(5, HOUR);
        let expected = [
            (*dirty, LeftReason::Queued),
            (*retried, LeftReason::Refused),
            (*done, LeftReason::Refused),
            (4, LeftReason::Queued),
            (5, LeftReason::Delayed),
        ];
        queue.shut_down();
        assert_eq!(retried.retry_after(MS), Added::ShutDown);
        assert_eq!(done.retry_after(MS), Added::ShutDown);
        let taken = |queue: &WorkQueue<u64, (), _>| -> BTreeSet<_> {
            let left = queue.take_left().into_iter();
            left.map(|left| (left.key, left.reason)).collect()
        };
        assert_eq!(taken(&queue), BTreeSet::from(expected));
        assert!(queue.get().is_none());
        assert!(queue.take_left().is_empty(), "each is taken once");
        // It is left again, by another way.
        assert_eq!(dirty.retry_after(MS), Added::ShutDown);
        assert_eq!(taken(&queue), BTreeSet::from([(1, LeftReason::Refused)]));
        assert_eq!(queue.shut_down().refused, 3);
    });
}

#[test] // S12
fn a_shrink_and_an_open_queue_leave_nothing() {
    let queue = Queue::from_iter([1, 2]);
    queue.get().unwrap().done();
    queue.shut_down_now();
    queue.shrink();
    assert!(queue.take_left().is_empty(), "`shrink` has dropped it");

    let queue = Queue::from_iter([1, 2]);
    assert_eq!(
        left(&queue, LeftReason::Queued),
        [1, 2],
        "it ends the queue"
    );
    assert_eq!(queue.add(3), Added::ShutDown);
}

#[test] // S11
fn a_key_that_is_retried_in_a_drain_is_delivered_again_at_once() {
    let queue = drains_delays();
    queue.add(1);
    let item = queue.get().unwrap();
    assert!(!queue.drain_timeout(Duration::ZERO).is_finished());
    assert_eq!(
        item.retry(),
        Added::ShutDown,
        "the time of the drain is over"
    );
    assert_eq!(left(&queue, LeftReason::Refused), [1]);

    let queue = drains_delays();
    queue.add(1);
    let item = queue.get().unwrap();
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        eventually("the drain has begun", || queue.is_shutting_down());
        assert_eq!(queue.try_get().unwrap_err(), GetError::Empty, "not over");
        assert_eq!(item.retry_after(HOUR), Added::Deferred);
        let item = queue.get().unwrap();
        assert_eq!(
            queue.try_get().unwrap_err(),
            GetError::Empty,
            "still not over"
        );
        assert_eq!(item.retry(), Added::Deferred, "as often as it likes");
        queue.get().unwrap().done();
        let drained = drain.join().unwrap();
        assert_eq!((drained.is_finished(), drained.refused), (true, 0));
    });
    assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
    assert!(queue.take_left().is_empty());
}

#[test] // S11
fn without_drain_delays_a_retry_is_refused_and_counted() {
    let queue = Queue::from_iter([1, 2]);
    let [first, second] = [(); 2].map(|()| queue.get().unwrap());
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        eventually("the drain has begun", || queue.is_shutting_down());
        assert_eq!(first.retry(), Added::ShutDown);
        second.done();
        let drained = drain.join().unwrap();
        assert_eq!((drained.is_finished(), drained.refused), (true, 1));
        let says = "keys left: 0 queued, 0 processing, 0 delayed, 1 refused";
        assert_eq!(drained.to_string(), says);
    });
    assert_eq!(left(&queue, LeftReason::Refused), [1]);
}

#[test] // S11 S8: another end is also the end of what a drain delivers again.
fn a_shut_down_ends_the_redelivery_of_a_drain() {
    let ends: [fn(&Queue); 2] = [
        |queue| _ = queue.shut_down(),
        |queue| _ = queue.shut_down_now(),
    ];
    for end in ends {
        let queue = drains_delays();
        queue.add(1);
        let item = queue.get().unwrap();
        thread::scope(|scope| {
            let drain = scope.spawn(|| queue.shut_down_with_drain());
            let getter = scope.spawn(|| queue.get().is_none());
            eventually("the drain has begun", || queue.is_shutting_down());
            end(&queue);
            assert!(getter.join().unwrap());
            assert_eq!(item.retry(), Added::ShutDown);
            drain.join().unwrap();
        });
        assert_eq!(queue.state(&1), None);
        assert_eq!(left(&queue, LeftReason::Refused), [1]);
    }
}

#[test] // S11 W3: failures are retried in a drain, as often as is allowed; what does not fail is not.
fn workers_retry_in_a_drain_and_leave_what_they_requeue() {
    let (tries, given_up) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let queue = drains_delays();
    queue.add_all([1, 2]);
    thread::scope(|scope| {
        let workers = Workers::new(&queue).concurrency(2).max_retries(4);
        let workers = workers.on_give_up(|key, report| {
            assert_eq!((*key, report.reason), (1, Reason::MaxRetries));
            given_up.fetch_add(1, Ordering::Relaxed);
        });
        let run = scope.spawn(|| {
            workers.run(|job| {
                eventually("the drain has begun", || queue.is_shutting_down());
                if *job == 1 {
                    tries.fetch_add(1, Ordering::Relaxed);
                    return Verdict::Retry("fails");
                }
                Verdict::Ok(Outcome::RequeueAfter(HOUR))
            })
        });
        let drained = queue.shut_down_with_drain();
        assert_eq!((drained.is_finished(), drained.refused), (true, 1));
        run.join().unwrap().unwrap();
    });
    assert_eq!(tries.into_inner(), 5);
    assert_eq!(given_up.into_inner(), 1);
    assert_eq!(left(&queue, LeftReason::Refused), [2]);
}

#[test] // S13: a hook, or what is left; never both.
fn a_worker_reports_a_refused_retry_or_leaves_it() {
    for has_hook in [false, true] {
        let reports = AtomicUsize::new(0);
        let queue = Queue::from_iter([1]);
        let mut workers = Workers::new(&queue).concurrency(1);
        if has_hook {
            workers = workers.on_give_up(|_, report: GivenUp<&str>| {
                assert_eq!(report.reason, Reason::ShutDown);
                reports.fetch_add(1, Ordering::Relaxed);
            });
        }
        workers
            .run(|_| {
                queue.shut_down();
                Verdict::Retry("fails")
            })
            .unwrap();
        assert_eq!(reports.into_inner(), usize::from(has_hook));
        assert_eq!(queue.shut_down().refused, 1);
        let expected: &[u64] = if has_hook { &[] } else { &[1] };
        assert_eq!(left(&queue, LeftReason::Refused), expected);
    }
}

#[test] // S11 S13: once, whatever becomes of its report.
fn a_refused_retry_whose_report_waits_is_counted_once() {
    for (ends, requeues) in [(true, true), (true, false), (false, true), (false, false)] {
        let queue = Queue::from_iter([1]);
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.requeue_cancelled(requeues);
        let workers = workers.on_give_up_async(|_, _| async move {
            if ends {
                resume_unwind(Box::new("as intended"));
            }
            std::future::pending::<()>().await;
        });
        let mut run = Box::pin(workers.run_async(async |_| {
            queue.shut_down();
            Verdict::Retry("fails")
        }));
        assert_eq!(poll_until_idle(&mut run).is_ready(), ends);
        drop(run);
        assert_eq!(queue.shut_down().refused, 1, "{ends} {requeues}");
        let is_left = !ends && requeues;
        let expected: &[u64] = if is_left { &[1] } else { &[] };
        assert_eq!(left(&queue, LeftReason::Refused), expected);
    }
}

#[test] // S13: retries that are pending at the end.
fn a_worker_reports_a_dropped_retry_or_leaves_it() {
    for has_hook in [false, true] {
        let reports = AtomicUsize::new(0);
        let queue = Queue::from_iter([1]);
        thread::scope(|scope| {
            let mut workers = Workers::new(&queue).concurrency(1);
            if has_hook {
                workers = workers.on_give_up(|_, report| {
                    assert_eq!(report.reason, Reason::Dropped);
                    reports.fetch_add(1, Ordering::Relaxed);
                });
            }
            scope.spawn(|| workers.run(|_| Verdict::RetryAfter("fails", HOUR)));
            eventually("the retry is pending", || queue.counts().delayed == 1);
            queue.shut_down();
        });
        assert_eq!(reports.into_inner(), usize::from(has_hook));
        let expected: &[u64] = if has_hook { &[] } else { &[1] };
        assert_eq!(left(&queue, LeftReason::Delayed), expected);
    }
}

#[test] // S5 S13: it was queued as well, by an add that did not fail
fn a_dropped_retry_of_a_key_that_was_also_queued_is_left_and_not_reported() {
    let (reports, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let queue = Queue::from_iter([1]);
    thread::scope(|scope| {
        let workers = Workers::new(&queue).concurrency(1).on_give_up(|_, _| {
            reports.fetch_add(1, Ordering::Relaxed);
        });
        scope.spawn(|| {
            workers.run(|job| match *job {
                1 => Verdict::RetryAfter("fails", HOUR),
                _ => {
                    eventually("it is over", || is_over.load(Ordering::Relaxed));
                    Verdict::Ok(Outcome::Done)
                }
            })
        });
        eventually("the retry is pending", || queue.counts().delayed == 1);
        queue.add(2);
        eventually("the worker is busy", || {
            queue.state(&2) == Some(State::Processing)
        });
        assert_eq!(queue.add(1), Added::Queued);
        let left = queue.shut_down_now();
        assert_eq!((left.queued, left.processing, left.delayed), (1, 1, 1));
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(reports.into_inner(), 0);
    assert_eq!(left(&queue, LeftReason::Queued), [1]);
}

#[test] // S13: a key whose task is cancelled.
fn a_cancelled_key_is_left() {
    let queue = Queue::from_iter([1]);
    let mut run = Box::pin(Workers::new(&queue).concurrency(1).run_async(async |_| {
        std::future::pending::<()>().await;
    }));
    assert!(poll(&mut run, Waker::noop()).is_pending());
    queue.shut_down();
    drop(run);
    assert_eq!(left(&queue, LeftReason::Refused), [1]);
}

/// A key whose first clone of this kind panics.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Fragile(u64);

static CLONES: AtomicUsize = AtomicUsize::new(0);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        let clones = CLONES.fetch_add(1, Ordering::Relaxed);
        assert_ne!(clones, 7, "a clone panics");
        Fragile(self.0)
    }
}

#[test] // S12 S16
fn a_clone_that_panics_leaves_all_that_is_left() {
    let queue = WorkQueue::from_iter((0..10).map(Fragile));
    let items = [(); 5].map(|()| queue.get().unwrap());
    (10..15).for_each(|key| _ = queue.add_after(Fragile(key), HOUR));
    queue.shut_down();
    items.into_iter().for_each(|item| _ = item.retry());
    let taken = catch_unwind(AssertUnwindSafe(|| queue.take_left()));
    assert!(taken.is_err());
    let mut left = queue.take_left();
    left.sort_by(|one, other| one.key.cmp(&other.key));
    let left = left.into_iter().map(|left| (left.key.0, left.reason));
    let reason = |key| match key {
        0..5 => LeftReason::Refused,
        5..10 => LeftReason::Queued,
        _ => LeftReason::Delayed,
    };
    assert!(left.eq((0..15).map(|key| (key, reason(key)))));
    assert!(queue.take_left().is_empty());
}

#[test] // S12 W3: a key that is added while a worker has it, and that the worker requeues, is delivered and not left.
fn a_requeue_of_a_dirty_key_after_a_shut_down_is_its_next_delivery() {
    for outcome in [Outcome::RequeueAfter(HOUR), Outcome::Later(HOUR)] {
        let queue = Queue::from_iter([1]);
        let runs = AtomicUsize::new(0);
        let work = |_: Job<'_, u64>| {
            if runs.fetch_add(1, Ordering::Relaxed) > 0 {
                return Outcome::Done;
            }
            assert_eq!(queue.add(1), Added::Deferred);
            assert_eq!(queue.shut_down().processing, 1);
            outcome
        };
        Workers::new(&queue).concurrency(1).run(work).unwrap();
        assert_eq!((runs.into_inner(), queue.take_left().len()), (2, 0));
        assert_eq!(queue.shut_down().refused, 0);
    }
    // Without workers.
    let queue = Queue::from_iter([1]);
    let item = queue.get().unwrap();
    queue.add(1);
    queue.shut_down();
    assert_eq!(item.retry(), Added::Merged);
    queue.get().unwrap().done();
    assert!(queue.take_left().is_empty());
}

/// Beside the end, every key is finished, or left, or refused when it was added; and none is twice among them.
#[test] // S11 S12
fn keys_beside_an_end_are_finished_or_left() {
    for round in 0..scaled(300) {
        let queue = WorkQueue::builder().rate_limiter(NoLimit);
        let queue = queue.drain_delays(round % 2 == 0).build().unwrap();
        let [mut accepted, mut done] = [BTreeSet::new(), BTreeSet::new()];
        thread::scope(|scope| {
            let adder = scope.spawn(|| {
                let keys = 0..40;
                let is_accepted = |key: &u64| match key % 4 {
                    0 => queue.add_after(*key, HOUR).is_accepted(),
                    _ => queue.add(*key).is_accepted(),
                };
                keys.filter(is_accepted).collect::<BTreeSet<_>>()
            });
            let workers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    while let Some(item) = queue.get() {
                        if item.is_multiple_of(3) && fastrand::bool() {
                            let _ = item.retry();
                        } else {
                            done.push(*item);
                        }
                    }
                    done
                })
            });
            (0..fastrand::u32(0..200)).for_each(|_| std::hint::spin_loop());
            match round % 4 {
                0 | 1 => _ = queue.drain_timeout(Duration::from_micros(fastrand::u64(0..300))),
                2 => _ = queue.shut_down_with_drain(),
                _ => _ = queue.shut_down_now(),
            }
            let left = queue.take_left();
            accepted.extend(adder.join().unwrap());
            done.extend(
                workers
                    .into_iter()
                    .flat_map(|worker| worker.join().unwrap()),
            );
            let left = left.into_iter().chain(queue.take_left());
            for left in left {
                assert!(
                    done.insert(left.key),
                    "round {round}: {} is twice",
                    left.key
                );
            }
        });
        assert_eq!(accepted, done, "round {round}");
    }
}
