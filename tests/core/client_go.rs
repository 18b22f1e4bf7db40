//! client-go's tests of its core queue, by their names, and after them the cases that its suite
//! leaves open. TestCollapseWhileProcessing is part of TestReinsert here; TestCollapse and TestLen
//! are in `states.rs`, TestGarbageCollection in `tests/memory/`, what Go tests of draining in
//! `tests/shutdown/`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::common::{
    Config, Queue, assert_nothing_queued, eventually, scaled, take_all, waiting, watchdog,
};
use crate::common::{with_queues, with_these_queues};
use keyqueue::{Added, GetError};

// ---- queue_test.go --------------------------------------------------------------------------

/// Adds each of 50 keys 50 times on its own thread. Returns how many adds were not merged.
fn produce(queue: &Queue<u64>) -> usize {
    let add = |key| (0..50).filter(|_| queue.add(key) != Added::Merged).count();
    thread::scope(|scope| {
        let producers: Vec<_> = (0..50).map(|key| scope.spawn(move || add(key))).collect();
        producers.into_iter().map(|p| p.join().unwrap()).sum()
    })
}

/// Adds as [`produce`] does while 10 consumers call `work` with each key that they get, and with a set
/// for themselves, and shuts down in both ways. `work` returns whether another delivery is owed.
fn test_crowd(work: impl Fn(&Queue<u64>, u64, &mut HashSet<u64>) -> bool + Sync) {
    const ADDED_AFTER_SHUT_DOWN: u64 = u64::MAX;
    with_these_queues(&Config::races(), |config| {
        for drain in [false, true] {
            let queue = config.queue::<u64>();
            let (owed, delivered) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let consume = || {
                let mut seen = HashSet::new();
                while let Some(item) = queue.get() {
                    assert_ne!(*item, ADDED_AFTER_SHUT_DOWN);
                    delivered.fetch_add(1, Ordering::Relaxed);
                    let more = work(&queue, *item, &mut seen);
                    owed.fetch_add(usize::from(more), Ordering::Relaxed);
                }
            };
            thread::scope(|scope| {
                for _ in 0..10 {
                    scope.spawn(consume);
                }
                owed.fetch_add(produce(&queue), Ordering::Relaxed);
                if drain {
                    queue.shut_down_with_drain();
                } else {
                    queue.shut_down();
                }
                assert_eq!(queue.add(ADDED_AFTER_SHUT_DOWN), Added::ShutDown);
            });
            assert_eq!(delivered.into_inner(), owed.into_inner());
            assert_eq!(queue.len(), 0);
        }
    });
}

#[test] // C3 C5 S1: 50 producers of 50 adds, 10 consumers; an add after the end goes nowhere
fn test_basic() {
    let held: Vec<_> = (0..50).map(|_| AtomicBool::new(false)).collect();
    test_crowd(|_, key, _| {
        let held = &held[key as usize];
        assert!(!held.swap(true, Ordering::Relaxed), "two holders");
        thread::yield_now();
        held.store(false, Ordering::Relaxed);
        false
    });
}

#[test] // C4: every worker adds each key once more the first time it holds it
fn test_add_while_processing() {
    test_crowd(|queue, key, seen| seen.insert(key) && queue.add(key) == Added::Deferred);
}

#[test] // C3 C4: however often it is added, it is delivered once more, and not before its done
fn test_reinsert() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add(1);
        let item = queue.get().unwrap();
        assert_eq!(queue.add(1), Added::Deferred);
        for _ in 0..scaled(100) {
            assert_eq!(queue.add(1), Added::Merged);
            assert_nothing_queued(&queue);
        }
        queue.add(2);
        assert_eq!(take_all(&queue), [2]);
        item.done();
        assert_eq!(take_all(&queue), [1]);
        assert_nothing_queued(&queue);
        assert_eq!(queue.add(1), Added::Queued, "it is idle again");
    });
}

// ---- what client-go's suite leaves open -----------------------------------------------------

// Done of an unknown key, of a queued key, and twice: there is no way to write that, an item is
// the right to it and is used up by it (C7).

#[test] // C9 S3: getters and drainers wait for different things and do not take each other's wake-ups
fn mixed_getters_and_drainers_all_end() {
    with_these_queues(&Config::races(), |config| {
        for _ in 0..50 {
            let queue = config.queue::<u64>();
            queue.add(0);
            let item = queue.get().unwrap();
            queue.add(0);
            let delivered = thread::scope(|scope| {
                let getters = [(); 4].map(|()| scope.spawn(|| queue.iter().count()));
                for _ in 0..4 {
                    scope.spawn(|| queue.shut_down_with_drain());
                }
                eventually("all getters wait", || waiting(&queue) == 4);
                item.done();
                getters.map(|getter| getter.join().unwrap())
            });
            assert_eq!(delivered.iter().sum::<usize>(), 1);
            assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
        }
    });
}

#[test] // C1: each of several consumers sees one producer's keys in the order of the adds
fn the_order_holds_for_each_of_several_consumers() {
    let _watchdog = watchdog(60);
    for ring in [Some(1), Some(2), Some(64), None] {
        let config = Config {
            ring,
            ..Config::usual()
        };
        let queue = config.queue();
        let consume = |max| {
            let mut keys: Vec<u64> = Vec::new();
            while let Some(batch) = queue.get_batch(max) {
                keys.extend(batch.iter().map(|item| **item));
            }
            assert!(keys.is_sorted(), "with a ring of {ring:?}");
            keys
        };
        let mut all = thread::scope(|scope| {
            let consumers = [1, 1, 7, 100].map(|max| scope.spawn(move || consume(max)));
            for key in 0..50_000 {
                queue.add(key);
            }
            queue.shut_down_with_drain();
            consumers.map(|consumer| consumer.join().unwrap()).concat()
        });
        all.sort_unstable();
        assert!(all.into_iter().eq(0..50_000), "each key exactly once");
    }
}
