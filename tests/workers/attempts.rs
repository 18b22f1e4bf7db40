//! What a job says about its delivery: the attempt, and the time in the queue.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::timed::{MS, built, ms, secs};
use crate::common::{eager, poll_until_idle};
use futures_lite::future::yield_now;
use keyqueue::WorkQueue;
use keyqueue::limiter::RateLimiter;
use keyqueue::worker::{Job, Outcome, Workers};

#[test] // W7
fn a_function_sees_its_attempt_and_the_time_in_the_queue() {
    let (queue, time) = built(|builder| builder.name("pods"));
    queue.add_all([1, 2]);
    time.advance(secs(3));
    let (seen, attempts) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let workers = Workers::new(&queue).concurrency(1).max_retries(2);
    let workers = workers.on_give_up(|_, _| _ = queue.shut_down());
    let workers = workers.on_error(|_, failed| attempts.lock().unwrap().push(failed.attempt));
    let run = workers.run(|job: Job<'_, u64>| {
        seen.lock()
            .unwrap()
            .push((*job, job.attempt(), job.queue_time()));
        time.advance(ms(7));
        match *job {
            1 => Err("bad"),
            _ => Ok(Outcome::Done),
        }
    });
    run.unwrap();
    // The retry is accepted while the key is processing, and waits for the other key, then for none.
    let expected = [
        (1, 1, Some(secs(3))),
        (2, 1, Some(secs(3) + ms(7))),
        (1, 2, Some(ms(7))),
        (1, 3, Some(Duration::ZERO)),
    ];
    assert_eq!(seen.into_inner().unwrap(), expected);
    assert_eq!(attempts.into_inner().unwrap(), [1, 2, 3]);
}

#[test] // W7 W5
fn a_try_that_is_put_off_or_done_is_not_counted() {
    let queue = eager([1_u64]);
    let seen = Mutex::new(Vec::new());
    let run = Workers::new(&queue).concurrency(1).run(|job| {
        assert_eq!(job.queue_time(), None, "not timed");
        let mut seen = seen.lock().unwrap();
        seen.push(job.attempt());
        match seen.len() {
            1 | 4 => Err("no"),
            2 => Ok(Outcome::Later(Duration::ZERO)),
            3 => Ok(Outcome::RequeueAfter(Duration::ZERO)),
            _ => {
                queue.shut_down();
                Ok(Outcome::Done)
            }
        }
    });
    run.unwrap();
    assert_eq!(seen.into_inner().unwrap(), [1, 2, 2, 1, 2]);
}

#[test] // W2
fn all_workers_of_a_queue_count_the_retries_of_a_key_together() {
    let (queue, time) = built(|builder| builder);
    let given_up = Mutex::new(Vec::new());
    let run = |fails: bool| {
        let workers = Workers::new(&queue).concurrency(1).max_retries(1);
        let workers = workers.on_give_up(|key, _| given_up.lock().unwrap().push(*key));
        Box::pin(
            workers.run_async(async move |job: Job<'_, u64>| match fails {
                true => job.retry_after("no", secs(1)),
                false => Ok(()),
            }),
        )
    };
    let (mut fails, mut succeeds) = (run(true), run(false));
    let pass = |run: &mut _, time_passes| {
        time.advance(time_passes);
        queue.fire_due();
        assert!(poll_until_idle(run).is_pending());
        std::mem::take(&mut *given_up.lock().unwrap())
    };
    queue.add(1);
    assert_eq!(pass(&mut fails, Duration::ZERO), []);
    time.advance(secs(1));
    queue.fire_due();
    assert!(poll_until_idle(&mut succeeds).is_pending());
    // A new message has all of its tries.
    queue.add(1);
    assert_eq!(pass(&mut fails, Duration::ZERO), []);
    queue.forget(&1);
    assert_eq!(pass(&mut fails, secs(1)), []);
    assert_eq!(pass(&mut fails, secs(1)), [1]);
}

#[test] // W7
fn of_interleaved_futures_each_sees_its_own_attempt() {
    let queue = eager([1, 2, 3]);
    let tries = RefCell::new([0; 4]);
    let workers = Workers::new(&queue).concurrency(3).max_retries(9);
    let mut run = Box::pin(workers.run_async(async |job: Job<'_, u64>| {
        tries.borrow_mut()[*job as usize] += 1;
        let mine = tries.borrow()[*job as usize];
        for _ in 0..5 {
            assert_eq!(job.attempt(), mine);
            yield_now().await;
        }
        // Key 1 fails once, and so on.
        if mine <= *job as u32 {
            Err("no")
        } else {
            Ok(())
        }
    }));
    while tries.borrow()[3] < 4 {
        let _ = crate::common::poll(&mut run, std::task::Waker::noop());
    }
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(*tries.borrow(), [0, 2, 3, 4]);
}

/// A limiter that counts how often it is read.
#[derive(Default)]
struct Read(AtomicUsize);

impl RateLimiter<u64> for Read {
    fn when(&self, _: &u64) -> Duration {
        MS
    }

    fn forget(&self, _: &u64) {}

    fn num_requeues(&self, _: &u64) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst);
        0
    }
}

#[test] // W7
fn the_limiter_is_not_read_unless_the_function_asks() {
    // With the feature `log` of tracing, which another crate may enable, a span that nobody collects
    // computes its fields for the log, unless there is a subscriber.
    let _nobody = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    for asks in [false, true] {
        let limiter = Arc::new(Read::default());
        let builder = WorkQueue::builder().rate_limiter(Arc::clone(&limiter));
        let queue = builder.build().unwrap();
        queue.add_all([1, 2]);
        queue.shut_down();
        let run = Workers::new(&queue).concurrency(1);
        run.run(|job| assert!(!asks || job.attempt() == 1)).unwrap();
        let reads = limiter.0.load(Ordering::SeqCst);
        assert_eq!(reads, if asks { 2 } else { 0 });
    }
}

#[test] // W7
fn the_job_of_a_future_reads_the_limiter_once() {
    let _nobody = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    let limiter = Arc::new(Read::default());
    let builder = WorkQueue::builder().rate_limiter(Arc::clone(&limiter));
    let queue = builder.build().unwrap();
    queue.add_all([1, 2]);
    queue.shut_down();
    let run = Workers::new(&queue).concurrency(1);
    let work = async |job: Job<'_, u64>| assert_eq!([job.attempt(), job.attempt()], [1, 1]);
    pollster::block_on(run.run_async(work)).unwrap();
    assert_eq!(limiter.0.load(Ordering::SeqCst), 2);
}

/// A limiter that cannot be read.
struct Unreadable;

impl RateLimiter<u64> for Unreadable {
    fn when(&self, _: &u64) -> Duration {
        MS
    }

    fn forget(&self, _: &u64) {}

    fn num_requeues(&self, _: &u64) -> u32 {
        std::panic::resume_unwind(Box::new("it cannot be read"))
    }
}

#[test] // W7 W9
fn a_limiter_that_panics_when_it_is_read_keeps_no_job_from_its_function() {
    let queue = WorkQueue::builder().rate_limiter(Unreadable);
    let queue = queue.build().unwrap();
    queue.add_all([1, 2]);
    queue.shut_down();
    let attempts = Mutex::new(Vec::new());
    let run = Workers::new(&queue).concurrency(1);
    run.run(|job| attempts.lock().unwrap().push(job.attempt()))
        .unwrap();
    assert_eq!(attempts.into_inner().unwrap(), [1, 1]);
}
