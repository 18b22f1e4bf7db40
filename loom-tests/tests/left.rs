//! What a drain still delivers, and what an end leaves (S11, S12).
#![cfg(keyqueue_loom)]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keyqueue::worker::{Job, Verdict, Workers};
use keyqueue::{Added, Builder, Remaining, WorkQueue};
use keyqueue_loom_tests::values::{bag, drain, values};
use keyqueue_loom_tests::{Queue, check, delayed_queue, queue, queue_of, spawn_with};
use loom::sync::Arc;

fn drains_delays() -> Arc<Queue> {
    queue_of(|builder| builder.drain_delays(true).manual_timers())
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A drain that waits.
fn begun(queue: &Queue) -> Pin<Box<impl Future<Output = Remaining>>> {
    let mut drain = Box::pin(queue.drain_async());
    assert!(poll(drain.as_mut()).is_pending());
    drain
}

/// S1, S11. A key that is retried beside a drain is delivered again, also if the drain has just begun; the other
/// getter does not end before.
#[test]
fn a_retry_beside_a_drain_is_delivered_again() {
    check("left_retry", 2, || {
        let queue = drains_delays();
        queue.add(1);
        let item = queue.get().unwrap();
        let worker = spawn_with(&queue, |queue| {
            let mut deliveries = 0;
            while let Some(item) = queue.get() {
                deliveries += 1;
                item.done();
            }
            deliveries
        });
        let drainer = spawn_with(&queue, WorkQueue::shut_down_with_drain);
        assert!(item.retry().is_accepted());
        let drained = drainer.join().unwrap();
        assert_eq!((drained.is_finished(), drained.refused), (true, 0));
        assert_eq!(worker.join().unwrap(), 1);
    });
}

/// S8, S11, S12. The end of the redelivery beside a retry: it is delivered, or left.
#[test]
fn a_retry_beside_the_end_of_a_drain_is_delivered_or_left() {
    check("left_release", 3, || {
        let queue = drains_delays();
        queue.add(1);
        let item = queue.get().unwrap();
        let _drain = begun(&queue);
        let ender = spawn_with(&queue, |queue| queue.take_left().len());
        let added = item.retry();
        let left = ender.join().unwrap() + queue.take_left().len();
        assert_eq!(left, 1, "{added:?}");
        assert!(queue.get().is_none());
    });
}

/// S11, S16. A drain begins beside a retry and is dropped, while another goes on: the key is delivered again.
#[test]
fn a_retry_beside_a_drain_that_is_dropped_is_delivered_again_for_another() {
    check("left_other_drain", 3, || {
        let queue = drains_delays();
        queue.add(1);
        let item = queue.get().unwrap();
        let drain = begun(&queue);
        let dropper = spawn_with(&queue, |queue| drop(begun(queue)));
        assert_eq!(item.retry(), Added::Deferred);
        dropper.join().unwrap();
        let item = queue.get().unwrap();
        drop(drain);
        assert_eq!(item.retry(), Added::ShutDown);
        assert!(queue.get().is_none());
    });
}

/// S11, S16. Two drains are dropped, or out of time, beside a getter: the last one ends the redelivery, and the getter.
#[test]
fn the_last_drain_that_is_dropped_ends_the_getters() {
    check("left_last_drain", 2, || {
        let queue = drains_delays();
        queue.add(1);
        let item = queue.get().unwrap();
        let drain = begun(&queue);
        let getter = spawn_with(&queue, |queue| queue.get().is_none());
        let probe = spawn_with(&queue, |queue| queue.drain_timeout(Duration::ZERO));
        drop(drain);
        assert!(!probe.join().unwrap().is_finished());
        assert!(getter.join().unwrap());
        assert_eq!(item.retry(), Added::ShutDown);
    });
}

/// S13, S16. The report of a dropped retry is cancelled beside a caller that takes what is left: the key is taken once.
#[test]
fn a_dropped_retry_whose_report_is_cancelled_is_left_once() {
    check("left_report", 2, || {
        let (queue, _time) = delayed_queue(Builder::manual_timers);
        queue.add(1);
        let worker = spawn_with(&queue, |queue| {
            let workers = Workers::new(queue).concurrency(1);
            let workers = workers.on_give_up_async(|_, _| std::future::pending());
            let work = async |_: Job<'_, u8>| Verdict::RetryAfter("no", Duration::from_secs(1));
            let mut run = Box::pin(workers.run_async(work));
            // It tries the key, and lets others run. Then it finds the end, and reports; unless the key is taken first.
            if poll(run.as_mut()).is_pending() {
                queue.shut_down();
                _ = poll(run.as_mut());
            }
        });
        let left = queue.take_left().len();
        worker.join().unwrap();
        assert_eq!(left + queue.take_left().len(), 1);
    });
}

/// S12. A retry beside an add and a shut-down: the key is delivered again, or left, not both.
#[test]
fn a_key_that_is_left_is_not_delivered_again() {
    check("left_add", 2, || {
        let queue = queue(2);
        queue.add(1);
        let item = queue.get().unwrap();
        let adder = spawn_with(&queue, |queue| queue.add(1));
        let ender = spawn_with(&queue, WorkQueue::shut_down);
        let added = (item.retry(), adder.join().unwrap());
        ender.join().unwrap();
        let deliveries = queue.iter().count();
        assert_eq!(deliveries + queue.take_left().len(), 1, "{added:?}");
    });
}

/// S12. Two that take what is left, beside a worker that is refused: it is taken once.
#[test]
fn what_is_left_is_taken_once() {
    check("left_twice", 2, || {
        let queue = queue(2);
        queue.add(1);
        queue.add(2);
        let item = queue.get().unwrap();
        let taker = spawn_with(&queue, |queue| queue.take_left().len());
        let mut left = queue.take_left().len();
        let _ = item.retry();
        left += taker.join().unwrap() + queue.take_left().len();
        assert_eq!(left, 2);
    });
}

/// S12. Two that take what is left of a key that was queued, and delayed as well: it is taken once.
#[test]
fn what_is_left_for_two_reasons_is_taken_once() {
    check("left_reasons", 2, || {
        let (queue, _time) = delayed_queue(Builder::manual_timers);
        queue.add_after(1, Duration::from_secs(1));
        queue.add(1);
        queue.shut_down_now();
        let taker = spawn_with(&queue, |queue| queue.take_left().len());
        let left = queue.take_left().len();
        assert_eq!(left + taker.join().unwrap(), 1);
    });
}

/// S12. A key that was queued, and delayed as well, is taken beside its delivery: its delay is left once, and its entry is delivered
/// or taken with it.
#[test]
fn what_is_left_beside_a_delivery_is_taken_once() {
    check("left_delivered", 2, || {
        let (queue, _time) = delayed_queue(Builder::manual_timers);
        queue.add_after(1, Duration::from_secs(1));
        queue.add(1);
        queue.shut_down();
        let getter = spawn_with(&queue, |queue| queue.try_get().is_ok());
        assert_eq!(queue.take_left().len(), 1);
        getter.join().unwrap();
        assert_eq!(queue.take_left().len(), 0);
    });
}

/// S12, V2. A worker is refused beside a put and the end: each number is left once, or was not accepted.
#[test]
fn values_beside_the_end_are_left_once() {
    check("left_values", 2, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let item = queue.try_get().unwrap();
        let putter = spawn_with(&queue, |queue| queue.put(1, bag(2)).is_accepted());
        queue.shut_down();
        let _ = item.retry_after(Duration::from_secs(1));
        let accepted = putter.join().unwrap();
        let mut numbers: Vec<u8> = drain(&queue).into_iter().flatten().collect();
        let left = queue.take_left().into_iter();
        numbers.extend(left.flat_map(|left| left.value.unwrap().touch()));
        assert_eq!(numbers, if accepted { &[1, 2][..] } else { &[1] });
    });
}

