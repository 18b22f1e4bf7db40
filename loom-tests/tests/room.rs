//! The bound of a queue: puts and adds that wait for room, against everything that makes room.
//!
//! A lost wake-up shows as a deadlock, which loom reports.
#![cfg(keyqueue_loom)]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use keyqueue::{Added, Full, Item, State};
use keyqueue_loom_tests::values::{Bag, Values, bag, drain, values};
use keyqueue_loom_tests::{Queue, check, delayed_queue, queue_of, spawn, spawn_with};
use loom::future::block_on;
use loom::sync::Arc;

/// A queue with room for one value, which key 1 has taken.
fn full() -> Arc<Values> {
    let queue = values(|builder| builder.capacity(1));
    queue.put(1, bag(1));
    queue
}

/// Polls a put that waits, and returns whether it is ready.
fn poll(put: &mut Pin<Box<impl Future<Output = Added>>>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    put.as_mut().poll(&mut context).is_ready()
}

/// B2. Interleaving: the put finds no room; the delivery makes room, and finds nobody in the line;
/// the put sleeps.
#[test]
fn a_delivery_lets_a_waiting_put_in() {
    check("room_wait", 5, || {
        let queue = full();
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().put(bag(2)));
        assert_eq!(drain(&queue)[0], [1]);
        assert_eq!(adder.join().unwrap(), Added::Queued);
        drain(&queue);
        assert!(queue.entry(3).try_put(bag(3)).is_ok(), "room is given back");
    });
}

/// B2. The same of a value that is taken back, and of a task.
#[test]
fn a_removal_lets_a_waiting_put_in() {
    check("room_remove", 5, || {
        let queue = full();
        let remover = spawn_with(&queue, |queue| assert!(queue.remove(&1).is_some()));
        assert_eq!(block_on(queue.entry(2).put_async(bag(2))), Added::Queued);
        remover.join().unwrap();
        assert_eq!(drain(&queue), [[2]]);
    });
}

/// B2. Each of two waiting puts, a task and a thread, gets room once.
#[test]
fn two_puts_wait_and_a_worker_delivers() {
    check("room_two", 2, || {
        let queue = full();
        let mut first = Box::pin(queue.entry(2).put_async(bag(2)));
        assert!(!poll(&mut first));
        let adder = spawn_with(&queue, |queue| queue.entry(3).wait().put(bag(3)));
        assert_eq!(held_value(&queue), [1]);
        assert_eq!(block_on(first), Added::Queued);
        assert_eq!(held_value(&queue), [2]);
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!(drain(&queue), [[3]]);
    });
}

/// B2. The room goes to the first in the line.
#[test]
fn the_put_that_came_first_gets_the_room() {
    check("room_order", 5, || {
        let queue = full();
        let mut first = Box::pin(queue.entry(2).put_async(bag(2)));
        let mut second = Box::pin(queue.entry(3).put_async(bag(3)));
        assert!(!poll(&mut first) && !poll(&mut second));
        let worker = spawn_with(&queue, |queue| _ = held_value(queue));
        assert!(!poll(&mut second), "it is second");
        assert!(queue.entry(4).try_put(bag(4)).is_err(), "it is last");
        block_on(first);
        worker.join().unwrap();
        assert!(!poll(&mut second));
        assert_eq!(held_value(&queue), [2]);
        block_on(second);
        assert_eq!(held_value(&queue), [3]);
    });
}

/// B2. A put that is cancelled passes its room on, before it was granted or after.
#[test]
fn a_cancelled_put_passes_its_room_on() {
    check("room_cancel", 5, || {
        let queue = full();
        let mut first = Box::pin(queue.entry(2).put_async(bag(2)));
        let mut second = Box::pin(queue.entry(3).put_async(bag(3)));
        assert!(!poll(&mut first) && !poll(&mut second));
        let worker = spawn_with(&queue, |queue| _ = held_value(queue));
        drop(first);
        block_on(second);
        worker.join().unwrap();
        assert_eq!(drain(&queue), [[3]]);
    });
}

