//! The job: one thing that a function gets in threads, futures and tasks (W9), and the table in `src/worker/job.rs`, one
//! test for each row.
//!
//! That a cancelled future keeps the value is tested with the values: `values::tasks` and `values::runtime`.

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::timed::{ms, secs};
use crate::common::{eager, poll_until_idle, watchdog};
use keyqueue::limiter::NoLimit;
use keyqueue::worker::{IntoVerdict, Job, Outcome, Verdict, Workers};
use keyqueue::{Added, Builder, Clock, Ended, Receipt, WorkQueue, merge};

type Lists = WorkQueue<u64, Vec<u32>>;
type ListJob<'j> = Job<'j, u64, Vec<u32>>;

fn lists(set: impl FnOnce(Builder<u64, Vec<u32>>) -> Builder<u64, Vec<u32>>) -> Lists {
    set(WorkQueue::builder()
        .rate_limiter(NoLimit)
        .merge(merge::append))
    .build()
    .unwrap()
}

fn tracked(queue: &Lists, key: u64, value: Vec<u32>) -> Receipt {
    let (entry, receipt) = queue.entry(key).tracked();
    entry.put(value);
    receipt
}

/// A way to run workers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Scoped,
    Spawned,
    Future,
    Tasks,
}

pub(crate) const WAYS: &[Way] = &[Way::Scoped, Way::Spawned, Way::Future, Way::Tasks];

impl Way {
    /// Runs one worker until the queue is shut down and empty.
    pub(crate) fn run<V, E, R>(
        self,
        workers: Workers<'static, u64, V, E>,
        f: impl Fn(Job<'_, u64, V>) -> R + Send + Sync + 'static,
    ) where
        V: Send + 'static,
        E: fmt::Display + 'static,
        R: IntoVerdict<Error = E> + Send + 'static,
    {
        match self {
            Way::Scoped => workers.concurrency(1).run(f).unwrap(),
            Way::Spawned => workers.concurrency(1).spawn(f).unwrap().join(),
            Way::Future => {
                let run = workers
                    .concurrency(1)
                    .run_async(async |job: Job<'_, _, _>| f(job));
                pollster::block_on(run).unwrap();
            }
            Way::Tasks => {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let f = Arc::new(f);
                let work = move |job: Job<'static, _, _>| {
                    let f = Arc::clone(&f);
                    async move { f(job) }
                };
                let running = workers
                    .concurrency(1)
                    .spawn_on(runtime.handle(), work)
                    .unwrap();
                runtime.block_on(running.join_async());
            }
        }
    }
}

/// What a job says: key, value, attempt, level, time in the queue, and the key of its handle.
type Said = (u64, Vec<u32>, u32, usize, Option<Duration>, u64);

fn ask(job: &ListJob<'_>) -> Said {
    let (key, value) = (*job.key(), job.value().clone());
    let handle = job.handle();
    assert_eq!((**job, *handle.key()), (key, key));
    let shown = format!("{job:?}");
    assert_eq!(job.to_string(), job.key().to_string());
    assert!(shown.starts_with(&format!("Job {{ key: {key}")), "{shown}");
    (
        key,
        value,
        job.attempt(),
        job.level(),
        job.queue_time(),
        *handle,
    )
}

#[test] // W9 W7 V3 P4
fn a_job_is_the_same_in_threads_futures_and_tasks() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        let (clock, time) = Clock::mock();
        let builder = WorkQueue::builder()
            .rate_limiter(NoLimit)
            .clock(clock)
            .manual_timers();
        let builder = builder.levels(3).timing(true).merge(merge::append);
        let queue: Arc<Lists> = Arc::new(builder.build().unwrap());
        queue.entry(7).level(0).put(vec![1]);
        time.advance(secs(3));
        let said = Arc::new(Mutex::new(Vec::new()));
        let (says, puts) = (Arc::clone(&said), Arc::clone(&queue));
        way.run(Workers::new(&*queue), move |mut job: ListJob<'_>| {
            says.lock().unwrap().push(ask(&job));
            job.value_mut().push(9);
            match says.lock().unwrap().len() {
                1 => return Err("fails"),
                2 => {
                    assert_eq!(job.take(), Some(vec![1, 9, 9]), "as it was left");
                    assert_eq!(job.take(), None);
                    assert_eq!(job.handle().put(vec![5]), Added::Deferred);
                }
                _ => _ = puts.shut_down(),
            }
            Ok(())
        });
        let expected = [
            (7, vec![1], 1, 0, Some(secs(3)), 7),
            (7, vec![1, 9], 2, 0, Some(Duration::ZERO), 7),
            (7, vec![5], 1, 1, Some(Duration::ZERO), 7),
        ];
        assert_eq!(*said.lock().unwrap(), expected, "{way:?}");
    }
}

