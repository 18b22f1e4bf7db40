//! Shutting down and draining, with threads and tasks (S1 to S4, S7).

use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::common::timed::{MS, NS};
use crate::common::{
    Config, Queue, Task, eventually, figures, poll, scaled, take_all, waiting, with_queues,
    with_these_queues,
};
use keyqueue::{Added, GetError, Remaining};

/// The future of a drain, to be polled by hand.
fn drain<'q>(queue: &'q Queue<u64>) -> Pin<Box<dyn Future<Output = Remaining> + 'q>> {
    Box::pin(queue.drain_async())
}

// ---- refusing and finishing -----------------------------------------------------------------

#[test] // S1
fn a_shut_down_ends_every_waiter() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue::<u64>();
        let tasks: Vec<_> = (0..50).map(|_| Task::waiting(queue.get_async())).collect();
        thread::scope(|scope| {
            for n in 0..50 {
                let queue = &queue;
                scope.spawn(move || match n % 3 {
                    0 => assert!(queue.get().is_none()),
                    1 => assert!(queue.get_timeout(Duration::MAX).is_err()),
                    _ => assert!(queue.get_batch(2).is_none()),
                });
            }
            eventually("all wait", || waiting(&queue) == 100);
            queue.shut_down();
        });
        for mut task in tasks {
            assert_eq!(task.wakes(), 1);
            assert!(task.output().is_none());
        }
        assert_eq!(waiting(&queue), 0);
    });
}

#[test] // S1 S2: "None is final"
fn a_getter_waits_for_a_dirty_key_in_flight_instead_of_ending_early() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all([1, 2]);
        let dirty = queue.get().unwrap();
        let clean = queue.get().unwrap();
        queue.add(*dirty);
        queue.shut_down();
        assert_eq!(queue.add(*clean), Added::ShutDown, "too late to be dirty");
        assert_eq!(queue.try_get().unwrap_err(), GetError::Empty, "not over");
        let mut tasks = [(); 4].map(|()| Task::waiting(queue.get_async()));
        clean.done();
        dirty.done();
        let wakes = tasks.each_ref().map(Task::wakes);
        assert_eq!(wakes, [1, 0, 0, 0], "one key, one getter");
        let again = tasks[0].output().unwrap();
        assert_eq!(*again, 1);
        for task in &mut tasks[1..] {
            assert_eq!(task.wakes(), 1, "the last delivery ends the others");
            assert!(task.output().is_none());
        }
        assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
        drop(again);
        assert!(queue.get().is_none());
    });
}

#[test] // S1 S2: after the first `None`, no getter gets a key
fn none_is_final_with_keys_in_flight_elsewhere() {
    with_these_queues(&Config::races(), |config| {
        for round in 0..scaled(300) as u64 {
            let queue = config.queue::<u64>();
            let over = AtomicBool::new(false);
            let (queued, deliveries) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let work = || {
                loop {
                    let was_over = over.load(Ordering::SeqCst);
                    let Some(item) = queue.get() else { break };
                    assert!(!was_over, "a key after a None");
                    deliveries.fetch_add(1, Ordering::SeqCst);
                    if queue.add(*item) == Added::Deferred {
                        queued.fetch_add(1, Ordering::SeqCst);
                    }
                }
                over.store(true, Ordering::SeqCst);
                assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
            };
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(work);
                }
                for key in 0..round % 8 {
                    if queue.add(key) == Added::Queued {
                        queued.fetch_add(1, Ordering::SeqCst);
                    }
                }
                queue.shut_down();
            });
            // Every delivery re-adds its key: those before the shut-down owe another one.
            assert_eq!(deliveries.into_inner(), queued.into_inner());
        }
    });
}

// ---- draining -------------------------------------------------------------------------------

#[test] // S3
fn a_drain_ends_when_nothing_is_queued_processing_or_dirty() {
    with_queues(|config| {
        let queue = config.queue();
        queue.add_all(0..3);
        let processing = queue.get().unwrap();
        let dirty = queue.get().unwrap();
        queue.add(*dirty);
        let drain = drain(&queue);
        assert!(!queue.is_shutting_down(), "begins with the first poll");
        let mut task = Task::waiting(drain);
        assert!(queue.is_shutting_down());
        processing.done();
        task.assert_pending(); // queued: 2, dirty: 1
        queue.get().unwrap().done();
        task.assert_pending(); // dirty: 1
        dirty.done();
        task.assert_pending(); // queued: 1
        let last = queue.get().unwrap();
        task.assert_pending(); // processing: 1
        assert_eq!(task.wakes(), 0);
        last.done();
        assert_eq!(task.wakes(), 1, "woken by the last done");
        assert!(task.output().is_finished());
    });
}

#[test] // S3
fn any_number_of_drainers_return_and_only_when_all_is_done() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue();
        queue.add_all(0..scaled(1000) as u64);
        let done = AtomicUsize::new(0);
        let tasks: Vec<_> = (0..20).map(|_| Task::waiting(drain(&queue))).collect();
        thread::scope(|scope| {
            for n in 0..20 {
                let (queue, done) = (&queue, &done);
                scope.spawn(move || {
                    let drained = match n % 3 {
                        0 => queue.shut_down_with_drain(),
                        1 => pollster::block_on(queue.drain_async()),
                        _ => queue.drain_timeout(Duration::MAX),
                    };
                    assert!(drained.is_finished());
                    assert_eq!(done.load(Ordering::SeqCst), scaled(1000));
                });
            }
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(item) = queue.get() {
                        done.fetch_add(1, Ordering::SeqCst);
                        item.done();
                    }
                });
            }
        });
        for mut task in tasks {
            assert_eq!(task.wakes(), 1);
            task.output();
        }
    });
}

