//! Shutting down and draining, with threads and tasks (S1 to S4, S7).

use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{
    Config, Queue, WakeCount, eventually, poll, scaled, take_all, waiting, watchdog, with_queues,
    with_these_queues,
};
use keyqueue::{Added, DrainEnd, Drained, Remaining, TryGetError};

fn figures(remaining: Remaining) -> (usize, usize, usize) {
    (remaining.queued, remaining.processing, remaining.delayed)
}

/// A drain as a task polled by hand.
fn drain<'q>(queue: &'q Queue<usize>) -> Pin<Box<dyn Future<Output = Drained> + 'q>> {
    Box::pin(queue.drain_async())
}

// ---- refusing and finishing -----------------------------------------------------------------

#[test] // S1
fn after_a_shut_down_the_queued_is_handed_out_and_then_none_for_ever() {
    with_queues(|config| {
        let queue = config.queue();
        queue.add_all(0..10);
        assert!(!queue.is_shutting_down());
        queue.shut_down();
        assert!(queue.is_shutting_down());
        assert_eq!(queue.add(0), Added::ShutDown);
        assert_eq!(queue.add(10), Added::ShutDown);
        for expected in 0..10 {
            let item = queue.get().unwrap();
            assert_eq!(*item, expected);
            item.done();
        }
        for _ in 0..3 {
            assert!(queue.get().is_none());
            assert!(queue.get_batch(3).is_none());
            assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
        }
    });
}

#[test] // S1
fn a_shut_down_ends_every_waiter() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue::<u64>();
        let (count, waker) = WakeCount::new();
        let mut tasks: Vec<_> = (0..50).map(|_| queue.get_async()).collect();
        for task in &mut tasks {
            assert!(poll(task, &waker).is_pending());
        }
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
        assert_eq!(count.get(), 50, "each task was woken once");
        for task in &mut tasks {
            assert!(matches!(poll(task, &waker), Poll::Ready(None)));
        }
        assert_eq!(waiting(&queue), 0);
    });
}

#[test] // S2
fn a_key_dirty_at_the_shut_down_is_delivered_once_more() {
    with_queues(|config| {
        let queue = config.queue();
        queue.add_all(["dirty", "clean"]);
        let dirty = queue.get().unwrap();
        let clean = queue.get().unwrap();
        queue.add("dirty");
        queue.shut_down();
        assert_eq!(queue.add("clean"), Added::ShutDown, "too late to be dirty");
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "not over");
        clean.done();
        dirty.done();
        let again = queue.get().unwrap();
        assert_eq!(*again, "dirty");
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
        again.done();
        assert!(queue.get().is_none());
    });
}

#[test] // S1 S2: "None is final"
fn a_getter_waits_for_a_dirty_key_in_flight_instead_of_ending_early() {
    with_queues(|config| {
        let queue = config.queue();
        queue.add("a");
        let item = queue.get().unwrap();
        queue.add("a");
        queue.shut_down();
        let (count, waker) = WakeCount::new();
        let mut tasks = [(); 4].map(|()| queue.get_async());
        for task in &mut tasks {
            assert!(poll(task, &waker).is_pending());
        }
        item.done();
        assert_eq!(count.get(), 1, "one key, one getter");
        let Poll::Ready(Some(again)) = poll(&mut tasks[0], &waker) else {
            panic!("the dirty key is to be delivered, to who came first");
        };
        assert_eq!(count.get(), 4, "the last delivery ends the others");
        for task in &mut tasks[1..] {
            assert!(matches!(poll(task, &waker), Poll::Ready(None)));
        }
        assert!(queue.get().is_none(), "nothing is to come any more");
        drop(again);
        assert!(queue.get().is_none());
    });
}

