//! The worker loop: the outcomes of a key (W2 and W3), with controller-runtime's tests of its
//! controller loop under their sentences. [`crate::verdicts`] has those of errors that are not
//! retried, or after a given delay.
//!
//! Where delays matter, one worker is a future that the test polls, on a queue with a mocked clock
//! and manual timers: then nothing happens unless the test does it.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::common::timed::{ms, secs};
use crate::common::{eager, poll_until_idle};
use keyqueue::limiter::{Bucket, ItemExponentialFailure, NoLimit, RateLimiter};
use keyqueue::worker::{GivenUp, Job, Outcome, Reason, Verdict, Workers};
use keyqueue::{Added, Clock, ConfigError, MockClock, WorkQueue};

pub(crate) type Exponential = ItemExponentialFailure<u64>;

/// A key that was given up.
pub(crate) type End = (u64, GivenUp<&'static str>);

/// One worker that fails every key until the test changes that, and what the test observes of it.
pub(crate) struct Bench {
    pub(crate) queue: WorkQueue<u64>,
    time: MockClock,
    work: Arc<Work>,
    run: Pin<Box<dyn Future<Output = Result<(), ConfigError>>>>,
}

struct Work {
    next: Mutex<Verdict<&'static str>>,
    takes: Mutex<Duration>,
    /// When a key was delivered, in milliseconds.
    deliveries: Mutex<Vec<u128>>,
    given_up: Mutex<Vec<End>>,
}

impl Bench {
    pub(crate) fn new<L>(max_retries: Option<u32>, limiter: impl FnOnce(Clock) -> L) -> Self
    where
        L: RateLimiter<u64> + 'static,
    {
        let (clock, time) = Clock::mock();
        let builder = WorkQueue::builder().rate_limiter(limiter(clock.clone()));
        let queue = builder.clock(clock.clone()).manual_timers().build();
        let queue = queue.unwrap();
        let work = Arc::new(Work {
            next: Mutex::new(Verdict::Retry("not yet")),
            takes: Mutex::default(),
            deliveries: Mutex::default(),
            given_up: Mutex::default(),
        });
        let told = Arc::clone(&work);
        let mut workers = Workers::new(&queue)
            .concurrency(1)
            .on_give_up(move |key, end| told.given_up.lock().unwrap().push((*key, end)));
        if let Some(retries) = max_retries {
            workers = workers.max_retries(retries);
        }
        let run = Box::pin(workers.run_async({
            let (work, time) = (Arc::clone(&work), time.clone());
            async move |_: Job<'_, u64>| {
                let now = clock.now().as_millis();
                work.deliveries.lock().unwrap().push(now);
                time.advance(*work.takes.lock().unwrap());
                *work.next.lock().unwrap()
            }
        }));
        Bench {
            queue,
            time,
            work,
            run,
        }
    }

    pub(crate) fn next(&self, result: Result<Outcome, &'static str>) {
        self.verdict(result.into());
    }

    pub(crate) fn verdict(&self, verdict: Verdict<&'static str>) {
        *self.work.next.lock().unwrap() = verdict;
    }

    /// Lets `millis` milliseconds pass, one by one.
    pub(crate) fn pass(&mut self, millis: u64) {
        assert!(poll_until_idle(&mut self.run).is_pending());
        for _ in 0..millis {
            self.time.advance(ms(1));
            self.queue.fire_due();
            assert!(poll_until_idle(&mut self.run).is_pending());
        }
    }

    /// Lets time pass while the worker is not polled.
    pub(crate) fn wait(&self, time: Duration) {
        self.time.advance(time);
        self.queue.fire_due();
    }

    /// Lets the worker end, after a shut-down.
    pub(crate) fn end(&mut self) {
        assert_eq!(poll_until_idle(&mut self.run), Poll::Ready(Ok(())));
    }

    /// The deliveries since the last call.
    pub(crate) fn deliveries(&self) -> Vec<u128> {
        std::mem::take(&mut self.work.deliveries.lock().unwrap())
    }

    pub(crate) fn given_up(&self) -> Vec<End> {
        std::mem::take(&mut self.work.given_up.lock().unwrap())
    }
}