#[test] // S3
fn a_drain_races_with_the_last_done_without_being_lost() {
    with_these_queues(&Config::races(), |config| {
        for _ in 0..scaled(1000) {
            let queue = config.queue::<u64>();
            queue.add(0);
            let item = queue.get().unwrap();
            let start = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    queue.shut_down_with_drain();
                });
                start.wait();
                item.done();
            });
        }
    });
}

#[test] // S3
fn a_dropped_drain_leaves_the_others_waiting_properly() {
    let queue = Config::usual().queue();
    queue.add(0);
    let item = queue.get().unwrap();
    let [first, mut second] = [(); 2].map(|()| Task::waiting(drain(&queue)));
    drop(first);
    item.done();
    assert_eq!(second.wakes(), 1);
    second.output();
}

// ---- the order of the calls -----------------------------------------------------------------

#[test] // S4
fn a_shut_down_releases_every_drainer_at_once() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue();
        queue.add_all(0..2);
        let item = queue.get().unwrap();
        let tasks: Vec<_> = (0..40).map(|_| Task::waiting(drain(&queue))).collect();
        assert_eq!(figures(queue.shut_down()), (1, 1, 0));
        for mut task in tasks {
            assert_eq!(task.wakes(), 1);
            assert!(!task.output().is_finished());
        }
        // A drain that begins after the release waits again.
        let mut late = Task::waiting(drain(&queue));
        item.done();
        queue.get().unwrap().done();
        late.output();
    });
}

#[test] // S4
fn any_order_of_any_number_of_shut_downs_is_harmless() {
    with_these_queues(&Config::races(), |config| {
        // Every sequence of four calls, each with a processing key and a queued one.
        for script in (0..3_u32.pow(4)).step_by(if cfg!(miri) { 10 } else { 1 }) {
            let queue = config.queue::<u64>();
            queue.add_all(0..2);
            let item = queue.get().unwrap();
            let mut drains = Vec::new();
            for call in 0..4 {
                match script / 3_u32.pow(call) % 3 {
                    0 => assert_eq!(figures(queue.shut_down()), (1, 1, 0)),
                    1 => {
                        let left = queue.drain_timeout(Duration::ZERO);
                        assert_eq!(figures(left), (1, 1, 0));
                    }
                    _ => drains.push(Task::waiting(drain(&queue))),
                }
            }
            item.done();
            assert_eq!(take_all(&queue), [1]);
            for mut drain in drains {
                drain.output();
            }
            assert!(queue.shut_down().is_nothing());
            assert!(queue.get().is_none());
            // Drains of an idle queue end at once.
            assert!(poll(&mut drain(&queue), Waker::noop()).is_ready());
            assert!(queue.drain_timeout(Duration::MAX).is_finished());
        }
    });
}

#[test] // S4
fn threads_that_shut_down_and_drain_at_once_all_return() {
    let ends: [fn(&Queue<u64>); 4] = [
        |queue| _ = queue.shut_down_with_drain(),
        |queue| _ = queue.shut_down(),
        |queue| _ = queue.drain_timeout(Duration::MAX),
        |queue| _ = pollster::block_on(queue.drain_async()),
    ];
    with_these_queues(&Config::races(), |config| {
        for _ in 0..scaled(200) {
            let queue = config.queue();
            queue.add_all(0..20);
            let start = Barrier::new(6);
            let delivered = thread::scope(|scope| {
                for end in ends {
                    let (queue, start) = (&queue, &start);
                    scope.spawn(move || {
                        start.wait();
                        end(queue);
                    });
                }
                let work = || {
                    start.wait();
                    queue.iter().count()
                };
                let workers = [(); 2].map(|()| scope.spawn(work));
                workers.map(|worker| worker.join().unwrap())
            });
            assert_eq!(delivered.iter().sum::<usize>(), 20);
        }
    });
}

// ---- figures and deadlines ------------------------------------------------------------------

#[test] // S7
fn a_shut_down_says_what_is_left() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        assert_eq!(Remaining::default(), config.queue::<u64>().shut_down());
        queue.add_all(0..100);
        drop(queue.get_batch(10));
        let processing = queue.get_batch(20);
        let dirty = queue.get_batch(30).unwrap();
        for item in &dirty {
            assert_eq!(queue.add(**item), Added::Deferred);
        }
        // Keys that are pinned and idle are nothing to do.
        let handle = queue.handle(1000);
        assert_eq!(figures(queue.shut_down()), (40, 50, 0));
        assert_eq!(figures(queue.shut_down()), (40, 50, 0), "again, the same");
        drop(dirty);
        assert_eq!(figures(queue.shut_down()), (70, 20, 0));
        drop(processing);
        assert_eq!(figures(queue.shut_down()), (70, 0, 0));
        assert_eq!(take_all(&queue).len(), 70);
        assert!(queue.shut_down().is_nothing());
        drop(handle);
    });
}

#[test] // S7
fn a_drain_that_runs_out_of_time_says_what_is_left() {
    with_queues(|config| {
        let queue = config.queue::<u64>();
        queue.add_all(0..5);
        let items = queue.get_batch(2);
        for limit in [Duration::ZERO, NS, MS] {
            let drained = queue.drain_timeout(limit);
            assert!(!drained.is_finished());
            assert_eq!(figures(drained), (3, 2, 0));
        }
        assert_eq!(queue.add(9), Added::ShutDown, "it stays shut down");
        drop(items);
        let left = queue.drain_timeout(Duration::ZERO);
        assert_eq!(figures(left), (3, 0, 0));
        take_all(&queue);
        assert!(queue.drain_timeout(Duration::ZERO).is_finished());
    });
}
