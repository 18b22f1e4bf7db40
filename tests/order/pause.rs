//! A pause of all deliveries (G7).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built, secs};
use crate::common::{Task, scaled, take_all, watchdog};
use keyqueue::{Added, Builder, GetError, UpTo, WorkQueue};

fn of_each_kind() -> Vec<WorkQueue<u64>> {
    let kinds: [fn(Builder<u64>) -> Builder<u64>; 5] = [
        Builder::pausable,
        |builder| builder.levels(2),
        |builder| builder.group_by(|key| key % 3),
        |builder| builder.dispatch_rate(1e9, 1000),
        |builder| builder.min_interval(Duration::from_nanos(1)),
    ];
    kinds
        .map(|set| set(WorkQueue::builder()).build().unwrap())
        .into()
}

#[test] // G7
fn a_pause_delivers_nothing_and_loses_nothing() {
    for queue in of_each_kind() {
        queue.add_all([1, 2]);
        let held = queue.try_get().unwrap();
        assert_eq!(queue.paused(), Some(false));
        queue.pause().unwrap();
        queue.pause().unwrap();
        assert_eq!((queue.add(2), queue.add(3)), (Added::Merged, Added::Queued));
        assert_eq!(queue.add(*held), Added::Deferred);
        drop(held);
        assert!(queue.try_get().is_err() && queue.try_get_batch(9).is_err());
        assert_eq!((queue.len(), queue.paused()), (3, Some(true)));
        assert!(queue.resume() && !queue.resume());
        let mut keys = take_all(&queue);
        keys.sort_unstable();
        assert_eq!(keys, [1, 2, 3]);
    }
}

#[test] // G7
fn another_queue_refuses_a_pause_and_names_the_setting() {
    let queue = WorkQueue::<u64>::new();
    let error = queue.pause().unwrap_err();
    assert_eq!((error.field(), error.value()), ("pausable", "false"));
    assert!(queue.paused().is_none() && !queue.resume());
}

#[test] // G7 C9
fn a_resume_wakes_a_getter_and_that_one_the_next() {
    for queue in of_each_kind() {
        queue.pause().unwrap();
        let mut tasks = [(); 3].map(|()| Task::waiting(Box::pin(queue.get_async())));
        queue.add_all([1, 2, 3]);
        assert!(tasks.iter().all(|task| task.wakes() == 0));
        queue.resume();
        for task in &mut tasks {
            assert!(task.wakes() >= 1);
            task.output().expect("it was woken").done();
        }
        assert_eq!(queue.len(), 0);
    }
}

#[test] // G7
fn holds_and_delays_that_end_in_a_pause_wait_for_its_end() {
    let (queue, time) = built::<u64>(|builder| builder.group_by(|key| key % 2));
    queue.add_after(1, secs(1));
    queue.add(2);
    assert!(queue.hold_group(&0_u64, secs(2)));
    queue.pause().unwrap();
    time.advance(HOUR);
    queue.fire_due();
    assert!(queue.try_get().is_err());
    assert_eq!(queue.len(), 2);
    queue.resume();
    assert_eq!(take_all(&queue).len(), 2);
}

#[test] // G7 T1
fn a_pause_takes_no_token() {
    let (queue, time) = built::<u64>(|builder| builder.dispatch_rate(1.0, 1));
    queue.add_all([1, 2]);
    queue.pause().unwrap();
    assert!(queue.try_get().is_err());
    queue.resume();
    assert_eq!(take_all(&queue), [1]);
    queue.pause().unwrap();
    time.advance(secs(1));
    assert!(queue.try_get().is_err());
    queue.resume();
    assert_eq!(take_all(&queue), [2]);
}

#[test] // G7 S8
fn a_drain_waits_for_the_resume_and_an_end_at_once_does_not() {
    for queue in of_each_kind() {
        queue.add_all([1, 2]);
        queue.pause().unwrap();
        let drained = queue.drain_timeout(Duration::ZERO);
        assert_eq!((drained.is_finished(), drained.queued), (false, 2));
        assert!(queue.try_get().is_err_and(GetError::is_empty));
        assert_eq!(queue.shut_down_now().queued, 2);
        assert!(queue.try_get().is_err_and(GetError::is_shut_down));
    }
    let (queue, _time) = built::<u64>(Builder::pausable);
    queue.add(1);
    queue.pause().unwrap();
    assert_eq!(queue.clear(), 1);
}

#[test] // G7 C9
fn getters_that_linger_wait_for_the_resume() {
    let queue = WorkQueue::builder().pausable().build().unwrap();
    queue.pause().unwrap();
    queue.add_all(0..10_u64);
    let mut task = Task::waiting(Box::pin(queue.get_batch_async(UpTo::new(10).linger(HOUR))));
    queue.resume();
    assert_eq!(task.output().expect("it is woken").len(), 10);
}

#[test] // G7 C5 C9
fn no_key_and_no_wake_up_is_lost_while_threads_pause_and_resume() {
    let _end = watchdog(120);
    for queue in of_each_kind() {
        let delivered = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let keys = scaled(20_000);
        thread::scope(|scope| {
            let _end = queue.shut_down_on_drop();
            for _ in 0..3 {
                scope.spawn(|| {
                    while queue.get().is_some() {
                        // Ordering: Relaxed; a count that is read after the threads are joined, or waited for.
                        delivered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    queue.pause().unwrap();
                    thread::yield_now();
                    queue.resume();
                }
            });
            queue.add_all(0..keys as u64);
            rig::eventually("all keys are delivered", || {
                delivered.load(Ordering::Relaxed) == keys
            });
            stop.store(true, Ordering::Relaxed);
        });
    }
}
