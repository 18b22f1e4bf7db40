//! No add is lost, none is doubled, and a delivery sees what its add was about (C2 to C5, C11).
#![cfg(keyqueue_loom)]

use std::hash::{Hash, Hasher};

use keyqueue::{Added, GetError, WorkQueue};
use keyqueue_loom_tests::{FixedHasher, Queue, check, queue, queue_of, spawn, spawn_with};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Works off what is queued, and returns what the last delivery read in `data`.
fn work_off(queue: &Queue, data: &AtomicUsize) -> Option<usize> {
    let mut seen = None;
    while let Ok(item) = queue.try_get() {
        // Ordering: Relaxed; the queue promises that it is visible.
        seen = Some(data.load(Ordering::Relaxed));
        item.done();
    }
    seen
}

/// C5. An add to a key that is queued (merged) or processed (deferred) is served by a delivery
/// that sees what was stored before it.
#[test]
fn a_delivery_sees_what_was_stored_before_a_merged_or_deferred_add() {
    check("merged_or_deferred", 5, || {
        let queue = queue(2);
        sees_what_was_stored_before(&queue, || queue.add(1));
    });
}

/// C5, C11. The same through a handle, which takes no lock.
#[test]
fn a_delivery_sees_what_was_stored_before_an_add_through_a_handle() {
    check("handle", 5, || {
        let queue = queue(2);
        let handle = queue.handle(1);
        sees_what_was_stored_before(&queue, || handle.add());
    });
}

fn sees_what_was_stored_before(queue: &Arc<Queue>, add: impl Fn() -> Added) {
    let data = Arc::new(AtomicUsize::new(0));
    add();
    let theirs = Arc::clone(&data);
    let worker = spawn_with(queue, move |queue| work_off(queue, &theirs));
    // Ordering: Relaxed; the queue promises that it is visible.
    data.store(1, Ordering::Relaxed);
    let added = add();
    assert!(added.is_accepted());
    let seen = worker.join().unwrap();
    let last = work_off(queue, &data).or(seen);
    assert_eq!(last, Some(1), "the add was {added:?}");
}

/// C5. What a worker did under a key is visible to the key's next delivery, without a lock. The
/// add between the two is a third thread's: it hands on what it acquired from the first worker.
#[test]
fn a_delivery_sees_what_the_last_worker_did() {
    check("worker_to_worker", 3, || {
        let queue = queue(2);
        let data = Arc::new(loom::cell::UnsafeCell::new(0));
        let work = |queue: &Queue, data: &loom::cell::UnsafeCell<i32>| {
            if let Ok(item) = queue.try_get() {
                // SAFETY: the queue hands a key to one worker at a time; loom checks it.
                data.with_mut(|data| unsafe { *data += 1 });
                item.done();
            }
        };
        queue.add(1);
        let theirs = Arc::clone(&data);
        let worker = spawn_with(&queue, move |queue| work(queue, &theirs));
        let adder = spawn_with(&queue, |queue| queue.add(1));
        work(&queue, &data);
        worker.join().unwrap();
        adder.join().unwrap();
    });
}

/// C2, C11. An add under the shard's lock beside one through a handle, which takes none: one of
/// them queues the key.
#[test]
fn an_add_beside_an_add_through_a_handle_queues_the_key_once() {
    check("add_handle", 5, || an_add_beside_one_through_a_handle(1));
}

/// C2, C11. The same while the key has another handle, which no thread uses.
#[test]
fn an_add_beside_an_add_through_one_of_two_handles_queues_the_key_once() {
    check("add_handles", 5, || an_add_beside_one_through_a_handle(2));
}

fn an_add_beside_one_through_a_handle(handles: usize) {
    let queue = queue(2);
    let mut handles: Vec<_> = (0..handles).map(|_| queue.handle(1)).collect();
    let handle = handles.pop().unwrap();
    let adder = spawn(move || handle.add());
    let mut added = [queue.add(1), adder.join().unwrap()];
    added.sort_unstable_by_key(|added| *added != Added::Queued);
    assert_eq!(added, [Added::Queued, Added::Merged]);
    queue.try_get().unwrap().done();
    assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
}