/// X3, S12. A delayed key is run now beside a shut-down: it is delivered, or left, and not lost.
#[test]
fn a_delayed_key_that_is_run_now_beside_a_shut_down_is_delivered_or_left() {
    check("left_run_now", 3, || {
        let (queue, _time) = delayed_queue(Builder::manual_timers);
        queue.add_after(1, Duration::from_secs(1));
        let ender = spawn_with(&queue, WorkQueue::shut_down);
        let added = queue.run_now(&1);
        ender.join().unwrap();
        let delivered = queue.iter().count();
        let left = queue.take_left().len();
        assert!(delivered + left >= 1, "{added:?}");
        assert_eq!(delivered, usize::from(added == Some(Added::Queued)));
    });
}

/// X3, D3. A delayed key is run now beside the end of its delay and the delivery that follows: it is added once.
#[test]
fn a_delayed_key_that_is_run_now_beside_its_end_is_delivered_once() {
    check("left_run_now_once", 3, || {
        let (queue, time) = delayed_queue(Builder::manual_timers);
        queue.add_after(1, Duration::from_secs(1));
        time.advance(Duration::from_secs(2));
        let firing = spawn_with(&queue, |queue| {
            let fired = queue.fire_due();
            (fired, queue.try_get().map(drop).is_ok())
        });
        let added = queue.run_now(&1);
        let (fired, delivered) = firing.join().unwrap();
        let later = queue.try_get().map(drop).is_ok();
        assert_eq!(usize::from(delivered) + usize::from(later), 1);
        assert_eq!(usize::from(added == Some(Added::Queued)) + fired, 1);
    });
}

/// X3, B2. A delayed key is run now beside the end of its delay: it gives its room back once.
#[test]
fn a_delayed_key_that_is_run_now_beside_its_end_gives_its_room_back() {
    check("left_run_now_fire", 3, || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        queue.add_after(1, Duration::from_secs(1));
        time.advance(Duration::from_secs(2));
        let firing = spawn_with(&queue, WorkQueue::fire_due);
        let added = queue.run_now(&1);
        let fired = firing.join().unwrap();
        assert!(added.is_some() || fired == 1);
        assert_eq!((queue.len(), queue.counts().delayed), (1, 0));
        assert!(queue.entry(2).try_add().is_err(), "it is full");
        queue.get().unwrap().done();
        assert!(queue.try_get().is_err());
        let added = queue.entry(2).try_add();
        assert_eq!(added.ok(), Some(Added::Queued), "there is room again");
        assert!(queue.entry(3).try_add().is_err(), "for one key");
    });
}
