//! Workers that are tasks of a tokio runtime: they run at once, on its threads, and end in many ways.

use std::error::Error;
use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use crate::common::timed::{MS, secs};
use crate::common::{
    eager, eventually, figures, poll_until_idle, scaled, take_all, waiting, watchdog,
};
use keyqueue::limiter::{ItemExponentialFailure, RateLimiter};
use keyqueue::worker::{Failure, Job, Outcome, Reason, Running, Workers};
use keyqueue::{Added, WorkQueue};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

fn runtime_of(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).enable_time();
    builder.build().unwrap()
}

fn queue_of<const N: usize>(keys: [u64; N]) -> WorkQueue<u64> {
    eager(keys)
}

/// Workers whose function never ends, once this many keys are in flight.
async fn stuck(queue: &WorkQueue<u64>, tasks: usize) -> Running<u64> {
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    let workers = Workers::new(queue).concurrency(tasks);
    let running = workers.spawn_on(&Handle::current(), move |_| {
        begins.add_permits(1);
        pending::<()>()
    });
    let begun = begun.acquire_many(tasks as u32).await;
    begun.unwrap().forget();
    running.unwrap()
}

// ---- W1 W6 ----------------------------------------------------------------------------------

#[test] // W6: within one task, two keys would never be in the barrier at once.
fn eight_blocking_pieces_run_four_at_a_time_on_four_threads() {
    let _watchdog = watchdog(60);
    let queue = queue_of([0, 1, 2, 3, 4, 5, 6, 7]);
    queue.shut_down();
    let all = Arc::new(Barrier::new(4));
    let worked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&worked);
    let runtime = runtime_of(4);
    let workers = Workers::new(&queue).concurrency(4);
    let running = workers.spawn_on(runtime.handle(), move |_| {
        let (all, count) = (Arc::clone(&all), Arc::clone(&count));
        async move {
            // Goes on only when four are here. Tokio moves the tasks behind this one to other threads.
            block_in_place(|| all.wait());
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    runtime.block_on(running.unwrap().join_async());
    assert_eq!(worked.load(Ordering::SeqCst), 8);
}

#[tokio::test] // W2
async fn errors_and_panics_are_retried_and_given_up() {
    let _watchdog = watchdog(60);
    let queue = queue_of([1, 2, 3]);
    let ends = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&ends);
    let workers = Workers::new(&queue).concurrency(2).max_retries(1);
    let workers = workers.on_give_up(move |key: &u64, end| told.lock().unwrap().push((*key, end)));
    let running = workers.spawn_on(&Handle::current(), |key| {
        assert_ne!(*key, 1, "before there is a future");
        async move {
            assert_ne!(*key, 2, "in the future");
            Err::<(), _>("an error")
        }
    });
    eventually_given_up(&ends, 3).await;
    queue.shut_down();
    running.unwrap().join_async().await;
    let mut ends = std::mem::take(&mut *ends.lock().unwrap());
    ends.sort_by_key(|end| end.0);
    for (end, text) in ends.iter().zip(["before", "in the future", "an error"]) {
        assert!(end.1.to_string().contains(text), "{end:?}");
        assert_eq!((end.1.retries, end.1.reason), (1, Reason::MaxRetries));
    }
    assert_eq!(ends[2].1.failure, Failure::Error("an error"));
}

async fn eventually_given_up<E>(ends: &Mutex<Vec<E>>, count: usize) {
    while ends.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
}

// ---- each spelling in the documentation (W1) --------------------------------------------------

/// The state that a function looks at.
#[derive(Default)]
struct App {
    refreshed: Mutex<Vec<u64>>,
}

impl App {
    async fn refresh(&self, key: &u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        tokio::task::yield_now().await;
        self.refreshed.lock().unwrap().push(*key);
        Ok(())
    }
}

async fn refresh(job: Job<'_, u64>) -> Result<Outcome, std::io::Error> {
    let _ = *job;
    Ok(Outcome::Done)
}

async fn refresh_unfailing(job: Job<'_, u64>) {
    let _ = *job;
}

#[tokio::test]
async fn run_async_can_be_spawned() {
    let _watchdog = watchdog(60);
    let queue = queue_of([1, 2]);
    queue.shut_down();
    let app = Arc::new(App::default());
    let state = Arc::clone(&app);

    let workers = Workers::new(&queue).concurrency(1);
    let running = tokio::spawn(workers.run_async(async move |job| app.refresh(&job).await));
    running.await.unwrap().unwrap();
    assert_eq!(*state.refreshed.lock().unwrap(), [1, 2]);

    let queue = queue_of([1, 2]);
    queue.shut_down();
    let running = tokio::spawn(Workers::new(&queue).run_async(refresh));
    running.await.unwrap().unwrap();
    assert!(queue.get().is_none());

    // In an async block, with an async function.
    let queue = queue_of([1, 2]);
    queue.shut_down();
    let running = tokio::spawn(async move { Workers::new(&queue).run_async(refresh).await });
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn spawn_on_takes_closures_and_functions() {
    let _watchdog = watchdog(60);
    let here = &Handle::current();
    let queue = queue_of([1, 2]);
    queue.shut_down();
    let app = Arc::new(App::default());
    let state = Arc::clone(&app);
    let workers = Workers::new(&queue).concurrency(1);
    let running = workers.spawn_on(here, move |job| {
        let app = Arc::clone(&app);
        async move { app.refresh(&job).await }
    });
    running.unwrap().join_async().await;
    assert_eq!(*state.refreshed.lock().unwrap(), [1, 2]);

    let queue = queue_of([1, 2]);
    queue.shut_down();
    let workers = || Workers::new(&queue);
    let running = [
        workers().spawn_on(here, |job| async move { assert!(*job < 3) }),
        workers().spawn_on(here, async |job: Job<'_, u64>| _ = job.handle().add()),
        workers().spawn_on(here, refresh_unfailing),
    ];
    for running in running {
        running.unwrap().join_async().await;
    }
    assert!(queue.get().is_none());
}

// ---- ends (W4 W6) -----------------------------------------------------------------------------

#[tokio::test] // W6
async fn an_abort_puts_the_keys_in_flight_back_and_leaves_the_queue_open() {
    let _watchdog = watchdog(60);
    let limiter = ItemExponentialFailure::new(MS, secs(1)).unwrap();
    limiter.when(&1);
    let queue = WorkQueue::builder().rate_limiter(limiter).build();
    let queue = queue.unwrap();
    queue.add_all([1, 2, 3]);
    let running = stuck(&queue, 2).await;
    running.abort();
    running.join_async().await;
    assert_eq!(queue.add(4), Added::Queued);
    let mut keys = take_all(&queue);
    assert_eq!(keys[0], 3, "the others are put back behind it");
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3, 4]);
    // Neither counted nor forgotten.
    assert_eq!([1, 2].map(|key| queue.num_requeues(&key)), [1, 0]);
}

#[tokio::test] // W6
async fn dropping_the_handle_aborts() {
    let _watchdog = watchdog(60);
    let queue = queue_of([1, 2]);
    drop(stuck(&queue, 2).await);
    while queue.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(queue.add(3), Added::Queued);
    assert_eq!(queue.len(), 3);
}

#[tokio::test] // W6
async fn a_join_that_is_dropped_aborts_and_a_wait_for_a_signal_changes_nothing() {
    let _watchdog = watchdog(60);
    let queue = queue_of([1, 2]);
    let mut running = stuck(&queue, 2).await;
    {
        let run = running.run_until(pending::<()>(), secs(60));
        assert!(poll_until_idle(&mut Box::pin(run)).is_pending());
    }
    tokio::task::yield_now().await;
    assert!(!running.is_finished());
    assert!(poll_until_idle(&mut Box::pin(running.join_async())).is_pending());
    while queue.len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!((queue.len(), queue.is_shutting_down()), (2, false));
}

#[tokio::test] // W6
async fn an_aborted_task_that_runs_run_async_puts_its_keys_back() {
    let _watchdog = watchdog(60);
    let queue = queue_of([1, 2, 3]);
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    let workers = Workers::new(&queue).concurrency(2);
    let running = tokio::spawn(workers.run_async(async move |_: Job<'_, u64>| {
        begins.add_permits(1);
        pending::<()>().await;
    }));
    drop(begun.acquire_many(2).await.unwrap());
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(take_all(&queue), [3, 1, 2]);
}

