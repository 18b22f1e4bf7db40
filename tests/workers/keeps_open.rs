//! Workers keep their queue open: it is shut down by the last of the queue and its workers that is dropped (S6, W4).

use std::future::pending;

use crate::common::poll_until_idle;
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
