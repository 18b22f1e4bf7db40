//! Workers keep their queue open: it is shut down by the last of the queue and its workers that is dropped (S6, W4).

use std::future::pending;
use std::sync::mpsc;

use crate::common::{poll_until_idle, watchdog};
use keyqueue::worker::{Job, Workers};
use keyqueue::{Added, WorkQueue};

#[test] // S6
fn workers_that_do_not_run_yet_keep_the_queue_open() {
    let queue = WorkQueue::<u64>::new();
    let handle = queue.handle(1);
    let workers = Workers::<u64>::new(&queue);
    drop(queue);
    assert_eq!(handle.add(), Added::Queued);
    drop(workers);
    assert_eq!(handle.add(), Added::ShutDown);
}

#[test] // S6 W4
fn threads_work_on_after_the_queue_is_dropped_and_close_it_as_they_end() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u64>::new();
    let handle = queue.handle(1);
    let (worked, works) = mpsc::channel();
    let workers = Workers::new(&queue).concurrency(2);
    let running = workers
        .spawn(move |job| worked.send(*job).unwrap())
        .unwrap();
    drop(queue);
    for _ in 0..3 {
        assert!(handle.add().is_accepted());
        assert_eq!(works.recv(), Ok(1));
    }
    running.abort();
    running.join();
    assert_eq!(handle.add(), Added::ShutDown);
}

#[test] // S6 W6
fn a_future_keeps_the_queue_open_and_closes_it_as_it_is_dropped() {
    let queue = WorkQueue::from_iter([1_u64]);
    let handle = queue.handle(2);
    let workers = Workers::new(&queue).concurrency(2);
    let work = async |job: Job<'_, u64>| match *job {
        1 => pending().await,
        _ => drop(job),
    };
    let mut run = Box::pin(workers.run_async(work));
    drop(queue);
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(handle.add(), Added::Queued);
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(handle.add(), Added::Queued, "it was idle");
    drop(run);
    assert_eq!(handle.add(), Added::ShutDown);
}

#[tokio::test] // S6 W6
async fn tasks_keep_the_queue_open_and_close_it_as_they_end() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::<u64>::new();
    let handle = queue.handle(1);
    let (worked, mut works) = tokio::sync::mpsc::unbounded_channel();
    let workers = Workers::new(&queue).concurrency(2);
    let work = move |job: Job<'static, u64>| {
        worked.send(*job).unwrap();
        std::future::ready(())
    };
    let running = workers.spawn_on(&tokio::runtime::Handle::current(), work);
    drop(queue);
    for _ in 0..3 {
        assert!(handle.add().is_accepted());
        assert_eq!(works.recv().await, Some(1));
    }
    let running = running.unwrap();
    running.abort();
    running.join_async().await;
    assert_eq!(handle.add(), Added::ShutDown);
}
