//! Workers, and user code that panics in unexpected places: no worker dies, no key is lost.

use std::future::{pending, poll_fn};
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::timed::MS;
use crate::common::{poll_until_idle, watchdog};
use crate::outcomes::Bench;
use keyqueue::limiter::RateLimiter;
use keyqueue::worker::{Failure, Job, Outcome, Reason, Workers};
use keyqueue::{Added, LeftReason, WorkQueue};

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
    /// When the delay was passed on.
    passed: AtomicBool,
    forget: AtomicBool,
}

impl RateLimiter<u64> for Fuse {
    fn when(&self, _: &u64) -> Duration {
        if self.when.load(Ordering::SeqCst) {
            blow();
        }
        self.failures.fetch_add(1, Ordering::SeqCst);
        MS
    }

    fn reserve(&self, key: &u64, used: &mut dyn FnMut(Duration) -> bool) -> bool {
        let used = used(self.when(key));
        if self.passed.load(Ordering::SeqCst) {
            blow();
        }
        used
    }

    fn forget(&self, _: &u64) {
        if self.forget.load(Ordering::SeqCst) {
            blow();
        }
        self.failures.store(0, Ordering::SeqCst);
    }

    fn num_requeues(&self, _: &u64) -> u32 {
        self.failures.load(Ordering::SeqCst)
    }
}

#[test] // W2
fn a_limiter_that_panics_after_some_retries_ends_the_key_and_they_are_told() {
    let fuse = Arc::new(Fuse::default());
    let mut bench = Bench::new(None, |_| Arc::clone(&fuse));
    bench.queue.add(1);
    bench.pass(1);
    fuse.when.store(true, Ordering::SeqCst);
    bench.pass(10);
    assert_eq!(bench.deliveries(), [0, 1, 2]);
    let ends = bench.given_up();
    assert_eq!(ends.len(), 1);
    let end = &ends[0].1;
    assert_eq!(end.failure, Failure::Error("not yet"));
    assert_eq!((end.reason, end.retries), (Reason::Limiter, 2));
}

#[test] // W2 W3 L14
fn a_limiter_that_panics_when_the_key_is_added_again_changes_nothing() {
    for requeues in [false, true] {
        let fuse = Arc::new(Fuse::default());
        fuse.passed.store(true, Ordering::SeqCst);
        let mut bench = Bench::new(None, |_| Arc::clone(&fuse));
        if requeues {
            bench.next(Ok(Outcome::RequeueRateLimited));
        }
        assert_eq!(bench.queue.add_rate_limited(1), Added::Delayed);
        bench.pass(3);
        assert_eq!(bench.deliveries(), [1, 2, 3]);
        assert!(bench.given_up().is_empty());
    }
}

#[test] // W3 S14
fn a_limiter_that_panics_for_a_requeue_ends_the_key_and_is_told() {
    let fuse = Arc::new(Fuse::default());
    let mut bench = Bench::new(None, |_| Arc::clone(&fuse));
    bench.next(Ok(Outcome::RequeueRateLimited));
    bench.queue.add(1);
    bench.pass(1);
    fuse.when.store(true, Ordering::SeqCst);
    bench.pass(10);
    assert_eq!(bench.deliveries(), [0, 1, 2]);
    let (_, end) = bench.given_up().pop().unwrap();
    assert_eq!(end.failure, Failure::Panic("blown".to_owned()));
    assert_eq!((end.reason, end.retries), (Reason::Limiter, 2));
}

#[test] // W3 S12
fn a_requeue_after_a_shut_down_asks_no_limiter_and_is_left() {
    let fuse = Arc::new(Fuse::default());
    let queue = WorkQueue::builder()
        .rate_limiter(Arc::clone(&fuse))
        .build()
        .unwrap();
    queue.add(1);
    let ran = Workers::new(&queue).concurrency(1).run(|_| {
        fuse.when.store(true, Ordering::SeqCst);
        queue.shut_down();
        Outcome::RequeueRateLimited
    });
    ran.unwrap();
    let left = queue.take_left();
    assert_eq!((left.len(), left[0].reason), (1, LeftReason::Refused));
}

#[test] // W3
fn a_forget_that_panics_does_not_lose_a_requeue() {
    let fuse = Arc::new(Fuse::default());
    let mut bench = Bench::new(None, |_| Arc::clone(&fuse));
    fuse.forget.store(true, Ordering::SeqCst);
    bench.next(Ok(Outcome::RequeueAfter(MS)));
    bench.queue.add(1);
    bench.pass(2);
    assert_eq!(bench.deliveries(), [0, 1, 2]);
}

// ---- keys -----------------------------------------------------------------------------------

static HASH_PANICS: AtomicBool = AtomicBool::new(false);

#[derive(PartialEq, Eq)]
struct Unhashable;

impl Hash for Unhashable {
    fn hash<H: Hasher>(&self, _: &mut H) {
        if HASH_PANICS.load(Ordering::SeqCst) {
            blow();
        }
    }
}

#[test] // W6 C7
fn a_key_is_put_back_also_if_its_hash_panics() {
    let queue = WorkQueue::new();
    queue.add(Unhashable);
    let work = async |_: Job<'_, Unhashable>| pending::<()>().await;
    let mut run = Box::pin(Workers::new(&queue).concurrency(1).run_async(work));
    assert!(poll_until_idle(&mut run).is_pending());
    HASH_PANICS.store(true, Ordering::SeqCst);
    drop(run);
    assert_eq!(queue.shut_down().queued, 1);
}

// ---- the work -------------------------------------------------------------------------------

/// Panics as it is dropped.
struct Nasty;

impl Drop for Nasty {
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
    let workers = Workers::new(&queue).concurrency(1).on_give_up(|_, end| {
        assert!(matches!(end.failure, Failure::Panic(_)), "{end:?}");
        given_up.fetch_add(1, Ordering::SeqCst);
    });
    let run = workers.run_async(|_: Job<'_, u64>| {
        let (nasty, worked) = (Nasty, &worked);
        poll_fn(move |_| {
            let _ = &nasty;
            worked.fetch_add(1, Ordering::SeqCst);
            Poll::Ready(())
        })
    });
    pollster::block_on(run).unwrap();
    assert_eq!((worked.into_inner(), given_up.into_inner()), (3, 3));
}
