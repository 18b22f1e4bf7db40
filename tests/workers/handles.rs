//! The handle to workers in the background, which is one for threads and tasks: both are joined, drained and stopped by
//! blocking and by awaiting.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use crate::common::timed::{HOUR, ms, secs};
use crate::common::{eventually, poll_until_idle, watchdog};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Job, Running, Workers};
use keyqueue::{Added, WorkQueue};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::yield_now;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_time().build().unwrap()
}

/// Workers that are tasks, or threads.
fn started(queue: &WorkQueue<u64>, tasks_of: Option<&Runtime>) -> Running<u64> {
    let workers = Workers::new(queue).concurrency(2);
    match tasks_of {
        Some(runtime) => workers.spawn_on(runtime.handle(), |_| ready(())),
        None => workers.spawn(|_| ()),
    }
    .unwrap()
}

#[test] // W4 W8 S6
fn threads_and_tasks_are_joined_by_blocking_and_by_awaiting_and_hold_nothing_then() {
    let _watchdog = watchdog(60);
    let runtime = runtime();
    for tasks_of in [None, Some(&runtime)] {
        for blocking in [true, false] {
            let queue = WorkQueue::from_iter([1, 2, 3]);
            let handle = queue.handle(4);
            let running = started(&queue, tasks_of);
            eventually("all are done", || queue.is_empty());
            assert!(!running.is_finished());
            drop(queue);
            assert!(handle.add().is_accepted(), "workers keep it open");
            running.abort();
            eventually("they end", || running.is_finished());
            if blocking {
                running.join();
            } else {
                pollster::block_on(running.join_async());
            }
            assert_eq!(handle.add(), Added::ShutDown);
        }
    }
}

#[test] // W8
fn a_signal_ends_threads_and_tasks_after_what_they_hold() {
    let _watchdog = watchdog(60);
    let runtime = runtime();
    for tasks_of in [None, Some(&runtime)] {
        let queue = WorkQueue::new();
        let mut running = started(&queue, tasks_of);
        queue.add_all(0..100);
        let drained = runtime.block_on(running.run_until(ready(()), HOUR));
        assert!(drained.is_finished());
        assert!(running.is_finished());
        // It ends, too, if the workers do before the signal.
        let queue = WorkQueue::new();
        let mut running = started(&queue, tasks_of);
        queue.shut_down();
        let never = pending::<()>();
        let drained = runtime.block_on(running.run_until(never, HOUR));
        assert!(drained.is_finished());
    }
}

#[test] // S5 W8
fn a_drain_waits_for_the_reports_of_dropped_retries() {
    let _watchdog = watchdog(60);
    let runtime = runtime();
    let fails = |_: Job<'_, u64>| Err::<(), _>("no route");
    for (in_tasks, blocking) in [(false, true), (true, true), (true, false)] {
        let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter).build().unwrap();
        queue.add_all(0..1000);
        let reports = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reports);
        let report = move || _ = counted.fetch_add(1, Ordering::Relaxed);
        let workers = Workers::new(&queue).concurrency(1);
        let mut running = match (in_tasks, blocking) {
            (false, _) => workers.on_give_up(move |_, _| report()).spawn(fails),
            (true, true) => workers
                .on_give_up(move |_, _| report())
                .spawn_on(runtime.handle(), move |job| ready(fails(job))),
            (true, false) => workers
                .on_give_up_async(move |_, _| {
                    let report = report.clone();
                    async move {
                        yield_now().await;
                        report();
                    }
                })
                .spawn_on(runtime.handle(), move |job| ready(fails(job))),
        }
        .unwrap();
        eventually("all have failed", || queue.counts().delayed == 1000);
        let drained = match blocking {
            true => running.drain_within(secs(60)),
            false => runtime.block_on(running.run_until(ready(()), HOUR)),
        };
        assert!(drained.is_finished());
        assert_eq!(reports.load(Ordering::Relaxed), 1000);
    }
}

#[test] // W6
fn tasks_that_are_never_polled_or_whose_runtime_ends_have_ended() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::from_iter([1]);
    let (holds, held) = mpsc::channel::<()>();
    let spawn = |runtime: &Runtime| {
        let holds = holds.clone();
        let work = move |_| {
            let _ = &holds;
            pending::<()>()
        };
        Workers::new(&queue)
            .concurrency(2)
            .spawn_on(runtime.handle(), work)
            .unwrap()
    };
    // Polls nothing until it is told to.
    let runtime = Builder::new_current_thread().build().unwrap();
    let aborted = spawn(&runtime);
    aborted.abort();
    let lost = spawn(&runtime);
    drop(runtime);
    assert!(aborted.is_finished() && lost.is_finished());
    aborted.join();
    assert!(poll_until_idle(&mut Box::pin(lost.join_async())).is_ready());
    drop(holds);
    assert!(held.recv().is_err(), "what they held is dropped");
    assert_eq!(queue.len(), 1);
}

#[test] // W8
fn a_join_that_blocks_waits_for_tasks() {
    let _watchdog = watchdog(60);
    let runtime = runtime();
    let queue = WorkQueue::new();
    queue.add_all(0..100);
    queue.shut_down();
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let workers = Workers::new(&queue).concurrency(2);
    let running = workers.spawn_on(runtime.handle(), move |_| {
        let done = Arc::clone(&counted);
        async move {
            yield_now().await;
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
    running.unwrap().join();
    assert_eq!(done.load(Ordering::Relaxed), 100);
}

#[tokio::test] // W8
async fn workers_have_ended_once_the_last_one_has() {
    let queue = WorkQueue::from_iter([1]);
    let (goes_on, work) = (Arc::new(Notify::new()), Workers::new(&queue).concurrency(2));
    let waits = Arc::clone(&goes_on);
    let running = work.spawn_on(&tokio::runtime::Handle::current(), move |_: Job<'_, _>| {
        let waits = Arc::clone(&waits);
        async move { waits.notified().await }
    });
    let running = running.unwrap();
    queue.shut_down();
    // The runtime has one thread: each task has had its turns.
    for _ in 0..10 {
        yield_now().await;
        assert!(!running.is_finished());
    }
    goes_on.notify_one();
    running.join_async().await;
}

#[test] // S5 W8
fn a_drain_whose_time_is_over_aborts_the_reports_of_dropped_retries() {
    let _watchdog = watchdog(60);
    let runtime = runtime();
    for blocking in [true, false] {
        let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
        let queue = WorkQueue::builder().rate_limiter(limiter).build().unwrap();
        queue.add(1);
        let workers = Workers::new(&queue).concurrency(1);
        let workers = workers.on_give_up_async(|_, _| pending());
        let fails = |_| ready(Err::<(), _>("no route"));
        let mut running = workers.spawn_on(runtime.handle(), fails).unwrap();
        eventually("it has failed", || {
            let counts = queue.counts();
            // The drain does not wait for it any more.
            counts.delayed == 1 && counts.processing == 0
        });
        let drained = match blocking {
            true => running.drain_within(ms(5)),
            false => runtime.block_on(running.drain_within_async(ms(5))),
        };
        assert!(drained.is_finished());
        eventually("the report is aborted", || running.is_finished());
        assert_eq!(queue.take_left().len(), 1);
    }
}