#[test] // W9
fn a_job_without_a_value_has_none() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        let queue = WorkQueue::from_iter([1_u64]);
        queue.shut_down();
        way.run(Workers::new(&queue), |mut job: Job<'_, u64>| {
            assert_eq!((job.take(), job.level(), job.queue_time()), (None, 0, None));
        });
        // The same function in a queue with values, whose keys are `()`.
        let queue = WorkQueue::builder().merge(merge::latest).build().unwrap();
        queue.put(1_u64, ());
        queue.shut_down();
        way.run(Workers::new(&queue), |mut job: Job<'_, u64>| {
            assert_eq!(job.take(), Some(()));
        });
    }
}

// ---- what a function decides (W5) -------------------------------------------------------------

fn decide(job: Job<'_, u64>) -> Result<(), String> {
    match *job {
        1 => return job.give_up("gone".into()),
        2 => return job.retry_after("busy".into(), ms(1)),
        3 => _ = "x".parse::<u32>().map_err(|error| error.to_string())?,
        // A decision counts for an error alone, for any that is returned.
        4 => _ = job.give_up::<(), _>("no error"),
        _ => job
            .give_up("as text")
            .map_err(|error: &str| error.to_uppercase())?,
    }
    Ok(())
}

#[test] // W9 W5
fn a_function_gives_up_and_retries_after_a_delay_beside_ok_and_the_question_mark() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        let queue = Arc::new(eager(1..=5_u64));
        let said = Arc::new(Mutex::new(Vec::new()));
        let (says, ends) = (Arc::clone(&said), Arc::clone(&queue));
        let workers = Workers::new(&*queue).max_retries(1);
        let workers = workers.on_error(move |key, failed| {
            let mut said = says.lock().unwrap();
            said.push(format!("{key}: {failed}"));
            if said.len() == 6 {
                ends.shut_down();
            }
        });
        way.run(workers, decide);
        let mut said = mem::take(&mut *said.lock().unwrap());
        said.sort();
        let expected = [
            "1: gone (attempt 1, given up)",
            "2: busy (attempt 1, the next in 1ms)",
            "2: busy (attempt 2, given up)",
            "3: invalid digit found in string (attempt 1, the next immediately)",
            "3: invalid digit found in string (attempt 2, given up)",
            "5: AS TEXT (attempt 1, given up)",
        ];
        assert_eq!(said, expected, "{way:?}");
    }
}

#[test] // W9 W5
fn a_verdict_that_says_more_than_an_error_counts_more_than_the_job() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        let queue = Arc::new(eager([1_u64]));
        let ends = Arc::clone(&queue);
        let workers =
            Workers::new(&*queue).on_error(|_, failed| assert_eq!(failed.next, Some(ms(1))));
        way.run(workers, move |job| {
            if job.attempt() > 1 {
                ends.shut_down();
                return Verdict::Ok(Outcome::Done);
            }
            let _: Result<(), _> = job.give_up("no");
            Verdict::RetryAfter("busy", ms(1))
        });
    }
}

// ---- the table --------------------------------------------------------------------------------

#[test] // W9 V3: a job that is dropped early, and one that is dropped by a panic.
fn the_value_of_a_job_that_is_dropped_goes_with_the_retry() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        let queue = Arc::new(lists(|builder| builder));
        let receipt = tracked(&queue, 1, vec![0]);
        let ends = Arc::clone(&queue);
        way.run(Workers::new(&*queue), move |mut job: ListJob<'_>| {
            let attempt = job.attempt();
            assert_eq!(*job.value(), (0..attempt).collect::<Vec<_>>());
            job.value_mut().push(attempt);
            match attempt {
                1 => drop(job), // before the error is made
                2 => resume_unwind(Box::new("the work fails")),
                3 => return Err(format!("{job:?}")),
                _ => {
                    drop(job);
                    ends.shut_down();
                    return Ok(()); // the result counts, not the drop
                }
            }
            Err(String::from("fails"))
        });
        assert_eq!(receipt.ended(), Some(Ended::Done), "{way:?}");
    }
}

