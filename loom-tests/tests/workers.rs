//! The worker loop: as users check theirs (the page on model checking), and what it records.
#![cfg(keyqueue_loom)]

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use keyqueue::WorkQueue;
use keyqueue::worker::{Failures, Job, Outcome, Verdict, Workers};
use keyqueue_loom_tests::{Queue, check, delayed_queue, spawn_with};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[derive(Default)]
struct Pipeline {
    row: AtomicU32,
    index: AtomicU32,
    queue: WorkQueue<u8>,
}

/// W1, W4, C5. An async worker beside an add and a shut-down, with the queue's defaults: the key is worked on, and
/// what was written before its add is seen.
#[test]
fn an_async_worker_does_what_was_added() {
    check("async_worker", 2, || {
        let pipeline = Arc::new(Pipeline::default());
        let worker = spawn_with(&pipeline, |Pipeline { row, index, queue }| {
            let work = async |_: Job<'_, u8>| index.store(row.load(Relaxed), Relaxed);
            loom::future::block_on(Workers::new(queue).concurrency(1).run_async(work)).unwrap();
        });
        pipeline.row.store(1, Relaxed);
        pipeline.queue.add(1);
        pipeline.queue.shut_down();
        worker.join().unwrap();
        assert_eq!(pipeline.index.load(Relaxed), 1);
    });
}

/// Lets a worker process the key that is queued. Key 1 fails, and is tried again after a millisecond.
fn work(queue: &Queue, failures: &Failures<u8>) {
    let workers = Workers::new(queue).concurrency(1).failures(failures);
    let run = workers.run_async(async |job: Job<'_, u8>| match *job {
        1 => Verdict::RetryAfter("no route", Duration::from_millis(1)),
        _ => Verdict::Ok(Outcome::Done),
    });
    assert!(
        pin!(run)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
}

/// X2. A worker that ends another key, and so looks for a stale failure, beside the end of a retry's delay. Interleaving:
/// the delay has ended; the worker finds the key idle, and without a delay; the key is added.
#[test]
fn a_failure_stays_beside_the_end_of_its_delay() {
    check("failure_end", 2, || {
        let (queue, time) = delayed_queue(keyqueue::Builder::manual_timers);
        let failures = Failures::new(2).unwrap();
        queue.add(1);
        work(&queue, &failures);
        time.advance(Duration::from_millis(1));
        queue.add(2);
        let driver = spawn_with(&queue, |queue| assert_eq!(queue.fire_due(), 1));
        work(&queue, &failures);
        driver.join().unwrap();
        assert_eq!(failures.len(), 1, "the key waits for its next try");
    });
}