#[test] // S1 S2: after the first `None`, no getter gets a key
fn none_is_final_with_keys_in_flight_elsewhere() {
    with_these_queues(&Config::races(), |config| {
        for round in 0..scaled(300) {
            let queue = config.queue::<usize>();
            let over = AtomicBool::new(false);
            let (queued, deliveries) = (AtomicUsize::new(0), AtomicUsize::new(0));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        loop {
                            let was_over = over.load(Ordering::SeqCst);
                            match queue.get() {
                                Some(item) => {
                                    assert!(!was_over, "a key after a None");
                                    deliveries.fetch_add(1, Ordering::SeqCst);
                                    if queue.add(*item) == Added::Deferred {
                                        queued.fetch_add(1, Ordering::SeqCst);
                                    }
                                }
                                None => break over.store(true, Ordering::SeqCst),
                            }
                        }
                        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
                    });
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
        let (count, waker) = WakeCount::new();
        let mut drain = drain(&queue);
        assert!(!queue.is_shutting_down(), "begins with the first poll");
        let mut still_waits = || assert!(poll(&mut drain, &waker).is_pending());
        still_waits();
        assert!(queue.is_shutting_down());
        processing.done();
        still_waits(); // queued: 2, dirty: 1
        queue.get().unwrap().done();
        still_waits(); // dirty: 1
        dirty.done();
        still_waits(); // queued: 1
        let last = queue.get().unwrap();
        still_waits(); // processing: 1
        assert_eq!(count.get(), 0);
        last.done();
        assert_eq!(count.get(), 1, "woken by the last done");
        assert!(poll(&mut drain, &waker).is_ready());
    });
}

#[test] // S3
fn a_drain_of_an_idle_queue_ends_at_once() {
    with_queues(|config| {
        let queue = config.queue();
        queue.add(1);
        queue.get().unwrap().done();
        assert!(poll(&mut drain(&queue), Waker::noop()).is_ready());
        queue.shut_down_with_drain();
        assert_eq!(queue.drain_timeout(Duration::ZERO), Ok(()));
        assert_eq!(queue.drain_timeout(Duration::MAX), Ok(()));
        assert!(queue.get().is_none());
    });
}