/// C2, C3, C4. Two workers and an adder: never two holders, and as many deliveries as were
/// announced by "queued" and "deferred".
#[test]
fn a_key_has_one_holder_and_as_many_deliveries_as_promised() {
    check("one_holder", 3, || {
        let queue = queue(2);
        let held = Arc::new(AtomicBool::new(false));
        let work = |queue: &Queue, held: &AtomicBool| {
            let mut deliveries = 0;
            while let Ok(item) = queue.try_get() {
                // Ordering: Relaxed; loom sees every interleaving.
                assert!(!held.swap(true, Ordering::Relaxed), "two holders");
                deliveries += 1;
                held.store(false, Ordering::Relaxed);
                item.done();
            }
            deliveries
        };
        queue.add(1);
        let theirs = Arc::clone(&held);
        let worker = spawn_with(&queue, move |queue| work(queue, &theirs));
        let adder = spawn_with(&queue, |queue| queue.add(1));
        let mut deliveries = work(&queue, &held);
        deliveries += worker.join().unwrap();
        let promised = match adder.join().unwrap() {
            Added::Queued | Added::Deferred => 2,
            Added::Merged => 1,
            other => panic!("{other:?}"),
        };
        deliveries += work(&queue, &held);
        assert_eq!(deliveries, promised);
        assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
    });
}

/// C10. A sweep beside a `done` takes the key before it is held or after it is idle, never
/// between.
#[test]
fn a_sweep_beside_a_worker_keeps_the_key_that_is_held() {
    check("sweep_done", 5, || {
        let queue = queue(2);
        queue.add(1);
        let sweeper = spawn_with(&queue, WorkQueue::shrink);
        let item = queue.try_get().unwrap();
        assert_eq!(*item, 1);
        let added = queue.add(1);
        assert_eq!(added, Added::Deferred);
        item.done();
        sweeper.join().unwrap();
        assert_eq!(*queue.try_get().unwrap(), 1);
    });
}

/// A key that notes, when it is dropped, what it then sees in `data`.
struct Watched {
    data: Arc<AtomicUsize>,
    seen: Seen,
}

impl PartialEq for Watched {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(1);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Ordering: Relaxed; the queue promises that it is visible.
        let seen = self.data.load(Ordering::Relaxed);
        *self.seen.lock().unwrap() = Some(seen);
    }
}

type Seen = Arc<std::sync::Mutex<Option<usize>>>;

/// A watched key, its data, and what it has seen.
fn watched() -> (Watched, Arc<AtomicUsize>, Seen) {
    let data = Arc::new(AtomicUsize::new(0));
    let seen = Seen::default();
    let key = Watched {
        data: Arc::clone(&data),
        seen: Arc::clone(&seen),
    };
    (key, data, seen)
}

/// Runs `last_use` of a watched key beside a sweep. If the sweep took the key, it must have seen
/// what was stored before the use ended.
fn sweep_beside(last_use: impl FnOnce(&WatchedQueue, Watched, &AtomicUsize)) {
    let queue = queue_of(|builder| builder);
    let (key, data, seen) = watched();
    let sweeper = spawn_with(&queue, WorkQueue::shrink);
    last_use(&queue, key, &data);
    sweeper.join().unwrap();
    let seen = *seen.lock().unwrap();
    assert!(seen.is_none_or(|seen| seen == 1), "{seen:?}");
}

type WatchedQueue = WorkQueue<Watched, (), FixedHasher>;

/// C10. A sweep drops a key when its worker has done with it, and after everything the worker did.
#[test]
fn a_sweep_drops_a_key_after_its_worker_has_done_with_it() {
    check("sweep_worker_drop", 5, || {
        sweep_beside(|queue, key, data| {
            queue.add(key);
            let item = queue.try_get().unwrap();
            // Ordering: Relaxed; `done` publishes it.
            data.store(1, Ordering::Relaxed);
            item.done();
        });
    });
}

/// C10, C11. The same for the last handle of a key.
#[test]
fn a_sweep_drops_a_key_after_its_last_handle_was() {
    check("sweep_handle_drop", 5, || {
        sweep_beside(|queue, key, data| {
            let handle = queue.handle(key);
            // Ordering: Relaxed; dropping the handle publishes it.
            data.store(1, Ordering::Relaxed);
            drop(handle);
        });
    });
}

/// C10, C11. A sweep keeps a key with a handle.
#[test]
fn a_sweep_beside_a_handle_keeps_its_key() {
    check("sweep_handle", 5, || {
        let (key, _, seen) = watched();
        let queue: Arc<WatchedQueue> = queue_of(|builder| builder);
        let handle = queue.handle(key);
        let sweeper = spawn_with(&queue, WorkQueue::shrink);
        assert_eq!(handle.add(), Added::Queued);
        drop(handle);
        sweeper.join().unwrap();
        let seen = *seen.lock().unwrap();
        assert_eq!(seen, None, "a sweep has dropped the key");
        queue.try_get().unwrap().done();
        assert!(queue.try_get().is_err());
    });
}
