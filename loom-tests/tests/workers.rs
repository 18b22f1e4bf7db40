//! The worker loop: as users check theirs (the page on model checking), and what it records.
#![cfg(keyqueue_loom)]

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use keyqueue::WorkQueue;
use keyqueue::worker::{Failures, GivenUp, Job, Outcome, Verdict, Workers};
use keyqueue_loom_tests::values::{Bag, Values, bag, values};
use keyqueue_loom_tests::{Queue, check, delayed_queue, spawn_with};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Puts number 3 for a key and shuts the queue down beside a worker, perhaps so that what waits is left. Returns what the
/// worker has done, and then what is left. A shut-down leaves nothing.
fn put_and_end(
    queue: &Arc<Values>,
    key: u8,
    leaves: bool,
    worker: impl FnOnce(&Values) -> Vec<u8> + 'static,
) -> Vec<u8> {
    let worker = spawn_with(queue, worker);
    assert!(queue.put(key, bag(3)).is_accepted());
    _ = match leaves {
        false => queue.shut_down(),
        true => queue.shut_down_now(),
    };
    let mut numbers = worker.join().unwrap();
    let left = queue.take_left();
    assert!(leaves || left.is_empty(), "W4: {left:?}");
    let left = left.into_iter();
    numbers.extend(left.flat_map(|left| left.value.unwrap().touch()));
    numbers
}

fn each_beside(name: &str, leaves: bool) {
    check(name, 2, move || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        queue.put(1, bag(2));
        let numbers = put_and_end(&queue, 1, leaves, |queue| {
            let done = std::cell::RefCell::new(Vec::new());
            let work =
                async |mut job: Job<'_, u8, Bag>| done.borrow_mut().extend(job.value_mut().touch());
            let workers = Workers::new(queue).concurrency(1).each(1);
            loom::future::block_on(workers.run_async(work)).unwrap();
            done.into_inner()
        });
        assert_eq!(numbers, [1, 2, 3]);
    });
}

/// W11, S1. Turns of one message beside a put and a shut-down: what the end of a turn puts back goes before what was put, and
/// if it is refused, the turn goes on.
#[test]
fn messages_come_in_order_beside_a_put_and_a_shut_down() {
    each_beside("each_shut_down", false);
}

/// W11, S8, S12. The same beside an end that leaves what waits.
#[test]
fn messages_are_done_or_left_in_order_beside_a_put_and_an_end() {
    each_beside("each_now", true);
}

fn batches_beside(name: &str, preemptions: usize, leaves: bool) {
    check(name, preemptions, move || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        queue.put(2, bag(2));
        let mut numbers = put_and_end(&queue, 2, leaves, |queue| {
            let seen = Arc::new(loom::sync::Mutex::new(Vec::new()));
            let given_up = Arc::clone(&seen);
            let workers = Workers::new(queue).concurrency(1).max_retries(0);
            let workers = workers.on_give_up(move |_, report: GivenUp<&str, Bag>| {
                given_up
                    .lock()
                    .unwrap()
                    .extend(report.value.unwrap().touch());
            });
            let work = async |mut jobs: Vec<Job<'static, u8, Bag>>| {
                let [job] = &mut jobs[..] else {
                    return Err("the batch fails as a whole");
                };
                match *job.key() {
                    1 => seen.lock().unwrap().extend(job.value_mut().touch()),
                    _ => return Err("key 2 fails alone"),
                }
                Ok(())
            };
            loom::future::block_on(workers.run_batches_async(2, work)).unwrap();
            let seen = seen.lock().unwrap();
            seen.clone()
        });
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3]);
    });
}

/// W10, S1. A batch that fails as a whole and is halved, beside a put for its bad key and a shut-down: each key is done, or
/// given up, once for each value.
#[test]
fn a_batch_is_halved_beside_a_put_and_a_shut_down() {
    batches_beside("batch_shut_down", 2, false);
}

/// W10, S8, S12. The same beside an end that leaves what waits.
#[test]
fn a_batch_is_halved_beside_a_put_and_an_end() {
    batches_beside("batch_now", 1, true);
}

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