/// A bench whose queue backs off from 5 ms.
pub(crate) fn bench(max_retries: Option<u32>) -> Bench {
    Bench::new(max_retries, |clock| {
        let limiter = Exponential::new(ms(5), secs(1000)).unwrap();
        limiter.with_clock(clock)
    })
}

// ---- W2 -------------------------------------------------------------------------------------

#[test] // W2; c-r: "should requeue a Request if there is an error and continue processing items"
fn an_error_requeues_the_key_and_the_worker_goes_on() {
    let mut bench = bench(None);
    bench.queue.add(1);
    bench.pass(0);
    assert_eq!(bench.queue.num_requeues(&1), 1);

    bench.next(Ok(Outcome::Done));
    bench.queue.add(2);
    bench.pass(4);
    assert_eq!(bench.deliveries(), [0, 0]);
    bench.pass(1);
    assert_eq!(bench.deliveries(), [5]);
    assert_eq!(bench.queue.num_requeues(&1), 0);
    assert_eq!(bench.given_up(), []);
}

#[test] // W2; c-r: "should not reset backoff until there's a non-error result"
fn the_back_off_and_the_count_of_retries_grow_until_there_is_a_result_without_error() {
    let mut bench = bench(Some(4));
    bench.queue.add(1);
    bench.pass(5 + 10 + 20);
    assert_eq!(bench.deliveries(), [0, 5, 15, 35]);
    bench.next(Ok(Outcome::Done));
    bench.pass(40);
    assert_eq!(bench.deliveries(), [75]);

    bench.next(Err("again"));
    bench.queue.add(1);
    bench.pass(5);
    assert_eq!(bench.deliveries(), [75, 80]);
    assert_eq!(bench.given_up(), []);
}

#[test] // W2
fn after_the_set_number_of_retries_a_key_is_forgotten_and_reported() {
    for (retries, tries) in [(0, vec![0]), (3, vec![0, 5, 15, 35])] {
        let mut bench = bench(Some(retries));
        bench.queue.add(7);
        bench.pass(35);
        assert_eq!(bench.deliveries(), tries);
        let (key, end) = bench.given_up().pop().unwrap();
        assert_eq!(end.to_string(), format!("not yet (retries: {retries})"));
        assert_eq!((key, end.reason), (7, Reason::MaxRetries));
        assert_eq!(bench.queue.num_requeues(&7), 0);
        bench.pass(1000);
        assert_eq!((bench.deliveries(), bench.given_up()), (vec![], vec![]));

        // Added once more it is a new key.
        bench.queue.add(7);
        bench.pass(35);
        assert_eq!(bench.deliveries().len(), tries.len());
    }
}

/// Lets a key fail, succeed after all, and fail again on a limiter that does not count.
fn retries_are_counted_without<L>(limiter: impl FnOnce(Clock) -> L)
where
    L: RateLimiter<u64> + 'static,
{
    let mut bench = Bench::new(Some(2), limiter);
    bench.queue.add(1);
    bench.pass(1000);
    assert_eq!(bench.deliveries().len(), 3);
    assert_eq!(bench.given_up().pop().unwrap().1.retries, 2);

    // Another starts at nothing, and so does this one.
    bench.queue.add_all([1, 2]);
    bench.pass(1000);
    assert_eq!(bench.deliveries().len(), 6);
    assert_eq!(bench.given_up().len(), 2);
    bench.next(Ok(Outcome::Done));
    bench.queue.add(1);
    bench.pass(0);
    bench.next(Err("again"));
    bench.queue.add(1);
    bench.pass(1000);
    assert_eq!((bench.deliveries().len(), bench.given_up().len()), (4, 1));
}

