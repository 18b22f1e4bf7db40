//! Wakers that call the queue while a delay ends, and while the queue does.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::common::calls::{Call, Calls, everything};
use crate::common::timed::{MS, built, secs};
use crate::common::{eventually, poll, watchdog};
use keyqueue::{Builder, Clock, MockClock, WorkQueue};

type Queue = WorkQueue<u64>;

/// What wakers call.
const CALLS: [Call<u64>; 4] = [
    |queue| everything(queue, |n| n),
    |queue| _ = queue.fire_due(),
    |queue| _ = queue.shut_down(),
    |queue| _ = queue.shut_down_now(),
];

/// Queues in which a delay can raise a queued key: with levels, without groups and with some.
const LEVELS: [fn(Builder<u64>) -> Builder<u64>; 3] = [
    |builder| builder.levels(2),
    |builder| builder.levels(3).group_by(|key| key % 5),
    |builder| builder.levels(2).dispatch_rate(1000.0, 1000).capacity(100),
];

/// Delays the key that is queued, which raises it, and another one, which wakes a getter.
fn delay_both(queue: &Queue, delay: Duration) {
    queue.add_after(1, delay);
    queue.add_after(2, delay);
}

/// Has `fire` end delays of which one raises a queued key, while a getter sleeps whose waker makes `call`.
fn raise(queue: Queue, call: Call<u64>, delay: impl FnOnce(&Queue), fire: impl FnOnce(&Queue)) {
    let queue = Arc::new(queue);
    let (calls, waker) = Calls::new(&queue, call);
    let mut first = queue.get_async();
    assert!(poll(&mut first, Waker::noop()).is_pending());
    let mut second = queue.get_async();
    assert!(poll(&mut second, &waker).is_pending());
    // Wakes the first getter, which is not polled again. So the key stays queued.
    queue.entry(1).level(1).add();
    delay(&queue);
    fire(&queue);
    eventually("the waker's call returns", || calls.returned() > 0);
    // Nor does another thread find anything locked.
    std::thread::scope(|scope| _ = scope.spawn(|| queue.shut_down()));
}

fn manual(set: fn(Builder<u64>) -> Builder<u64>) -> (Queue, MockClock) {
    built(|builder| set(builder).default_level(0).drain_delays(true))
}

#[test] // S15 P4
fn a_waker_may_call_the_queue_while_a_delay_raises_a_key() {
    let _watchdog = watchdog(30);
    for set in LEVELS {
        for call in CALLS {
            let (queue, time) = manual(set);
            let delay = |queue: &Queue| delay_both(queue, secs(1));
            raise(queue, call, delay, |queue| {
                time.advance(secs(1));
                queue.fire_due();
            });
        }
    }
}

#[test] // S15 P4 S6
fn a_waker_may_call_the_queue_in_the_timers_thread() {
    let _watchdog = watchdog(30);
    for set in LEVELS {
        for call in CALLS {
            let builder = set(WorkQueue::builder())
                .default_level(0)
                .clock(Clock::new());
            let delay = |queue: &Queue| delay_both(queue, MS);
            raise(builder.build().unwrap(), call, delay, |_| ());
        }
    }
}

#[test] // S15 S7 S10
fn a_waker_may_call_the_queue_while_a_drain_delivers_delays() {
    let _watchdog = watchdog(30);
    for set in LEVELS {
        for call in CALLS {
            let (queue, _time) = manual(set);
            let delay = |queue: &Queue| delay_both(queue, secs(1));
            raise(queue, call, delay, |queue| {
                let left = queue.drain_timeout(MS);
                assert!(left.queued <= 2, "{left:?}");
            });
        }
    }
}

#[test] // S15 S8 B2
fn a_waker_of_an_add_that_gets_room_may_shut_down_while_another_abandons() {
    let _watchdog = watchdog(30);
    let queue: Arc<Queue> = Arc::new(WorkQueue::builder().capacity(1).build().unwrap());
    queue.add(1);
    let (waits, waker) = Calls::new(&queue, |queue| _ = queue.shut_down());
    let mut add = Box::pin(queue.entry(2).add_async());
    assert!(poll(&mut add, &waker).is_pending());
    let (ends, waker) = Calls::new(&queue, |queue| _ = queue.shut_down_now());
    let mut closed = Box::pin(queue.closed());
    assert!(poll(&mut closed, &waker).is_pending());
    // Wakes `closed`, which discards the key, which makes room for the add.
    queue.shut_down();
    assert_eq!((ends.returned(), waits.returned()), (1, 1));
}

#[test] // S15 B2 S7 S10
fn a_waker_of_an_add_may_call_the_queue_when_a_drain_merges_a_delay() {
    let _watchdog = watchdog(30);
    for call in CALLS {
        let (queue, _time) = built(|builder: Builder<u64>| builder.capacity(2).drain_delays(true));
        let queue = Arc::new(queue);
        queue.add(1);
        queue.add_after(1, secs(1));
        let (calls, waker) = Calls::new(&queue, call);
        let mut add = Box::pin(queue.entry(2).add_async());
        assert!(poll(&mut add, &waker).is_pending());
        // The delay merges into the queued key, so its room is free while the queue is being closed.
        let _ = queue.drain_timeout(Duration::ZERO);
        assert_eq!(calls.returned(), 1);
    }
}