/// Runs the work on a delivery of `[1]`, during which `[2]` is put, and returns the next value.
fn after(
    way: Way,
    work: impl Fn(&mut Vec<u32>) -> Verdict<&'static str> + Send + Sync + 'static,
) -> Option<Vec<u32>> {
    let (clock, _time) = Clock::mock();
    let queue = Arc::new(lists(|builder| builder.clock(clock).manual_timers()));
    let receipt = tracked(&queue, 1, vec![1]);
    let next = Arc::new(Mutex::new(None));
    let (puts, gets) = (Arc::clone(&queue), Arc::clone(&next));
    way.run(Workers::new(&*queue), move |mut job: ListJob<'_>| {
        if *job.value() == [1] {
            puts.put(1, vec![2]);
            return work(job.value_mut());
        }
        *gets.lock().unwrap() = job.take();
        puts.shut_down();
        Verdict::Ok(Outcome::Done)
    });
    assert!(receipt.ended().is_some());
    next.lock().unwrap().take()
}

#[test] // V3 W2 W3 W5
fn what_the_function_leaves_goes_with_every_kind_of_retry() {
    let _watchdog = watchdog(60);
    let retries: [fn() -> Verdict<&'static str>; 5] = [
        || Verdict::Retry("fails"),
        || Verdict::RetryAfter("fails", ms(1)),
        || Verdict::Ok(Outcome::RequeueAfter(ms(1))),
        || Verdict::Ok(Outcome::Later(ms(1))),
        || resume_unwind(Box::new("the work fails")),
    ];
    for way in WAYS {
        for retry in retries {
            let next = after(*way, move |value| {
                value.push(10);
                retry()
            });
            assert_eq!(next, Some(vec![1, 10, 2]), "{way:?}");
        }
        // After a success, or if the key is given up, the value is dropped.
        let done = after(*way, |_| Verdict::Ok(Outcome::Done));
        let given_up = after(*way, |_| Verdict::GiveUp("never"));
        assert_eq!([done, given_up], [Some(vec![2]), Some(vec![2])], "{way:?}");
    }
}

#[test] // W9
#[cfg_attr(miri, ignore = "leaks")]
fn a_leaked_job_keeps_its_value_in_threads_and_loses_it_in_futures() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        let queue = Arc::new(lists(|builder| builder));
        let receipt = tracked(&queue, 1, vec![0]);
        let (worked, works) = mpsc::channel();
        let ends = Arc::clone(&queue);
        way.run(Workers::new(&*queue), move |job: ListJob<'_>| {
            worked.send((*job, job.value().clone())).unwrap();
            if (*job, job.attempt()) == (1, 1) {
                queue_another(&ends);
                mem::forget(job);
                return Err("fails");
            }
            if *job == 2 {
                ends.shut_down();
            }
            Ok(())
        });
        let works: Vec<_> = works.iter().collect();
        let (expected, end) = match way {
            Way::Scoped | Way::Spawned => {
                (vec![(1, vec![0]), (2, vec![2]), (1, vec![0])], Ended::Done)
            }
            _ => (vec![(1, vec![0]), (2, vec![2])], Ended::GivenUp),
        };
        assert_eq!(works[..2], expected[..2], "{way:?}");
        assert_eq!(receipt.ended(), Some(end), "{way:?}");
        assert_eq!(works.len(), expected.len(), "{way:?}");
    }
}

fn queue_another(queue: &Lists) {
    queue.put(2, vec![2]);
}

#[test] // W9
fn a_job_may_outlive_the_future_that_got_it() {
    let queue = lists(|builder| builder);
    let receipts = [1, 2].map(|key| tracked(&queue, key, vec![key as u32]));
    let kept = RefCell::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1);
    let mut run = Box::pin(workers.run_async(async |job: ListJob<'static>| {
        kept.borrow_mut().push(job);
        Err::<(), _>("fails")
    }));
    assert!(poll_until_idle(&mut run).is_pending());
    drop((run, queue));
    let ends = receipts.map(|receipt| receipt.ended());
    assert_eq!(ends, [Some(Ended::GivenUp); 2]);
    let kept = kept.into_inner().into_iter();
    let values: Vec<_> = kept.map(|mut job| (*job, job.take().unwrap())).collect();
    assert_eq!(values, [(1, vec![1]), (2, vec![2])]);
}

#[test] // W9 V2
fn a_job_that_comes_back_while_its_key_is_settled_gives_its_value_to_no_other() {
    let queue = lists(|builder| builder);
    let receipts = [1, 2].map(|key| tracked(&queue, key, vec![key as u32]));
    let (kept, delivered) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let for_ever = RefCell::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1);
    // The hook is called after the function, and before the next one.
    let workers = workers.on_error(|_, _| kept.lock().unwrap().truncate(0));
    let mut run = Box::pin(workers.run_async(async |job: ListJob<'static>| {
        delivered.lock().unwrap().push((*job, job.value().clone()));
        match *job {
            1 => kept.lock().unwrap().push(job),
            _ => for_ever.borrow_mut().push(job),
        }
        Err::<(), _>("fails")
    }));
    assert!(poll_until_idle(&mut run).is_pending());
    let values = [(1, vec![1]), (2, vec![2])];
    assert_eq!(*delivered.lock().unwrap(), values);
    let ends = receipts.map(|receipt| receipt.ended());
    assert_eq!(ends, [Some(Ended::GivenUp); 2]);
}

