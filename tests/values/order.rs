//! Many threads: the values of each key arrive in the order of each thread, none lost, none doubled,
//! each in one delivery that finishes (V1 to V3).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{eventually, scaled, watchdog};
use keyqueue::worker::{Outcome, Verdict, Workers};
use keyqueue::{Builder, Ended, Receipt, ValueQueue, Valued, WorkQueue, merge};

const KEYS: u32 = 64;
const THREADS: u32 = 4;
const PUTS: u32 = scaled(20_000) as u32;

/// Of one thread, in its order.
type Put = (u32, u32);
type Queue = ValueQueue<u32, Vec<Put>>;

fn small(builder: Builder<Valued<u32, Vec<Put>>>) -> Queue {
    builder.shards(2).ring(4).build().unwrap()
}

fn queues() -> [Queue; 2] {
    let builder = || WorkQueue::builder().merge(merge::append);
    [builder().build().unwrap(), small(builder())]
}

/// What the deliveries that finished had.
struct Log {
    keys: Vec<Mutex<Vec<Put>>>,
    held: Vec<AtomicBool>,
    count: AtomicUsize,
}

impl Log {
    fn new() -> Self {
        Log {
            keys: (0..KEYS).map(|_| Mutex::default()).collect(),
            held: (0..KEYS).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// Runs the work on a key, which no other thread works on.
    fn alone<R>(&self, key: u32, work: impl FnOnce() -> R) -> R {
        let held = &self.held[key as usize];
        assert!(!held.swap(true, Ordering::SeqCst), "{key} is held twice");
        let end = work();
        held.store(false, Ordering::SeqCst);
        end
    }

    fn finished(&self, key: u32, value: &[Put]) {
        assert!(!value.is_empty(), "a delivery without a value");
        self.keys[key as usize].lock().unwrap().extend(value);
        self.count.fetch_add(value.len(), Ordering::SeqCst);
    }

    fn wait(&self) {
        eventually("every value was delivered", || {
            self.count.load(Ordering::SeqCst) >= (THREADS * PUTS) as usize
        });
    }

    #[track_caller]
    fn assert_complete(&self) {
        for (key, values) in self.keys.iter().enumerate() {
            let values = values.lock().unwrap();
            for thread in 0..THREADS {
                let of_thread = values.iter().filter(|put| put.0 == thread);
                let came: Vec<_> = of_thread.map(|put| put.1).collect();
                let put = (0..PUTS).filter(|n| key_of(thread, *n) == key as u32);
                assert_eq!(came, put.collect::<Vec<_>>(), "key {key}, thread {thread}");
            }
        }
    }
}

fn key_of(thread: u32, n: u32) -> u32 {
    (n / 3 * 7 + thread) % KEYS
}

/// Puts the values of one thread, by every way there is. Returns the receipts.
fn put_all(queue: &Queue, thread: u32) -> Vec<Receipt> {
    let handles: Vec<_> = (0..KEYS).map(|key| queue.handle(key.into())).collect();
    let mut receipts = Vec::new();
    for n in 0..PUTS {
        let key = key_of(thread, n);
        let (put, handle) = ((thread, n), &handles[key as usize]);
        let added = match (n + thread) % 8 {
            0 => queue.put(key, vec![put]),
            1 => queue.put_ref(&key, vec![put]),
            2 => queue.update(key, |list| list.push(put)),
            3 => handle.put(vec![put]),
            4 => queue.put_after(key, vec![put], Duration::ZERO),
            5 => queue.put_after(key, vec![put], Duration::from_micros(200)),
            6 => {
                receipts.push(queue.put_tracked(key, vec![put]));
                continue;
            }
            _ => handle.put_after(vec![put], Duration::from_micros(100)),
        };
        assert!(added.is_accepted());
    }
    receipts
}

/// Puts from all threads while three threads consume, and shuts the queue down once all has come.
fn run(queue: &Arc<Queue>, consume: impl Fn(&Arc<Queue>, &Log, u32) + Sync) {
    let log = Log::new();
    thread::scope(|scope| {
        // If something is lost, the test fails instead of hanging.
        let _end = queue.shut_down_on_drop();
        let put: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || put_all(queue, thread)))
            .collect();
        for n in 0..3 {
            let (log, consume) = (&log, &consume);
            scope.spawn(move || consume(queue, log, n));
        }
        let receipts: Vec<_> = put
            .into_iter()
            .flat_map(|put| put.join().unwrap())
            .collect();
        log.wait();
        queue.shut_down();
        for receipt in receipts {
            assert_eq!(receipt.wait(), Ended::Done);
        }
    });
    log.assert_complete();
}