#[test] // W2
fn the_retries_of_a_limiter_that_does_not_count_are_counted() {
    retries_are_counted_without(|_| NoLimit);
    retries_are_counted_without(|clock| Bucket::new(10.0, 1).unwrap().with_clock(clock));
}

#[test] // W2: the limiter forgets a key while it is worked on, and so never counts beyond one.
fn work_that_outlasts_the_memory_of_the_limiter_is_still_given_up() {
    let mut bench = Bench::new(Some(3), |clock| {
        let limiter = Exponential::new(ms(1), ms(10)).unwrap();
        limiter.with_clock(clock)
    });
    *bench.work.takes.lock().unwrap() = secs(10);
    bench.queue.add(7);
    bench.pass(100);
    let ends = bench.given_up();
    assert_eq!(ends.len(), 1);
    assert_eq!((ends[0].0, ends[0].1.retries), (7, 3));
    assert_eq!(bench.deliveries().len(), 4);
}

#[test] // W2 C4
fn the_hook_is_told_while_the_key_is_held_and_may_add_it() {
    let queue = WorkQueue::<u64>::new();
    queue.add(1);
    let ends = AtomicUsize::new(0);
    let workers = Workers::new(&queue).concurrency(1).max_retries(0);
    let workers = workers.on_give_up(|key, _| {
        let added = queue.add(*key);
        match ends.fetch_add(1, Ordering::SeqCst) {
            0 => assert_eq!(added, Added::Deferred),
            _ => drop(queue.shut_down()),
        }
    });
    workers.run(|_| Err::<(), _>("no")).unwrap();
    // The second add came before the shut-down.
    assert_eq!(ends.into_inner(), 3);
}

#[test] // W2 S1: with and without a limit of retries, and with a limiter that does not count.
fn an_error_after_the_shut_down_is_reported_with_the_retries_before() {
    for max_retries in [None, Some(5)] {
        let queue = eager::<u64>([]);
        queue.add_all([1, 2]);
        let (tries, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let mut workers = Workers::new(&queue)
            .concurrency(1)
            .on_give_up(|key, end| told.lock().unwrap().push((*key, end.retries, end.reason)));
        if let Some(retries) = max_retries {
            workers = workers.max_retries(retries);
        }
        let run = workers.run(|_| {
            if tries.fetch_add(1, Ordering::SeqCst) == 6 {
                queue.shut_down();
            }
            Err::<(), _>("no")
        });
        run.unwrap();
        let expected = [(1, 3, Reason::ShutDown), (2, 3, Reason::ShutDown)];
        assert_eq!(told.into_inner().unwrap(), expected);
    }
}

// ---- W3 -------------------------------------------------------------------------------------

#[test] // W3; c-r: "should requeue after a duration (but not rate-limited)", and forget before
fn requeue_after_forgets_first_and_then_delays() {
    let mut bench = bench(None);
    bench.queue.add(1);
    bench.pass(5);
    assert_eq!(bench.queue.num_requeues(&1), 2);
    bench.next(Ok(Outcome::RequeueAfter(ms(100))));
    bench.pass(10);
    assert_eq!(bench.deliveries(), [0, 5, 15]);
    assert_eq!(bench.queue.num_requeues(&1), 0);
    bench.pass(99);
    assert_eq!(bench.deliveries(), []);

    // The back-off starts where it began.
    bench.next(Err("again"));
    bench.pass(1 + 5);
    assert_eq!(bench.deliveries(), [115, 120]);
}

#[test] // W3 D2
fn requeue_after_nothing_queues_the_key_at_the_tail_at_once() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2]);
    let seen = Mutex::new(Vec::new());
    let run = Workers::new(&queue)
        .concurrency(1)
        .run(|job: Job<'_, u64>| {
            let mut seen = seen.lock().unwrap();
            seen.push(*job);
            if seen.len() == 4 {
                queue.shut_down();
            }
            Outcome::RequeueAfter(Duration::ZERO)
        });
    run.unwrap();
    assert_eq!(seen.into_inner().unwrap(), [1, 2, 1, 2, 1]);
}
