//! crossbeam-queue 0.3.13, `tests/array_queue.rs`.
//!
//! `push` is `entry(key).try_add()` in a queue with a capacity, `pop` is `try_get` and done.
//! The values are keys, so each is another one. `zero_capacity` is in `tests/order/bounds.rs`. What
//! tests `force_push`, `push_mut` and `pop_mut` has no counterpart.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::counted::{Alive, Counted};
use crate::common::{assert_nothing_queued, scaled, there, watchdog};
use keyqueue::{Added, Full, WorkQueue};

fn new_queue<K: Hash + Eq + Send + Sync + 'static>(capacity: u64) -> WorkQueue<K> {
    let builder = WorkQueue::builder().capacity(capacity as usize);
    builder.build().unwrap()
}

fn push<K: Hash + Eq + Send + Sync + 'static>(queue: &WorkQueue<K>, key: K) -> Result<(), Full<K>> {
    let added = queue.entry(key).try_add()?;
    assert_eq!(added, Added::Queued);
    Ok(())
}

fn pop<K: Copy>(queue: &WorkQueue<K>) -> Option<K> {
    queue.try_get().ok().map(|item| *item)
}

/// Repeats what a full or an empty queue refuses.
fn retry<T>(mut what: impl FnMut() -> Option<T>) -> T {
    loop {
        match what() {
            Some(done) => return done,
            None => thread::yield_now(),
        }
    }
}

#[test] // B1 C5
fn smoke() {
    let queue = new_queue::<u64>(1);
    push(&queue, 7).unwrap();
    assert_eq!(pop(&queue), Some(7));
    push(&queue, 8).unwrap();
    assert_eq!(pop(&queue), Some(8));
    assert_nothing_queued(&queue);
}

#[test] // B1: there a call returns it; here it is seen by the first key that is refused
fn capacity() {
    for capacity in 1..10 {
        let queue = new_queue(capacity);
        for key in 0..capacity {
            push(&queue, key).unwrap();
        }
        assert_eq!(push(&queue, capacity), Err(Full(capacity)));
    }
}

#[test] // B1 C8
fn len_empty_full() {
    let queue = new_queue::<u64>(2);
    let is_full = || push(&queue, 9).is_err();
    assert_eq!((queue.len(), queue.is_empty()), (0, true));
    push(&queue, 1).unwrap();
    assert_eq!((queue.len(), queue.is_empty()), (1, false));
    push(&queue, 2).unwrap();
    assert_eq!((queue.len(), queue.is_empty(), is_full()), (2, false, true));
    assert_eq!(pop(&queue), Some(1));
    assert_eq!(
        (queue.len(), queue.is_empty(), is_full()),
        (1, false, false)
    );
}

#[test] // B1 C8
fn len() {
    const CAP: u64 = scaled(1000) as u64;
    const COUNT: u64 = scaled(25_000) as u64;
    const ITERS: u64 = CAP / 20 + 1;
    let _watchdog = watchdog(120);
    let queue = new_queue(CAP);
    let len = || queue.len() as u64;
    assert_eq!(len(), 0);
    for _ in 0..CAP / 10 {
        for key in 0..ITERS {
            push(&queue, key).unwrap();
            assert_eq!(len(), key + 1);
        }
        for key in 0..ITERS {
            assert_eq!(pop(&queue), Some(key));
            assert_eq!(len(), ITERS - key - 1);
        }
    }
    for key in 0..CAP {
        push(&queue, key).unwrap();
        assert_eq!(len(), key + 1);
    }
    assert!((0..CAP).all(|key| pop(&queue) == Some(key)));
    assert_eq!(len(), 0);

    thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..COUNT {
                assert_eq!(retry(|| pop(&queue)), key);
                assert!(len() <= CAP);
            }
        });
        scope.spawn(|| {
            for key in 0..COUNT {
                retry(|| push(&queue, key).ok());
                assert!(len() <= CAP);
            }
        });
    });
    assert_eq!(len(), 0);
}

#[test] // C1 B1
fn spsc() {
    const COUNT: u64 = scaled(100_000) as u64;
    let _watchdog = watchdog(120);
    let queue = new_queue(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..COUNT {
                assert_eq!(retry(|| pop(&queue)), key);
            }
            assert_nothing_queued(&queue);
        });
        scope.spawn(|| (0..COUNT).for_each(|key| retry(|| push(&queue, key).ok())));
    });
}

#[test] // C5 B1
fn mpmc() {
    const COUNT: u64 = scaled(25_000) as u64;
    const THREADS: u64 = 4;
    let _watchdog = watchdog(120);
    let queue = new_queue(3);
    let seen: Vec<_> = (0..COUNT).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..COUNT {
                    let n = retry(|| pop(&queue)) % COUNT;
                    seen[n as usize].fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for thread in 0..THREADS {
            let queue = &queue;
            let keys = thread * COUNT..(thread + 1) * COUNT;
            scope.spawn(move || keys.for_each(|key| retry(|| push(queue, key).ok())));
        }
    });
    assert!(seen.into_iter().all(|seen| seen.into_inner() == THREADS));
    assert_nothing_queued(&queue);
}

#[test] // C10 B1
fn drops() {
    let _watchdog = watchdog(120);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..scaled(100) {
        let (steps, additional) = (random.usize(0..scaled(10_000)), random.usize(0..50));
        let alive = Alive::default();
        let queue = new_queue::<Counted<usize>>(50);
        thread::scope(|scope| {
            scope.spawn(|| (0..steps).for_each(|_| retry(|| queue.try_get().ok()).done()));
            scope.spawn(|| (0..steps).for_each(|n| retry(|| push(&queue, alive.of(n)).ok())));
        });
        for n in 0..additional {
            push(&queue, alive.of(n)).unwrap();
        }
        // There a popped value is dropped at once. Here up to a cache of idle keys stays (C10).
        assert!((additional..=additional + steps).contains(&alive.count()));
        queue.shrink();
        assert_eq!(alive.count(), additional);
        drop(queue);
        assert_eq!(alive.count(), 0);
    }
}

// The half of it that pushes; the other half tests `force_push`.
#[test] // C5 F1: a thread whose add has returned finds a key
fn linearizable() {
    const COUNT: u64 = scaled(25_000) as u64;
    const THREADS: u64 = 4;
    let _watchdog = watchdog(120);
    let queue = new_queue(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let queue = &queue;
            scope.spawn(move || {
                for n in 0..COUNT {
                    retry(|| push(queue, thread * COUNT + n).ok());
                    assert!(pop(queue).is_some(), "{n} of {thread}");
                }
            });
        }
    });
    assert_nothing_queued(&queue);
}

#[test] // C1
fn into_iter() {
    let queue = new_queue::<u64>(100);
    for key in 0..100 {
        push(&queue, key).unwrap();
    }
    assert!(there(&queue).map(|item| *item).eq(0..100));
    assert_nothing_queued(&queue);
}