#[test] // W6: a task that is aborted later than another one does not begin the key that it put back.
fn an_abort_begins_no_work() {
    let _watchdog = watchdog(60);
    let runtime = runtime_of(4);
    let metrics = runtime.metrics();
    for _ in 0..scaled(500) {
        let queue = queue_of([1]);
        let begins = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begins);
        let workers = Workers::new(&queue).concurrency(8);
        let running = workers.spawn_on(runtime.handle(), move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            pending::<()>()
        });
        let running = running.unwrap();
        eventually("the others wait", || waiting(&queue) == 7);
        // A parked thread is not in the middle of a poll that may still take a key. (A task for each
        // thread that blocks it would do, but tokio leaves a task behind one that blocks.)
        let is_parked = |thread| metrics.worker_park_unpark_count(thread) % 2 == 1;
        eventually("all threads park", || (0..4).all(is_parked));
        running.abort();
        runtime.block_on(running.join_async());
        assert_eq!((begins.load(Ordering::SeqCst), queue.len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)] // W8 S7: the clock goes on by itself while nothing else happens.
async fn drain_within_reports_what_is_left_when_its_time_is_over_and_aborts() {
    let _watchdog = watchdog(60);
    let queue = queue_of([1, 2, 3]);
    let mut running = stuck(&queue, 2).await;
    let begun = tokio::time::Instant::now();
    let drained = running.drain_within_async(secs(20)).await;
    assert_eq!(begun.elapsed(), secs(20));
    assert!(!drained.is_finished());
    assert_eq!(figures(drained), (1, 2, 0));
    running.join_async().await;
    // A queue that is shut down takes no key back.
    assert_eq!(queue.add(4), Added::ShutDown);
    assert_eq!(take_all(&queue), [3]);
}

