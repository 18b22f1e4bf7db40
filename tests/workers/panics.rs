//! Workers, and user code that panics in unexpected places: no worker dies, no key is lost.

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{poll, watchdog};
use keyqueue::limiter::RateLimiter;
use keyqueue::worker::{Failure, GivenUp, Outcome, Reason, Workers};
use keyqueue::{Clock, WorkQueue};

/// Ends the run of a panic without printing it.
fn blow() -> ! {
    resume_unwind(Box::new("blown"))
}

// ---- limiters -------------------------------------------------------------------------------

/// A limiter of one key, which panics where the test sets it to.
#[derive(Default)]
struct Fuse {
    failures: AtomicU32,
    when: AtomicBool,
    forget: AtomicBool,
    /// Burns down with each call of `num_requeues`; zero has burnt down long ago.
    num_requeues: AtomicU32,
}

impl RateLimiter<u64> for Fuse {
    fn when(&self, _: &u64) -> Duration {
        if self.when.load(Ordering::SeqCst) {
            blow();
        }
        self.failures.fetch_add(1, Ordering::SeqCst);
        Duration::from_millis(1)
    }

    fn forget(&self, _: &u64) {
        if self.forget.load(Ordering::SeqCst) {
            blow();
        }
        self.failures.store(0, Ordering::SeqCst);
    }

    fn num_requeues(&self, _: &u64) -> u32 {
        if self.num_requeues.load(Ordering::SeqCst) > 0
            && self.num_requeues.fetch_sub(1, Ordering::SeqCst) == 1
        {
            blow();
        }
        self.failures.load(Ordering::SeqCst)
    }
}

/// Runs a worker on a key that fails, on a mocked clock. Sets the fuse before each try, and returns
/// the number of tries and the reports of the key's end.
fn tries(set: &[fn(&Fuse)]) -> (usize, Vec<GivenUp<&'static str>>) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().rate_limiter(Fuse::default());
    let queue = builder.clock(clock).manual_timers().build().unwrap();
    let (tries, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = Workers::new(&queue).tasks(1);
    let workers = workers.on_give_up(|_, end| told.lock().unwrap().push(end));
    let mut run = Box::pin(workers.run_async(async |_: &u64| {
        tries.fetch_add(1, Ordering::SeqCst);
        Err::<(), _>("failed")
    }));
    queue.add(1);
    for set in set {
        set(queue.rate_limiter());
        for _ in 0..4 {
            assert!(poll(&mut run, Waker::noop()).is_pending());
        }
        time.advance(Duration::from_millis(2));
        queue.fire_due();
    }
    drop(run);
    (tries.into_inner(), told.into_inner().unwrap())
}

#[test] // W2
fn a_limiter_that_panics_after_some_retries_ends_the_key_and_they_are_told() {
    let fine = |_: &Fuse| ();
    let broken = |fuse: &Fuse| fuse.when.store(true, Ordering::SeqCst);
    let (tries, told) = tries(&[fine, fine, broken, fine]);
    assert_eq!((tries, told.len()), (3, 1));
    assert_eq!(told[0].failure, Failure::Error("failed"));
    assert_eq!((told[0].reason, told[0].retries), (Reason::Limiter, 2));
}

#[test] // W3
fn a_forget_that_panics_does_not_lose_a_requeue() {
    let fuse = Fuse::default();
    fuse.forget.store(true, Ordering::SeqCst);
    let queue = WorkQueue::builder().rate_limiter(fuse).build().unwrap();
    queue.add(1);
    let seen = Mutex::new(Vec::new());
    let run = Workers::new(&queue).threads(1).run(|key| {
        let mut seen = seen.lock().unwrap();
        seen.push(*key);
        if seen.len() == 1 {
            // Comes in its place should it be lost.
            queue.add_after(2, Duration::from_millis(500));
            return Outcome::RequeueAfter(Duration::from_millis(1));
        }
        queue.shut_down();
        Outcome::Done
    });
    run.unwrap();
    assert_eq!(seen.into_inner().unwrap(), [1, 1]);
}

// ---- the work -------------------------------------------------------------------------------

/// Is ready at once, and panics as it is dropped.
struct NastyWork<'a>(&'a AtomicUsize);

impl Future for NastyWork<'_> {
    type Output = Result<(), ()>;

    fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }
}

impl Drop for NastyWork<'_> {
    fn drop(&mut self) {
        blow();
    }
}

#[test] // W1 W2
fn work_that_panics_as_it_is_dropped_ends_no_task() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    queue.shut_down();
    let (worked, given_up) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let workers = Workers::new(&queue).tasks(1).on_give_up(|_, end| {
        assert!(matches!(end.failure, Failure::Panic(_)), "{end:?}");
        given_up.fetch_add(1, Ordering::SeqCst);
    });
    let run = workers.run_async(|_: &u64| NastyWork(&worked));
    pollster::block_on(run).unwrap();
    assert_eq!((worked.into_inner(), given_up.into_inner()), (3, 3));
}
