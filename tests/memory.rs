//! What the queue holds, and what it allocates (C10).
//!
//! A global allocator counts. Each test runs in a process of its own; run with `--nocapture` to see the figures.
//!
//! # The fixed cache
//!
//! Of each shard's idle keys up to [`RESIDENTS`] are kept for good, and until the next sweep as many more:
//! [`CACHE`] bytes a shard. An idle queue may hold so much beyond twice what an empty one does.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use common::heap::{CountingHeap, allocations, allocations_of, held};
use common::{WakeCount, alone, eventually, poll, waiting, watchdog};
use keyqueue::{Added, WorkQueue};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

// ---- the measured queue ---------------------------------------------------------------------

const SHARDS: usize = 16;
/// The queue's own fixed cache is 8192 nodes, an equal part in each shard.
const RESIDENTS: usize = 8192 / SHARDS;
/// A shard sweeps when half as many keys have come as it holds, so it may keep its residents twice:
/// nodes in pages that are not full, a table with up to four places of 17 bytes for each, the memory
/// of swept keys, and two pages.
const CACHE: usize = 2 * RESIDENTS * (56 + 4 * 17 * 8 / 7) + 8192 + 2 * 4096;
const MILLION: u64 = 1_000_000;

/// A queue, and what it held when it was empty.
struct Measured {
    queue: WorkQueue<u64>,
    before: isize,
    empty: isize,
}

impl Measured {
    fn new() -> Self {
        let before = held();
        let queue = WorkQueue::builder().shards(SHARDS).build().unwrap();
        // One that was never used holds nothing at all (tests/first_call.rs).
        queue.add(0);
        queue.try_get().unwrap().done();
        queue.shrink();
        let empty = held() - before;
        Measured {
            queue,
            before,
            empty,
        }
    }

    fn held(&self) -> isize {
        held() - self.before
    }

    #[track_caller]
    fn assert_back_to_the_cache(&self, after: &str) {
        let (held, empty) = (self.held(), self.empty);
        let most = 2 * empty + (SHARDS * CACHE).cast_signed();
        println!("{after}: {held} bytes held, empty {empty}, at most {most}");
        assert!(
            held <= most,
            "{after}: {held} bytes held, not at most {most}"
        );
    }

    #[track_caller]
    fn assert_back_to_empty_by_shrink(&self) {
        self.queue.shrink();
        let (held, empty) = (self.held(), self.empty);
        println!("after shrink: {held} bytes held, empty {empty}");
        assert!(
            held <= 2 * empty,
            "{held} bytes held after shrink, empty {empty}"
        );
    }

    /// Delivers exactly so many keys, and never looks at an empty queue.
    fn deliver(&self, keys: u64) {
        for _ in 0..keys {
            self.queue.try_get().unwrap().done();
        }
    }
}

/// How a worker looks for more work.
type Look = fn(&WorkQueue<u64>);

// ---- after a burst --------------------------------------------------------------------------

#[test] // C10
fn a_burst_of_a_million_keys_is_forgotten_by_normal_use() {
    alone(
        "a_burst_of_a_million_keys_is_forgotten_by_normal_use",
        || {
            let looks: [(&str, Look); 3] = [
                ("try_get", |queue| assert!(queue.try_get().is_err())),
                ("get_timeout", |queue| {
                    assert!(queue.get_timeout(Duration::ZERO).is_err());
                }),
                ("get_async", |queue| {
                    assert!(poll(&mut queue.get_async(), Waker::noop()).is_pending());
                }),
            ];
            for (way, look) in looks {
                let measured = Measured::new();
                assert_eq!(measured.queue.add_all(0..MILLION), MILLION as usize);
                let each = (measured.held() - measured.empty) / MILLION.cast_signed() as isize;
                println!("{each} bytes a queued u64 key");
                assert!(each <= 96, "{each} bytes a queued u64 key");
                measured.deliver(MILLION);
                // A worker that looks for more work: nothing but what it does anyway.
                look(&measured.queue);
                measured.assert_back_to_the_cache(way);
                measured.assert_back_to_empty_by_shrink();
            }
        },
    );
}