#[test] // V1 V2
fn values_arrive_in_the_order_of_each_thread() {
    let _watchdog = watchdog(120);
    for queue in queues().map(Arc::new) {
        run(&queue, |queue, log, consumer| {
            let all = |key, value: &[Put]| log.alone(key, || log.finished(key, value));
            match consumer {
                0 => queue
                    .iter()
                    .for_each(|item| all(**item.key(), item.value())),
                1 => {
                    while let Some(batch) = queue.get_batch(8) {
                        batch
                            .iter()
                            .for_each(|item| all(**item.key(), item.value()));
                    }
                }
                _ => pollster::block_on(async {
                    while let Some(item) = queue.get_owned_async().await {
                        all(**item.key(), item.value());
                    }
                }),
            }
        });
    }
}

#[test] // V2 V3
fn retries_and_panics_keep_the_order_and_lose_nothing() {
    let _watchdog = watchdog(120);
    for queue in queues().map(Arc::new) {
        run(&queue, |queue, log, consumer| {
            for n in consumer.. {
                let Some(item) = queue.get() else { break };
                let key = **item.key();
                log.alone(key, thread::yield_now);
                match n % 7 {
                    0 => assert!(item.retry().is_accepted()),
                    1 => assert!(item.retry_after(Duration::from_micros(150)).is_accepted()),
                    2 => drop(item.retry_on_drop()),
                    3 => {
                        let work = || {
                            let _item = item.retry_on_drop();
                            resume_unwind(Box::new("the work fails"));
                        };
                        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
                    }
                    4 => {
                        // A part of it is done, and the rest is retried.
                        let mut item = item;
                        let value = item.value_mut();
                        let rest = value.split_off(value.len().div_ceil(2));
                        log.finished(key, value);
                        *value = rest;
                        let is_empty = value.is_empty();
                        if !is_empty {
                            item.retry();
                        }
                    }
                    _ => log.finished(key, item.value()),
                }
            }
        });
    }
}

#[test] // V2 V3 W2
fn workers_that_fail_keep_the_order_and_lose_nothing() {
    let _watchdog = watchdog(120);
    for queue in queues().map(Arc::new) {
        run(&queue, |queue, log, consumer| {
            let calls = AtomicUsize::new(consumer as usize);
            // The work takes out of the value what it has done, so that a retry has the rest.
            let work = |key: &u32, value: &mut Vec<Put>| {
                let _entered = log.held[*key as usize].swap(true, Ordering::SeqCst);
                assert!(!_entered, "{key} is held twice");
                let call = calls.fetch_add(1, Ordering::SeqCst);
                if call % 7 > 4 {
                    log.finished(*key, &std::mem::take(value));
                }
                log.held[*key as usize].store(false, Ordering::SeqCst);
                match call % 7 {
                    0 => Verdict::Retry("fails"),
                    1 => Verdict::RetryAfter("fails", Duration::from_micros(100)),
                    2 => Verdict::Ok(Outcome::RequeueAfter(Duration::from_micros(100))),
                    3 => Verdict::Ok(Outcome::Later(Duration::ZERO)),
                    4 => resume_unwind(Box::new("the work fails")),
                    _ => Verdict::Ok(Outcome::Done),
                }
            };
            let workers = Workers::new(queue);
            let end = match consumer {
                0 => workers.threads(2).values().run(work),
                1 => workers.threads(1).values().run(work),
                _ => pollster::block_on(workers.tasks(4).values().run_async(
                    async |key: &u32, value: &mut Vec<Put>| {
                        futures_lite::future::yield_now().await;
                        work(key, value)
                    },
                )),
            };
            end.unwrap();
        });
    }
}
