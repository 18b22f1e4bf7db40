//! What a function can ask about its own call: `worker::current`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::timed::{MS, built, ms, secs};
use crate::common::{poll_until_idle, watchdog};
use futures_lite::future::yield_now;
use keyqueue::WorkQueue;
use keyqueue::limiter::RateLimiter;
use keyqueue::worker::{self, Outcome, Workers};

/// The number of the attempt that is running on this thread.
fn number() -> Option<u32> {
    worker::current().map(|attempt| attempt.number)
}

#[test] // W7
fn a_function_sees_its_attempt_and_the_time_in_the_queue() {
    let (queue, time) = built(|builder| builder.name("pods"));
    queue.add_all([1, 2]);
    time.advance(secs(3));
    let (seen, attempts) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let workers = Workers::new(&queue).threads(1).max_retries(2);
    let workers = workers.on_give_up(|_, _| {
        assert_eq!(worker::current(), None, "no function is running");
        queue.shut_down();
    });
    let workers = workers.on_error(|_, failed| attempts.lock().unwrap().push(failed.attempt));
    let run = workers.run(|key: &u64| {
        let attempt = worker::current().unwrap();
        seen.lock()
            .unwrap()
            .push((*key, attempt.number, attempt.queue_time));
        time.advance(ms(7));
        match *key {
            1 => Err("bad"),
            _ => Ok(Outcome::Done),
        }
    });
    run.unwrap();
    assert_eq!(worker::current(), None);
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
    let queue = WorkQueue::from_iter([1_u64]);
    let seen = Mutex::new(Vec::new());
    let run = Workers::new(&queue).threads(1).run(|_| {
        assert_eq!(worker::current().unwrap().queue_time, None, "not timed");
        let mut seen = seen.lock().unwrap();
        seen.push(number().unwrap());
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

#[test] // W7
fn of_nested_workers_the_inner_one_counts_until_it_ends_or_panics() {
    let queue = WorkQueue::from_iter([1_u64]);
    let run = Workers::new(&queue).threads(1).run(|_| {
        let number = || number().unwrap();
        if number() == 1 {
            return Err("again");
        }
        let inner = WorkQueue::from_iter([7_u64]);
        let tries = AtomicUsize::new(0);
        let run = Workers::new(&inner).threads(1).run(|_| {
            let tries = tries.fetch_add(1, Ordering::SeqCst) + 1;
            assert_eq!(number() as usize, tries);
            if tries == 4 {
                inner.shut_down();
            }
            assert!(tries > 3, "a panic is an attempt, too");
        });
        run.unwrap();
        assert_eq!(tries.into_inner(), 4);
        assert_eq!(number(), 2, "that of the outer one");
        queue.shut_down();
        Ok(())
    });
    run.unwrap();
}

#[test] // W7
fn of_interleaved_futures_each_sees_its_own_attempt() {
    let queue = WorkQueue::from_iter([1, 2, 3]);
    let tries = RefCell::new([0; 4]);
    let workers = Workers::new(&queue).tasks(3).max_retries(9);
    let mut run = Box::pin(workers.run_async(async |key: &u64| {
        tries.borrow_mut()[*key as usize] += 1;
        let mine = tries.borrow()[*key as usize];
        for _ in 0..5 {
            assert_eq!(number(), Some(mine));
            yield_now().await;
        }
        // Key 1 fails once, and so on.
        if mine <= *key as u32 {
            Err("no")
        } else {
            Ok(())
        }
    }));
    while tries.borrow()[3] < 4 {
        let _ = crate::common::poll(&mut run, std::task::Waker::noop());
        assert_eq!(worker::current(), None, "between two polls");
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
        // Of a limiter, no function is running.
        u32::from(worker::current().is_some())
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
        let run = Workers::new(&queue).threads(1);
        run.run(|_| assert!(!asks || number() == Some(1))).unwrap();
        let reads = limiter.0.load(Ordering::SeqCst);
        assert_eq!(reads, if asks { 2 } else { 0 });
    }
}

#[test] // W7
fn background_threads_and_spawned_futures_see_it() {
    let _watchdog = watchdog(60);
    let queue = Arc::new(WorkQueue::from_iter([1, 2]));
    let saw = Arc::new(AtomicBool::new(true));
    let work = {
        let saw = Arc::clone(&saw);
        move || _ = saw.fetch_and(number() == Some(1), Ordering::SeqCst)
    };
    let workers = Workers::shared(Arc::clone(&queue)).threads(2);
    let running = workers.spawn({
        let work = work.clone();
        move |_: &u64| work()
    });
    queue.shut_down();
    running.unwrap().join();
    let queue = Arc::new(WorkQueue::from_iter([1, 2]));
    queue.shut_down();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let workers = Workers::shared(queue).tasks(2);
    let task = runtime.spawn(workers.run_async(async move |_: &u64| work()));
    runtime.block_on(task).unwrap().unwrap();
    assert!(saw.load(Ordering::SeqCst));
}
