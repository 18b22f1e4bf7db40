//! Ending a queue without delivering what is queued (S8), beside everything else.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::common::{Config, Task, figures, scaled, take_all, with_queues, with_these_queues};
use keyqueue::{Added, GetError, State};

#[test] // S8
fn what_is_queued_is_discarded_and_counted_once() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(0..100);
        drop(queue.get_batch(10));
        let clean = queue.get_batch(20);
        let dirty = queue.get_batch(30).unwrap();
        for item in &dirty {
            assert_eq!(queue.add(**item), Added::Deferred);
        }
        assert_eq!(figures(queue.shut_down_now()), (40, 50, 0));
        assert_eq!(queue.add(7), Added::ShutDown);
        assert_eq!((queue.len(), queue.is_empty()), (0, true));
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
        assert!(queue.get().is_none());
        let keys = queue.snapshot();
        assert_eq!(keys.len(), 50);
        assert!(keys.iter().all(|key| key.state() == State::Processing));
        assert_eq!(figures(queue.shut_down_now()), (0, 50, 0), "again");
        drop(dirty);
        assert_eq!(figures(queue.shut_down()), (0, 20, 0), "none came back");
        assert!(!queue.drain_timeout(Duration::ZERO).is_finished());
        drop(clean);
        assert!(queue.shut_down_now().is_nothing());
        assert!(queue.drain_timeout(Duration::ZERO).is_finished());
    });
}

#[test] // S8: the same bit says of an open key that it recurs
fn keys_that_recur_are_delivered_after_a_plain_shut_down() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        for _ in 0..2 {
            queue.add_all(0..10);
            assert_eq!(take_all(&queue).len(), 10);
        }
        queue.add_all(0..10);
        assert_eq!(figures(queue.shut_down()), (10, 0, 0));
        assert_eq!(take_all(&queue), (0..10).collect::<Vec<_>>());
    });
}

#[test] // S8
fn getters_end_at_once_and_drainers_with_the_last_item() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all([1, 2]);
        let [dirty, clean] = [(); 2].map(|()| queue.get().unwrap());
        queue.add(*dirty);
        queue.shut_down();
        let mut drains = [(); 2].map(|()| Task::waiting(Box::pin(queue.drain_async())));
        // They wait for the dirty key.
        let mut getters = [(); 4].map(|()| Task::waiting(queue.get_async()));
        assert_eq!(figures(queue.shut_down_now()), (0, 2, 0));
        for getter in &mut getters {
            assert_eq!(getter.wakes(), 1);
            assert!(getter.output().is_none());
        }
        dirty.done();
        drains.iter_mut().for_each(Task::assert_pending);
        clean.done();
        for mut drain in drains {
            assert!(drain.output().is_finished());
        }
    });
}

#[test] // S8: what was queued is nothing to wait for
fn drainers_of_queued_keys_end_at_once() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(0..3);
        let mut drain = Task::waiting(Box::pin(queue.drain_async()));
        assert_eq!(figures(queue.shut_down_now()), (3, 0, 0));
        assert!(drain.output().is_finished());
    });
}

#[test] // S4 S8
fn any_order_with_other_shut_downs_is_harmless() {
    with_these_queues(&Config::races(), |config| {
        // Every sequence of three calls, each with a dirty key and a queued one.
        for script in 0..4_u32.pow(3) {
            let queue = config.queue::<u64>();
            queue.add_all(0..2);
            let item = queue.get().unwrap();
            queue.add(0);
            let (mut drains, mut discarded) = (Vec::new(), 0);
            for call in 0..3 {
                match script / 4_u32.pow(call) % 4 {
                    0 => assert_eq!(figures(queue.shut_down()), (1 - discarded, 1, 0)),
                    1 => {
                        let left = queue.drain_timeout(Duration::ZERO);
                        assert_eq!(figures(left), (1 - discarded, 1, 0));
                    }
                    2 => drains.push(Task::waiting(Box::pin(queue.drain_async()))),
                    _ => {
                        assert_eq!(figures(queue.shut_down_now()), (1 - discarded, 1, 0));
                        discarded = 1;
                    }
                }
            }
            item.done();
            let delivered = if discarded == 1 { vec![] } else { vec![1, 0] };
            assert_eq!(take_all(&queue), delivered);
            drains.iter_mut().for_each(|drain| _ = drain.output());
            assert!(queue.shut_down_now().is_nothing());
            assert!(queue.get().is_none());
        }
    });
}

#[test] // S8 C10
fn discarded_keys_are_dropped_by_a_shrink() {
    with_queues(|config| {
        let queue = config.queue();
        let key = Arc::new(7_u64);
        queue.add(Arc::clone(&key));
        queue.shut_down_now();
        queue.shrink();
        assert_eq!(Arc::strong_count(&key), 1);
    });
}

#[test] // S8 C5: each accepted key is delivered or counted, and nothing begins after the end
fn a_key_is_delivered_or_discarded_beside_adders_and_workers() {
    with_these_queues(&Config::races(), |config| {
        for round in 0..scaled(500) {
            let queue = config.queue::<u64>();
            let (start, over) = (Barrier::new(4), AtomicBool::new(false));
            let (accepted, delivered) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = || {
                start.wait();
                loop {
                    let was_over = over.load(Ordering::SeqCst);
                    let Some(_item) = queue.get() else { return };
                    assert!(!was_over, "a delivery after the end");
                    delivered.fetch_add(1, Ordering::SeqCst);
                }
            };
            let add = || {
                start.wait();
                let mut keys = 0..;
                while queue.add(keys.next().unwrap()).is_accepted() {
                    accepted.fetch_add(1, Ordering::SeqCst);
                }
            };
            let discarded = thread::scope(|scope| {
                // Every second round without a worker: the keys have nobody else to end them.
                match round % 2 {
                    0 => scope.spawn(work),
                    _ => scope.spawn(|| _ = start.wait()),
                };
                scope.spawn(add);
                let drainer = scope.spawn(|| {
                    start.wait();
                    queue.shut_down_with_drain()
                });
                start.wait();
                for _ in 0..round {
                    std::hint::spin_loop();
                }
                let left = queue.shut_down_now();
                over.store(true, Ordering::SeqCst);
                assert!(drainer.join().unwrap().is_finished());
                left.queued
            });
            assert_eq!(delivered.into_inner() + discarded, accepted.into_inner());
            // Also if the adder has pushed its last key after the end.
            assert_eq!((queue.len(), queue.is_empty()), (0, true));
            assert!(queue.get().is_none());
        }
    });
}