/// B2. A put that is out of time keeps no room.
#[test]
fn a_put_that_timed_out_keeps_no_room() {
    check("room_timed_out", 5, || {
        let queue = full();
        let adder = spawn_with(&queue, |queue| {
            queue
                .entry(2)
                .within(Duration::ZERO)
                .try_put(bag(2))
                .is_ok()
        });
        let before = drain(&queue).len();
        let was_put = adder.join().unwrap();
        assert_eq!(before + drain(&queue).len(), 1 + usize::from(was_put));
        assert!(queue.entry(3).try_put(bag(3)).is_ok(), "room is given back");
    });
}

/// B2, D9. Interleaving: the driver finds nothing to do until an hour from now; the add waits with a limit; the clock
/// passes that; the driver goes to sleep, for good.
#[test]
fn the_limit_of_a_task_wakes_the_sleeping_driver() {
    check("room_time", 2, || {
        let (queue, time) = delayed_queue(|builder| builder.capacity(1));
        queue.add_after(1, Duration::from_secs(3600));
        let limit = Duration::from_micros(500);
        let mut add = Box::pin(queue.entry(2).within(limit).add_async());
        assert!(!poll(&mut add));
        let clock = spawn(move || time.advance(Duration::from_millis(1)));
        assert_eq!(block_on(add), Added::Queued);
        clock.join().unwrap();
    });
}

/// B2. A task whose limit is over, beside a delivery that grants it room: it uses that, or passes it on.
#[test]
fn a_task_whose_limit_is_over_loses_no_room() {
    check("room_limit", 3, || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        queue.add(1);
        let limit = Duration::from_millis(1);
        let mut late = Box::pin(queue.entry(2).within(limit).add_async());
        let mut next = Box::pin(queue.entry(3).add_async());
        assert!(!poll(&mut late) && !poll(&mut next));
        time.advance(limit);
        let worker = spawn_with(&queue, |queue| drop(queue.try_get()));
        assert_eq!(block_on(late), Added::Queued);
        worker.join().unwrap();
        drop(queue.try_get());
        assert_eq!(block_on(next), Added::Queued);
        drop(queue.try_get());
        assert!(queue.entry(4).try_add().is_ok() && queue.entry(5).try_add().is_err());
    });
}

/// B2, S1. Interleaving: the put finds no room; the shut-down lets everybody in the line in; the put
/// goes to the line.
#[test]
fn a_shut_down_ends_the_wait_of_a_put() {
    check("room_close", 5, || {
        let queue = full();
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().put(bag(2)));
        queue.shut_down();
        assert_eq!(adder.join().unwrap(), Added::ShutDown);
    });
}

/// B2. Room for two: what one put gives back is enough for the second in the line, not for the first.
#[test]
fn a_heavy_put_that_is_cancelled_lets_a_light_one_in() {
    check("room_weight", 5, || {
        let queue = values(|builder| builder.capacity(2).weight(Bag::len));
        queue.put(1, bag(1));
        let mut pair = bag(2);
        pair.append(bag(3));
        let mut heavy = Box::pin(queue.entry(2).put_async(pair));
        assert!(!poll(&mut heavy));
        let adder = spawn_with(&queue, |queue| queue.entry(4).wait().put(bag(4)));
        drop(heavy);
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!(drain(&queue), [[1], [4]]);
    });
}

/// B3. A retry needs no room, and one that comes back counts.
#[test]
fn a_retry_beside_a_waiting_put() {
    check("room_retry", 3, || {
        let queue = full();
        let item = queue.try_get().unwrap();
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().put(bag(2)));
        assert_eq!(item.retry(), Added::Deferred);
        let mut all = drain(&queue);
        assert_eq!(adder.join().unwrap(), Added::Queued);
        all.extend(drain(&queue));
        all.sort_unstable();
        assert_eq!(all, [[1], [2]]);
        assert!(queue.entry(3).try_put(bag(3)).is_ok() && queue.entry(4).try_put(bag(4)).is_err());
    });
}

/// Gets a key, and returns its value.
fn held_value(queue: &Values) -> Vec<u8> {
    let mut item = queue.try_get().unwrap();
    item.value_mut().touch()
}

/// A bounded queue of keys without values, which key 1 has filled.
fn full_of_keys() -> Arc<Queue> {
    let queue = queue_of(|builder| builder.capacity(1));
    queue.add(1);
    queue
}