#[test] // C10
fn a_burst_is_forgotten_at_once_by_shrink() {
    alone("a_burst_is_forgotten_at_once_by_shrink", || {
        let measured = Measured::new();
        measured.queue.add_all(0..MILLION);
        measured.deliver(MILLION);
        measured.assert_back_to_empty_by_shrink();
    });
}

#[test] // C10
fn a_dropped_queue_leaves_nothing_behind() {
    alone("a_dropped_queue_leaves_nothing_behind", || {
        let use_and_drop = || {
            let queue = WorkQueue::builder().shards(SHARDS).build().unwrap();
            // More than the ring holds, and idle ones beside those that are queued.
            queue.add_all((0..10_000_u64).map(|key| key.to_string()));
            (0..5000).for_each(|_| queue.try_get().unwrap().done());
            let handle = queue.handle("idle".to_owned());
            queue.add_after("delayed".to_owned(), Duration::from_secs(3600));
            drop((queue, handle));
        };
        // What is made once a process or thread is there then.
        use_and_drop();
        let before = held();
        use_and_drop();
        assert_eq!(held(), before);
    });
}

#[test] // C10
fn a_stream_of_a_million_keys_never_holds_more_than_the_cache() {
    alone(
        "a_stream_of_a_million_keys_never_holds_more_than_the_cache",
        || {
            let measured = Measured::new();
            let mut most = 0;
            for key in 0..MILLION {
                measured.queue.add(key);
                measured.deliver(1);
                most = most.max(measured.held());
            }
            println!("at most {most} bytes held");
            measured.assert_back_to_the_cache("stream");
            assert!(most <= 2 * measured.empty + (SHARDS * CACHE).cast_signed());
            measured.assert_back_to_empty_by_shrink();
        },
    );
}

#[test] // C10
fn a_stream_after_a_burst_clears_it_away_though_no_worker_ever_idles() {
    alone(
        "a_stream_after_a_burst_clears_it_away_though_no_worker_ever_idles",
        || {
            let measured = Measured::new();
            measured.queue.add_all(0..100_000);
            measured.deliver(99_999);
            // One key is always queued: nobody ever finds the queue empty.
            for key in 0..MILLION {
                measured.queue.add(MILLION + key);
                measured.deliver(1);
            }
            measured.assert_back_to_the_cache("stream after a burst");
        },
    );
}

#[test] // C10
fn a_burst_between_threads_is_forgotten_by_the_consumer_that_waits() {
    alone(
        "a_burst_between_threads_is_forgotten_by_the_consumer_that_waits",
        || {
            let _watchdog = watchdog(60);
            let measured = Measured::new();
            let queue = &measured.queue;
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| while queue.get().is_some() {});
                }
                thread::scope(|scope| {
                    for n in 0..2 {
                        scope.spawn(move || {
                            (n..MILLION).step_by(2).for_each(|key| {
                                queue.add(key);
                            });
                        });
                    }
                });
                eventually("all is delivered and the consumers wait", || {
                    queue.is_empty() && waiting(queue) == 2
                });
                // Some ordinary traffic on a few keys, as goes on in any queue.
                // A shard whose last sweep found thousands of busy keys wants a quarter as many looks.
                for round in 0..4000 {
                    queue.add(round % 10);
                    eventually("it is delivered", || waiting(queue) == 2);
                }
                queue.shut_down();
            });
            measured.assert_back_to_the_cache("after a burst between threads");
        },
    );
}

#[test] // C10
fn keys_in_flight_when_a_worker_looked_are_forgotten_when_they_are_done() {
    alone(
        "keys_in_flight_when_a_worker_looked_are_forgotten_when_they_are_done",
        || {
            let measured = Measured::new();
            measured.queue.add_all(0..100_000);
            let items = measured.queue.get_batch(100_000);
            // Another worker looks for work, while all of these are busy.
            assert!(measured.queue.try_get().is_err());
            drop(items);
            for _ in 0..4000 {
                assert!(measured.queue.try_get().is_err());
            }
            measured.assert_back_to_the_cache("after a batch");
        },
    );
}