#[test] // S3
fn any_number_of_drainers_return_and_only_when_all_is_done() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue();
        queue.add_all(0..scaled(1000));
        let done = AtomicUsize::new(0);
        let (count, waker) = WakeCount::new();
        let mut tasks: Vec<_> = (0..20).map(|_| drain(&queue)).collect();
        for task in &mut tasks {
            assert!(poll(task, &waker).is_pending());
        }
        thread::scope(|scope| {
            for n in 0..20 {
                let (queue, done) = (&queue, &done);
                scope.spawn(move || {
                    match n % 3 {
                        0 => assert_eq!(queue.shut_down_with_drain().end, DrainEnd::Finished),
                        1 => queue.drain_timeout(Duration::MAX).unwrap(),
                        _ => {
                            let drained = pollster::block_on(queue.drain_async());
                            assert_eq!(drained.end, DrainEnd::Finished);
                        }
                    }
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
        assert_eq!(count.get(), 20, "each task was woken once");
        for task in &mut tasks {
            assert!(poll(task, &waker).is_ready());
        }
    });
}

#[test] // S3
fn a_drain_races_with_the_last_done_without_being_lost() {
    with_these_queues(&Config::races(), |config| {
        for _ in 0..scaled(1000) {
            let queue = config.queue();
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
    let (count, waker) = WakeCount::new();
    let mut first = drain(&queue);
    let mut second = drain(&queue);
    assert!(poll(&mut first, Waker::noop()).is_pending());
    assert!(poll(&mut second, &waker).is_pending());
    drop(first);
    item.done();
    assert_eq!(count.get(), 1);
    assert!(poll(&mut second, &waker).is_ready());
}

// ---- the order of the calls -----------------------------------------------------------------

#[test] // S4
fn a_shut_down_releases_every_drainer_at_once() {
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue();
        queue.add_all(0..2);
        let item = queue.get().unwrap();
        let (count, waker) = WakeCount::new();
        let mut tasks: Vec<_> = (0..40).map(|_| drain(&queue)).collect();
        for task in &mut tasks {
            assert!(poll(task, &waker).is_pending());
        }
        assert_eq!(figures(queue.shut_down()), (1, 1, 0));
        assert_eq!(count.get(), 40, "each task was woken once");
        for task in &mut tasks {
            assert!(poll(task, &waker).is_ready());
        }
        // A drain that begins after the release waits again.
        let mut late = drain(&queue);
        assert!(poll(&mut late, &waker).is_pending());
        item.done();
        queue.get().unwrap().done();
        assert!(poll(&mut late, &waker).is_ready());
    });
}

#[test] // S4
fn any_order_of_any_number_of_shut_downs_is_harmless() {
    with_these_queues(&Config::races(), |config| {
        // Every sequence of four calls, each with a processing key and a queued one.
        for script in (0..3_u32.pow(4)).step_by(if cfg!(miri) { 10 } else { 1 }) {
            let queue = config.queue();
            queue.add_all(0..2);
            let item = queue.get().unwrap();
            let mut drains: Vec<Pin<Box<_>>> = Vec::new();
            let mut script = script;
            for _ in 0..4 {
                match script % 3 {
                    0 => assert_eq!(figures(queue.shut_down()), (1, 1, 0)),
                    1 => {
                        let left = queue.drain_timeout(Duration::ZERO).unwrap_err();
                        assert_eq!(figures(left), (1, 1, 0));
                    }
                    _ => {
                        drains.push(drain(&queue));
                        let drain = drains.last_mut().unwrap();
                        assert!(poll(drain, Waker::noop()).is_pending());
                    }
                }
                script /= 3;
            }
            item.done();
            assert_eq!(take_all(&queue), [1]);
            for drain in &mut drains {
                assert!(poll(drain, Waker::noop()).is_ready());
            }
            assert!(queue.shut_down().is_nothing());
            assert!(queue.get().is_none());
        }
    });
}

#[test] // S4
fn threads_that_shut_down_and_drain_at_once_all_return() {
    with_these_queues(&Config::races(), |config| {
        for _ in 0..scaled(200) {
            let queue = config.queue();
            queue.add_all(0..20);
            let start = Barrier::new(6);
            let delivered = AtomicUsize::new(0);
            thread::scope(|scope| {
                for n in 0..4 {
                    let (queue, start) = (&queue, &start);
                    scope.spawn(move || {
                        start.wait();
                        match n {
                            0 => _ = queue.shut_down_with_drain(),
                            1 => _ = queue.shut_down(),
                            2 => _ = queue.drain_timeout(Duration::MAX),
                            _ => _ = pollster::block_on(queue.drain_async()),
                        }
                    });
                }
                for _ in 0..2 {
                    scope.spawn(|| {
                        start.wait();
                        while let Some(item) = queue.get() {
                            delivered.fetch_add(1, Ordering::SeqCst);
                            item.done();
                        }
                    });
                }
            });
            assert_eq!(delivered.into_inner(), 20);
        }
    });
}

// ---- figures and deadlines ------------------------------------------------------------------

#[test] // S7
fn a_shut_down_says_what_is_left() {
    with_queues(|config| {
        let queue = config.queue();
        assert_eq!(Remaining::default(), config.queue::<usize>().shut_down());
        queue.add_all(0..100);
        let idle = queue.get_batch(10);
        drop(idle);
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
        let queue = config.queue();
        queue.add_all(0..5);
        let items = queue.get_batch(2);
        for limit in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(1),
        ] {
            let left = queue.drain_timeout(limit).unwrap_err();
            assert_eq!(figures(left), (3, 2, 0));
        }
        assert_eq!(queue.add(9), Added::ShutDown, "it stays shut down");
        drop(items);
        assert_eq!(
            figures(queue.drain_timeout(Duration::ZERO).unwrap_err()),
            (3, 0, 0)
        );
        take_all(&queue);
        assert_eq!(queue.drain_timeout(Duration::ZERO), Ok(()));
    });
}

#[test] // S4 S7
fn a_released_drain_with_a_deadline_says_what_is_left() {
    let _watchdog = watchdog(60);
    let queue = Config::usual().queue();
    queue.add_all(0..3);
    let item = queue.get().unwrap();
    let returned = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let left = queue.drain_timeout(Duration::MAX).unwrap_err();
            returned.store(true, Ordering::SeqCst);
            assert_eq!(figures(left), (2, 1, 0));
        });
        eventually("it is released", || {
            queue.shut_down();
            returned.load(Ordering::SeqCst)
        });
    });
    drop(item);
}