/// B2, of a queue without values. The delivery makes room beside an add that goes to the line.
#[test]
fn a_delivery_lets_a_waiting_add_in() {
    check("room_add_wait", 5, || {
        let queue = full_of_keys();
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().add());
        drop(queue.try_get().unwrap());
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!(queue.entry(3).try_add(), Err(Full(3)));
        drop(queue.try_get().unwrap());
        assert_eq!(queue.entry(3).try_add(), Ok(Added::Queued));
    });
}

/// B1, B2. A delay that is cancelled lets an add in.
#[test]
fn a_cancelled_delay_lets_a_waiting_add_in() {
    check("room_cancel_delay", 3, || {
        let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        queue.add_after(1, Duration::from_secs(1));
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().add());
        assert!(queue.cancel(&1));
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!(queue.entry(3).try_add(), Err(Full(3)));
    });
}

/// B1. Two adds that keep the bound, and room for one: one of them is refused.
#[test]
fn two_tries_share_room_for_one() {
    check("room_two_tries", 5, || {
        let queue = queue_of::<u64>(|builder| builder.capacity(1));
        let adder = spawn_with(&queue, |queue| queue.entry(1).try_add().is_ok());
        let added = queue.entry(2).try_add().is_ok();
        assert!(adder.join().unwrap() != added);
        assert_eq!(queue.len(), 1);
    });
}

/// V6, B1. The same for an add and a delay, which takes room when it is set.
#[test]
fn an_add_and_a_delay_share_room_for_one() {
    check("room_try_and_delay", 4, || {
        let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        let adder = spawn_with(&queue, |queue| {
            let entry = queue.entry_ref(&1).after(Duration::from_millis(1));
            entry.try_add().is_ok()
        });
        let added = queue.entry(2).try_add().is_ok();
        let delayed = adder.join().unwrap();
        assert!(delayed != added, "one is refused");
        let counts = queue.counts();
        let expected = (usize::from(added), usize::from(delayed));
        assert_eq!((counts.queued, counts.delayed), expected);
        assert!(queue.entry(3).try_add().is_err(), "the room is taken");
    });
}

/// B2, S1. A shut-down ends the wait of an add.
#[test]
fn a_shut_down_ends_the_wait_of_an_add() {
    check("room_add_close", 5, || {
        let queue = full_of_keys();
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().add());
        queue.shut_down();
        assert_eq!(adder.join().unwrap(), Added::ShutDown);
    });
}

/// B1. What another thread sees queued is counted, although the add that queues it is not bounded.
#[test]
fn what_is_seen_queued_is_counted() {
    check("room_seen", 3, || {
        let queue = queue_of(|builder| builder.capacity(1));
        let handle = queue.handle(1);
        let adder = spawn_with(&queue, move |_| handle.add());
        if queue.state(&1) == Some(State::Queued) {
            assert_eq!(queue.entry(2).try_add(), Err(Full(2)));
        }
        assert_eq!(adder.join().unwrap(), Added::Queued);
    });
}

/// B2. A delay that ends for a key in processing needs no room any more: what its worker requeues is all that waits.
#[test]
fn a_delay_that_ends_for_a_key_in_processing_leaves_room() {
    check("room_ended", 3, || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().capacity(2));
        queue.add(1);
        let item = queue.get().unwrap();
        queue.add_after(1, Duration::from_secs(1));
        time.advance(Duration::from_secs(1));
        let timer = spawn_with(&queue, |queue| _ = queue.fire_due());
        item.done();
        assert!(queue.entry(2).try_add().is_ok());
        timer.join().unwrap();
        assert_eq!(queue.len(), 2);
    });
}

/// B2. A key that comes back after its delivery is counted before another getter can take it.
#[test]
fn a_key_that_comes_back_is_counted_before_it_is_taken() {
    check("room_back", 3, || {
        let queue = queue_of(|builder| builder.capacity(1));
        queue.add(1);
        let item = queue.try_get().unwrap();
        assert_eq!(queue.add(1), Added::Deferred);
        let getter = spawn_with(&queue, |queue| {
            if let Ok(_item) = queue.try_get() {
                assert_eq!(queue.entry(2).try_add(), Ok(Added::Queued));
            }
        });
        item.done();
        getter.join().unwrap();
        assert_eq!(queue.len(), 1);
    });
}