#[test] // C10
fn a_burst_delivered_twice_is_forgotten_in_the_end() {
    alone("a_burst_delivered_twice_is_forgotten_in_the_end", || {
        let measured = Measured::new();
        for _ in 0..2 {
            measured.queue.add_all(0..100_000);
            measured.deliver(100_000);
        }
        println!("{} bytes held", measured.held());
        // Ordinary traffic on a few keys, of workers that go to sleep between them: a sweep of
        // keys that recurred wants four sleeps a key before it looks, and looks twice.
        for round in 0..1_000_000 {
            measured.queue.add(round % 10);
            measured.deliver(1);
            assert!(poll(&mut measured.queue.get_async(), Waker::noop()).is_pending());
        }
        measured.assert_back_to_the_cache("after two bursts of the same keys");
    });
}

#[test] // C10
fn the_values_of_forgotten_keys_are_dropped() {
    alone("the_values_of_forgotten_keys_are_dropped", || {
        let queue = WorkQueue::builder().shards(SHARDS).build().unwrap();
        let shared = Arc::new(());
        let burst = || {
            for key in 0..10_000 {
                queue.add((key, Arc::clone(&shared)));
            }
            for _ in 0..10_000 {
                queue.try_get().unwrap().done();
            }
        };
        burst();
        assert!(queue.try_get().is_err());
        let kept = Arc::strong_count(&shared) - 1;
        println!("{kept} keys kept");
        assert!(kept <= SHARDS * RESIDENTS);
        burst();
        queue.shrink();
        assert_eq!(Arc::strong_count(&shared), 1);
    });
}

// ---- in the steady state --------------------------------------------------------------------

#[test] // C10
fn recurring_keys_allocate_nothing() {
    alone("recurring_keys_allocate_nothing", || {
        for keys in [64, 1024, 100_000] {
            // Room for all keys; the overflow behind the ring allocates.
            let queue = WorkQueue::builder().ring(1 << 17).build().unwrap();
            let cycle = || {
                assert_eq!(queue.add_all(0..keys), keys);
                for _ in 0..keys {
                    queue.try_get().unwrap().done();
                }
            };
            (0..3).for_each(|_| cycle());
            let many = 1_000_000 / keys;
            assert_eq!(
                allocations_of(|| (0..many).for_each(|_| cycle())),
                0,
                "{keys} keys"
            );
        }
    });
}

#[test] // C10
fn recurring_keys_allocate_nothing_though_a_worker_idles_between_the_rounds() {
    let test = "recurring_keys_allocate_nothing_though_a_worker_idles_between_the_rounds";
    alone(test, || {
        for keys in [64, 1024, 100_000] {
            let queue = WorkQueue::builder().ring(1 << 17).build().unwrap();
            let cycle = || {
                assert_eq!(queue.add_all(0..keys), keys);
                while let Ok(item) = queue.try_get() {
                    item.done();
                }
            };
            (0..5).for_each(|_| cycle());
            let many = 1_000_000 / keys;
            let count = allocations_of(|| (0..many).for_each(|_| cycle()));
            println!("{keys} keys: {count} allocations in {many} rounds");
            assert_eq!(count, 0, "{keys} keys, {many} rounds");
        }
    });
}

#[test] // C10
fn recurring_keys_of_a_producer_allocate_nothing_while_a_consumer_waits() {
    let test = "recurring_keys_of_a_producer_allocate_nothing_while_a_consumer_waits";
    alone(test, || {
        let _watchdog = watchdog(60);
        for keys in [64, 1024, 100_000] {
            let queue = WorkQueue::builder().ring(1 << 17).build().unwrap();
            let delivered = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while queue.get().is_some() {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                });
                let mut owed = 0;
                // Each round is waited for, so that the consumer finds nothing and may sleep.
                let mut round = || {
                    owed += queue.add_all(0..keys);
                    while delivered.load(Ordering::SeqCst) < owed {
                        thread::yield_now();
                    }
                };
                (0..5).for_each(|_| round());
                let many = 1_000_000 / keys;
                let count = allocations_of(|| (0..many).for_each(|_| round()));
                println!("{keys} keys: {count} allocations in {many} rounds");
                queue.shut_down();
                assert_eq!(count, 0, "{keys} keys, {many} rounds");
            });
        }
    });
}

