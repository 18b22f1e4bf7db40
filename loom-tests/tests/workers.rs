//! The worker loop as users check theirs (the page on model checking).
#![cfg(keyqueue_loom)]

use keyqueue::WorkQueue;
use keyqueue::worker::Workers;
use keyqueue_loom_tests::{check, spawn_with};
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
            let work = async |_: &u8| index.store(row.load(Relaxed), Relaxed);
            loom::future::block_on(Workers::new(queue).tasks(1).run_async(work)).unwrap();
        });
        pipeline.row.store(1, Relaxed);
        pipeline.queue.add(1);
        pipeline.queue.shut_down();
        worker.join().unwrap();
        assert_eq!(pipeline.index.load(Relaxed), 1);
    });
}