/// B2. An add that has waited for room, and merges, keeps none.
#[test]
fn an_add_that_waited_and_merges_leaves_room() {
    check("room_merged", 3, || {
        let queue = full_of_keys();
        let adder = spawn_with(&queue, |queue| queue.entry(2).wait().add());
        queue.get().unwrap().done();
        queue.add(2);
        let item = queue.get().unwrap();
        if queue.state(&2) == Some(State::Dirty) {
            item.done();
            queue.get().unwrap().done();
            assert_eq!(queue.entry(3).try_add(), Ok(Added::Queued));
        } else {
            item.done();
        }
        adder.join().unwrap();
    });
}

/// B3, D5. An add that supersedes a delay is not refused. Interleaving: it cancels the delay, and finds that the key is
/// processing; the key is done; another key takes the room; the add goes on.
#[test]
fn an_add_that_supersedes_a_delay_is_not_refused() {
    check("room_supersede", 3, || {
        let (queue, _time) = delayed_queue(|builder| {
            let builder = builder.supersede_delays(true);
            builder.manual_timers().capacity(1)
        });
        queue.add(1);
        let item = queue.get().unwrap();
        queue.add_after(1, Duration::from_secs(1));
        let adder = spawn_with(&queue, |queue| queue.entry(1).try_add().is_ok());
        item.done();
        // Of the other shard.
        queue.add(3);
        assert!(adder.join().unwrap());
    });
}

/// A delay of a new key is refused before the key is interned, or not at all: `Full` gives the key back. Interleaving:
/// the key is interned, with room; it is added, delivered and done; another key takes the room; the delay goes on.
fn interns_no_key_that_is_refused(name: &str, delay: Duration) {
    check(name, 3, move || {
        let (queue, _time) = delayed_queue(|builder| {
            let builder = builder.supersede_delays(true);
            builder.manual_timers().capacity(1)
        });
        let adder = spawn_with(&queue, move |queue| queue.entry(1).after(delay).try_add());
        queue.add(1);
        if let Ok(item) = queue.try_get() {
            item.done();
        }
        // Of the other shard.
        queue.add(3);
        if let Err(Full(key)) = adder.join().unwrap() {
            assert_eq!(key, 1);
        }
    });
}

/// V6, B2.
#[test]
fn a_delay_that_is_refused_interns_no_key() {
    interns_no_key_that_is_refused("room_delay", Duration::from_secs(1));
}

/// V6, B2. A delay of zero is an add.
#[test]
fn a_delay_of_zero_is_refused_as_an_add_is() {
    interns_no_key_that_is_refused("room_zero", Duration::ZERO);
}

/// B1. A key that comes back after its delivery is counted before another thread sees it queued.
#[test]
fn a_key_that_comes_back_is_counted_before_it_is_seen() {
    check("room_seen_back", 3, || {
        let queue = queue_of(|builder| builder.capacity(1));
        queue.add(1);
        let item = queue.try_get().unwrap();
        assert_eq!(queue.add(1), Added::Deferred);
        let adder = spawn_with(&queue, |queue| {
            if queue.state(&1) == Some(State::Queued) {
                assert_eq!(queue.entry(2).try_add(), Err(Full(2)));
            }
        });
        item.done();
        adder.join().unwrap();
    });
}

/// B5, B2. Retries of two keys, of which one may take room, beside an add for which there is some: it waits for none, and
/// the room that the retries take is given back. Interleaving: both retries take the room of the first; the add finds none,
/// and waits; the second retry gives its room back.
#[test]
fn two_retries_share_half_of_the_room_beside_an_add() {
    check("room_retries", 2, || {
        let queue = queue_of(|builder| builder.capacity(2));
        queue.add(1);
        queue.add(2);
        let item = queue.try_get().unwrap();
        let failer = spawn_with(&queue, |queue| _ = queue.try_get().map(Item::retry));
        let adder = spawn_with(&queue, |queue| queue.entry(3).wait().add());
        assert_eq!(item.retry(), Added::Deferred);
        failer.join().unwrap();
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!(queue.entry(4).try_add(), Err(Full(4)));
        while let Ok(item) = queue.try_get() {
            item.done();
        }
        assert!(queue.entry(4).try_add().is_ok() && queue.entry(5).try_add().is_ok());
        assert_eq!(queue.entry(6).try_add(), Err(Full(6)));
    });
}