#[test] // C10
fn recurring_keys_allocate_nothing_though_a_worker_idles_between_two_of_them() {
    let test = "recurring_keys_allocate_nothing_though_a_worker_idles_between_two_of_them";
    alone(test, || {
        // A worker that keeps pace exactly finds nothing after each key; others after so many.
        for batch in [1, 7, 100, 1000] {
            let queue = WorkQueue::builder().ring(1 << 17).build().unwrap();
            let round = || {
                for key in 0..100_000 {
                    queue.add(key);
                    if key % batch == 0 {
                        while let Ok(item) = queue.try_get() {
                            item.done();
                        }
                    }
                }
            };
            (0..5).for_each(|_| round());
            let count = allocations_of(|| (0..10).for_each(|_| round()));
            println!("a look after each {batch}: {count} allocations in 10 rounds");
            assert_eq!(count, 0, "a look after each {batch}");
        }
    });
}

#[test] // C10
fn adding_what_is_known_allocates_nothing() {
    alone("adding_what_is_known_allocates_nothing", || {
        let queue = WorkQueue::<String>::new();
        let handle = queue.handle("namespace/object".to_owned());
        let add = || queue.add_ref("namespace/object");
        let count = allocations_of(|| {
            for _ in 0..1000 {
                assert_eq!(add(), Added::Queued);
                assert_eq!(add(), Added::Merged);
                assert_eq!(handle.add(), Added::Merged);
                let item = queue.get().unwrap();
                assert_eq!(add(), Added::Deferred);
                item.done();
                let Poll::Ready(Some(item)) = poll(&mut queue.get_async(), Waker::noop()) else {
                    panic!("it was deferred");
                };
                assert_eq!(handle.add(), Added::Deferred);
                drop(item);
                queue.get_timeout(Duration::ZERO).unwrap().done();
                drop(handle.clone());
            }
        });
        assert_eq!(count, 0);
    });
}

#[test] // C9 C10
fn what_a_waiting_task_allocates_does_not_pile_up() {
    alone("what_a_waiting_task_allocates_does_not_pile_up", || {
        let queue = WorkQueue::new();
        let (_, waker) = WakeCount::new();
        let wait = || {
            let mut task = queue.get_async();
            assert!(poll(&mut task, &waker).is_pending());
            queue.add(7);
            assert!(matches!(poll(&mut task, &waker), Poll::Ready(Some(_))));
        };
        (0..3000).for_each(|_| wait());
        let before = held();
        let count = allocations_of(|| (0..10_000).for_each(|_| wait()));
        let grown = held() - before;
        println!("{} allocations a wait of a task", count as f64 / 10_000.0);
        // The test harness may allocate a little in a thread of its own.
        assert!(grown.abs() < 4096, "{grown} bytes more");
        assert!(count <= 20_000, "{count} allocations in 10000 waits");
    });
}

#[test] // C9 C10
fn what_a_waiting_thread_allocates_does_not_pile_up() {
    alone("what_a_waiting_thread_allocates_does_not_pile_up", || {
        const WAITS: usize = 5000;
        let _watchdog = watchdog(60);
        let queue = WorkQueue::<usize>::new();
        thread::scope(|scope| {
            let consumer = scope.spawn(|| {
                let mut before = (0, 0);
                let mut delivered = 0;
                while let Some(item) = queue.get() {
                    item.done();
                    delivered += 1;
                    if delivered == 100 {
                        before = (allocations(), held());
                    }
                    if delivered == WAITS {
                        return (allocations() - before.0, held() - before.1);
                    }
                }
                panic!("the queue was shut down");
            });
            for key in 0..WAITS {
                eventually("the consumer waits", || waiting(&queue) == 1);
                assert_eq!(queue.add(key % 10), Added::Queued);
            }
            let (count, grown) = consumer.join().unwrap();
            println!(
                "{} allocations a wait of a thread",
                count as f64 / WAITS as f64
            );
            println!("{grown} bytes more held after {WAITS} waits");
            assert!(count <= 2 * WAITS, "{count} allocations in {WAITS} waits");
            // The other thread may be anywhere in formatting `waiting`.
            assert!(grown.abs() < 4096, "{grown} bytes more");
        });
    });
}
