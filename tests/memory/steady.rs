//! What a queue allocates for keys that recur, and for getters that wait (C10).

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::timed::HOUR;
use crate::common::{alone, eventually, poll, waiting, watchdog};
use keyqueue::{Added, Clock, WorkQueue, merge};
use rig::heap::{allocations, allocations_of, held};

/// A queue with room for all keys: the overflow behind the ring allocates.
fn roomy(clock: Clock) -> WorkQueue<u64> {
    let builder = WorkQueue::builder().ring(1 << 17).clock(clock);
    builder.build().unwrap()
}

/// Asserts that rounds allocate nothing, after a few that may.
#[track_caller]
fn assert_steady(what: &str, rounds: u64, mut round: impl FnMut()) {
    (0..5).for_each(|_| round());
    let count = allocations_of(|| (0..rounds).for_each(|_| round()));
    println!("{what}: {count} allocations in {rounds} rounds");
    assert_eq!(count, 0, "{what}, {rounds} rounds");
}

#[test] // C10: a worker that keeps pace finds the queue empty after each key, others after a batch
fn recurring_keys_allocate_nothing_whether_or_not_a_worker_idles_between_them() {
    alone(|| {
        for (keys, batch) in [
            (64, 64),
            (1024, 1024),
            (100_000, 100_000),
            (100_000, 1000),
            (100_000, 100),
            (100_000, 7),
            (100_000, 1),
        ] {
            for idles in [false, true] {
                let (clock, time) = Clock::mock();
                let queue = roomy(clock);
                let what = format!("{keys} keys, {batch} at a time, idles: {idles}");
                assert_steady(&what, 1_000_000 / keys, || {
                    // A pass over so many keys is due every other time the worker is idle. In time
                    // that passes by itself it would be due by chance.
                    time.advance(Duration::from_millis(100));
                    for first in (0..keys).step_by(batch) {
                        let batch = first..keys.min(first + batch as u64);
                        batch.clone().for_each(|key| _ = queue.add(key));
                        batch.for_each(|_| queue.try_get().unwrap().done());
                        assert!(!idles || queue.try_get().is_err());
                    }
                });
            }
        }
    });
}

#[test] // C10
fn recurring_keys_of_a_producer_allocate_nothing_while_a_consumer_waits() {
    alone(|| {
        let _watchdog = watchdog(60);
        for keys in [64, 1024, 100_000] {
            let queue = roomy(Clock::mock().0);
            let delivered = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while queue.get().is_some() {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                });
                let mut owed = 0;
                // Each round is waited for, so that the consumer finds nothing and may sleep.
                assert_steady(&format!("{keys} keys"), 1_000_000 / keys, || {
                    owed += queue.add_all(0..keys);
                    while delivered.load(Ordering::SeqCst) < owed {
                        thread::yield_now();
                    }
                });
                queue.shut_down();
            });
        }
    });
}

#[test] // V6, C10
fn updating_what_is_known_by_a_borrowed_key_allocates_nothing() {
    alone(|| {
        let builder = WorkQueue::builder().merge(merge::append).capacity(1 << 20);
        let builder = builder.weight(Vec::len).levels(3);
        let queue: WorkQueue<String, Vec<u64>> = builder.build().unwrap();
        let handle = queue.handle("client".to_owned());
        let mut events = Vec::with_capacity(8);
        let mut round = || {
            let entry = || queue.entry_ref("client");
            // The value of the last delivery comes back: what it has allocated is kept.
            let last = &mut events;
            assert_eq!(
                entry().wait().update(|new| *new = mem::take(last)),
                Added::Queued
            );
            assert_eq!(entry().wait().update(|new| new.push(1)), Added::Merged);
            assert_eq!(entry().level(0).update(|new| new.push(2)), Added::Merged);
            assert!(entry().try_update(|new| new.push(3)).is_ok());
            assert!(entry().within(HOUR).try_update(|new| new.push(4)).is_ok());
            assert_eq!(
                pollster::block_on(entry().update_async(|new| new.push(5))),
                Added::Merged
            );
            assert_eq!(
                handle.entry().wait().update(|new| new.push(6)),
                Added::Merged
            );
            let mut item = queue.get().unwrap();
            events = item.take().unwrap();
            assert_eq!(events, [1, 2, 3, 4, 5, 6]);
            events.clear();
        };
        assert_steady("updates by a borrowed key", 1000, &mut round);
    });
}

#[test] // C10
fn adding_what_is_known_allocates_nothing() {
    alone(|| {
        let queue = WorkQueue::<String>::new();
        let handle = queue.handle("namespace/object".to_owned());
        let add = || queue.entry_ref("namespace/object").add();
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
    alone(|| {
        let queue = WorkQueue::<u64>::new();
        let wait = || {
            let mut task = queue.get_async();
            assert!(poll(&mut task, Waker::noop()).is_pending());
            queue.add(7);
            assert!(poll(&mut task, Waker::noop()).is_ready());
        };
        (0..3000).for_each(|_| wait());
        let before = held();
        let count = allocations_of(|| (0..10_000).for_each(|_| wait()));
        let grown = held() - before;
        println!("{} allocations a wait of a task", count as f64 / 10_000.0);
        // The test harness may allocate a little in its own thread.
        assert!(grown.abs() < 4096, "{grown} bytes more");
        assert!(count <= 20_000, "{count} allocations in 10000 waits");
    });
}

#[test] // C9 C10
fn what_a_waiting_thread_allocates_does_not_pile_up() {
    alone(|| {
        const WAITS: usize = 5000;
        let _watchdog = watchdog(60);
        let queue = WorkQueue::<u64>::new();
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
            for key in 0..WAITS as u64 {
                eventually("the consumer waits", || waiting(&queue) == 1);
                assert_eq!(queue.add(key % 10), Added::Queued);
            }
            let (count, grown) = consumer.join().unwrap();
            println!("{count} allocations, {grown} bytes more held after {WAITS} waits");
            assert!(count <= 2 * WAITS, "{count} allocations in {WAITS} waits");
            // The other thread may be anywhere in formatting `waiting`.
            assert!(grown.abs() < 4096, "{grown} bytes more");
        });
    });
}