mod outlives {
    use std::future::{pending, ready};

    use tokio::runtime::Handle;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;
    use keyqueue::GetError;
    use keyqueue::worker::Running;

    /// A task whose function sends its jobs away, and fails with key 1.
    fn sends(queue: &Lists) -> (Running<u64, Vec<u32>>, UnboundedReceiver<ListJob<'static>>) {
        let (sender, jobs) = unbounded_channel();
        let workers = Workers::new(queue).concurrency(1);
        let workers = workers.on_give_up(|key, given_up| panic!("{key}: {given_up}"));
        let work = move |job: ListJob<'static>| {
            let fails = *job == 1;
            sender.send(job).unwrap();
            ready(if fails { Err("fails") } else { Ok(()) })
        };
        (workers.spawn_on(&Handle::current(), work).unwrap(), jobs)
    }

    #[tokio::test] // W9
    async fn a_worker_does_not_wait_for_a_job_that_outlives_the_function() {
        let _watchdog = watchdog(60);
        let queue = lists(|builder| builder);
        let receipts = [1, 2].map(|key| tracked(&queue, key, vec![key as u32]));
        let (running, mut jobs) = sends(&queue);
        let mut first = jobs.recv().await.unwrap();
        let second = jobs.recv().await.unwrap();
        queue.shut_down();
        running.join_async().await;
        // The failure of key 1 is not retried, as its value is not there, and key 2 is done.
        let ends = receipts.map(|receipt| receipt.ended());
        assert_eq!(ends, [Some(Ended::GivenUp), Some(Ended::Done)]);
        // The jobs are as they were.
        assert_eq!((*first, *second), (1, 2));
        assert_eq!((first.take(), second.value()), (Some(vec![1]), &vec![2]));
        assert_eq!(first.handle().add(), Added::ShutDown);
        drop((first, second));
        assert!(queue.take_left().is_empty());
    }

    #[tokio::test] // W9 V2
    async fn the_value_of_a_job_that_outlives_its_function_is_not_that_of_another_job() {
        let _watchdog = watchdog(60);
        let queue = lists(|builder| builder);
        let kept = Arc::new(Mutex::new(None));
        let (sender, mut values) = unbounded_channel();
        let (keep, puts) = (Arc::clone(&kept), queue.handle(2));
        let workers = Workers::new(&queue).concurrency(1);
        let work = move |job: ListJob<'static>| {
            let (keep, sender) = (Arc::clone(&keep), sender.clone());
            if *job == 1 {
                puts.put(vec![2]);
            }
            async move {
                if *job == 1 {
                    *keep.lock().unwrap() = Some(job);
                    return Ok(());
                }
                let attempt = job.attempt();
                sender.send(job.value().clone()).unwrap();
                // The older one is dropped between this one and its retry.
                if attempt == 1 {
                    drop(job);
                    drop(keep.lock().unwrap().take());
                    return Err("fails");
                }
                Ok(())
            }
        };
        queue.put(1, vec![1]);
        let running = workers.spawn_on(&Handle::current(), work).unwrap();
        assert_eq!(values.recv().await, Some(vec![2]));
        assert_eq!(values.recv().await, Some(vec![2]), "not that of key 1");
        queue.shut_down();
        running.join_async().await;
        assert!(kept.lock().unwrap().is_none());
    }

    #[tokio::test] // W9 W6
    async fn a_cancelled_key_whose_job_is_elsewhere_is_put_back_without_its_value() {
        let _watchdog = watchdog(60);
        let queue = lists(|builder| builder);
        let receipt = tracked(&queue, 1, vec![1]);
        let (sender, mut jobs) = unbounded_channel();
        let workers = Workers::new(&queue).concurrency(1);
        let work = move |job: ListJob<'static>| {
            sender.send(job).unwrap();
            pending::<()>()
        };
        let running = workers.spawn_on(&Handle::current(), work).unwrap();
        let job = jobs.recv().await.unwrap();
        running.abort();
        running.join_async().await;
        assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
        assert_eq!(receipt.ended(), Some(Ended::GivenUp));
        // A value that is put later is delivered.
        assert_eq!(job.handle().put(vec![2]), Added::Queued);
        assert_eq!(*queue.try_get().unwrap().value(), [2]);
        assert_eq!(*job.value(), [1]);
    }
}