#[tokio::test(start_paused = true)] // W8
async fn run_until_waits_for_the_signal_and_then_for_the_keys() {
    let _watchdog = watchdog(60);
    let queue = queue_of([1, 2]);
    let workers = Workers::new(&queue).concurrency(1);
    let sleepy = |_| tokio::time::sleep(secs(5));
    let mut running = workers.spawn_on(&Handle::current(), sleepy).unwrap();
    let begun = tokio::time::Instant::now();
    let drained = running
        .run_until(tokio::time::sleep(secs(3)), secs(20))
        .await;
    assert_eq!(begun.elapsed(), secs(10));
    assert!(drained.is_finished());
    assert!(queue.is_shutting_down());
}

#[test] // W8
fn a_runtime_without_time_is_found_before_anything_is_shut_down() {
    let _watchdog = watchdog(60);
    let queue = queue_of([]);
    let runtime = Builder::new_current_thread().build().unwrap();
    for until in [false, true] {
        let workers = Workers::new(&queue).concurrency(1);
        let mut running = workers.spawn_on(runtime.handle(), |_| ready(())).unwrap();
        let stop = AssertUnwindSafe(|| match until {
            false => runtime.block_on(running.drain_within_async(secs(1))),
            true => runtime.block_on(running.run_until(pending::<()>(), secs(1))),
        });
        assert!(catch_unwind(stop).is_err());
        assert!(!queue.is_shutting_down());
    }
}
