//! The bound of a queue, and keys that it has: one that is queued or delayed needs no room, nor does one that was when an
//! add of it began (B1).
#![cfg(keyqueue_loom)]

use std::time::Duration;

use keyqueue::{Added, WorkQueue};
use keyqueue_loom_tests::values::{bag, values};
use keyqueue_loom_tests::{check, delayed_queue, spawn, spawn_with};

/// B1. An add of a delayed key needs no room, but it does once the delay has ended and another key has the room.
/// Interleaving: the add finds that key 1 is delayed; the delay ends, key 1 is delivered, key 3, of the other
/// shard, takes the room; the add goes on.
#[test]
fn a_delay_that_has_ended_gives_an_add_no_room() {
    check("room_was_delayed", 3, || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        queue.add_after(1, Duration::from_secs(1));
        let handle = queue.handle(1);
        time.advance(Duration::from_secs(1));
        let adder = spawn(move || handle.entry().try_add().is_ok());
        queue.fire_due();
        // Waits: the add may have queued the key, and not pushed its entry yet.
        drop(queue.get().unwrap());
        let added = queue.entry(3).try_add().is_ok();
        let again = adder.join().unwrap();
        assert_eq!(queue.len(), 1, "{again} {added}");
    });
}

/// B1. The same of a delay of a key that was queued.
#[test]
fn a_key_that_was_delivered_gives_a_delay_no_room() {
    check("room_was_queued", 3, || {
        let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        queue.add(1);
        let delayer = spawn_with(&queue, |queue| {
            let entry = queue.entry(1).after(Duration::from_secs(1));
            entry.try_add().is_ok()
        });
        drop(queue.try_get().unwrap());
        let added = queue.entry(3).try_add().is_ok();
        let delayed = delayer.join().unwrap();
        let counts = queue.counts();
        assert_eq!(counts.queued + counts.delayed, 1, "{delayed} {added}");
    });
}

/// B1. A key that is delayed, and then queued, needs no room. Interleaving: an add through a handle finds that the key is
/// idle; its delay ends, and it is queued; the add finds no room, and no delay. The same of a delay, which looks for the
/// delay first.
#[test]
fn a_key_beside_the_end_of_its_delay_needs_no_room() {
    for (name, delay) in [
        ("room_end_add", Duration::ZERO),
        ("room_end_delay", Duration::from_secs(1)),
    ] {
        check(name, 3, move || {
            let (queue, time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
            queue.add_after(1, Duration::from_secs(1));
            let handle = queue.handle(1);
            time.advance(Duration::from_secs(1));
            let firing = spawn_with(&queue, WorkQueue::fire_due);
            assert!(handle.entry().after(delay).try_add().is_ok());
            firing.join().unwrap();
        });
    }
}

/// B1. A key that is processing, and then delayed, needs no room. Interleaving: the delay finds none; the key is retried
/// with another delay, and is idle; the delay is refused.
#[test]
fn a_delay_beside_a_retry_of_its_key_needs_no_room() {
    check("room_retry", 3, || {
        let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        let handle = queue.handle(1);
        queue.add(1);
        let item = queue.get().unwrap();
        queue.add(2);
        let delayer = spawn(move || {
            let entry = handle.entry().after(Duration::from_secs(1));
            entry.try_add().is_ok()
        });
        assert_eq!(item.retry_after(Duration::from_secs(2)), Added::Delayed);
        assert!(delayer.join().unwrap());
    });
}

/// B1. A key that is queued needs no room, and leaves its own when it is delivered. Interleaving: a delay finds that there is
/// no room, which the key itself has; the key is delivered, and idle; the delay finds that it is. An add finds the idle key
/// first, and must not read an older count of the room.
#[test]
fn a_key_beside_its_delivery_is_not_refused() {
    for (name, delay) in [
        ("room_own_add", Duration::ZERO),
        ("room_own_delay", Duration::from_secs(1)),
    ] {
        check(name, 3, move || {
            let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
            queue.add(1);
            let handle = queue.handle(1);
            let adder = spawn(move || handle.entry().after(delay).try_add().is_ok());
            drop(queue.try_get().unwrap());
            assert!(adder.join().unwrap());
        });
    }
}

/// B1. A delayed key needs no room, and leaves its own when it is cancelled. Interleaving: the delay is cancelled; an add of
/// the key finds no delay, and no room; the room is given back.
#[test]
fn an_add_beside_the_cancel_of_its_delay_is_not_refused() {
    check("room_cancel_add", 3, || {
        let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
        queue.add_after(1, Duration::from_secs(1));
        let canceller = spawn_with(&queue, |queue| queue.cancel(&1));
        assert!(queue.entry(1).try_add().is_ok());
        let _ = canceller.join().unwrap();
        assert_eq!(queue.counts().queued + queue.counts().delayed, 1);
    });
}

/// B1. A key that another thread queues needs no room. Interleaving: an entry that borrows the key does not find it; it is
/// queued, and has all the room there is; the entry asks for room.
#[test]
fn a_borrowed_key_beside_an_add_of_it_is_not_refused() {
    for (name, delay) in [
        ("room_borrowed", Duration::ZERO),
        ("room_borrowed_delay", Duration::from_secs(1)),
    ] {
        check(name, 3, move || {
            let (queue, _time) = delayed_queue(|builder| builder.manual_timers().capacity(1));
            let adder = spawn_with(&queue, |queue| queue.add(1));
            let entry = queue.entry_ref(&1).after(delay);
            let added = entry.try_add().is_ok();
            adder.join().unwrap();
            assert!(added);
        });
    }
}

/// B1. A value that waits leaves its room when it is delivered. Interleaving: a put finds that there is no room, which a value
/// of its key has; that is delivered; the put finds no value, before the room is given back, or after.
#[test]
fn a_put_beside_the_delivery_of_its_key_is_not_refused() {
    check("known_put", 3, || {
        let queue = values(|builder| builder.capacity(1));
        queue.put(1, bag(1));
        let getter = spawn_with(&queue, |queue| queue.try_get().map(drop));
        assert!(queue.entry(1).try_put(bag(2)).is_ok());
        assert!(getter.join().unwrap().is_ok());
    });
}

/// B1, B2. A put that merges leaves its room before the value can be delivered. Interleaving: the put takes room, and merges;
/// the value is delivered, another one takes its room, and a third one finds that there is none.
#[test]
fn a_put_that_merges_leaves_room_before_the_value_is_delivered() {
    check("known_merged_put", 3, || {
        let queue = values(|builder| builder.capacity(2));
        queue.put(1, bag(1));
        let putter = spawn_with(&queue, |queue| queue.entry(1).try_put(bag(2)).is_ok());
        let mut item = queue.try_get().unwrap();
        if item.value_mut().len() == 2 {
            queue.put(2, bag(1));
            assert!(queue.entry(3).try_put(bag(1)).is_ok());
        }
        drop(item);
        assert!(putter.join().unwrap());
    });
}

/// B5. A retry whose delay ends while its key, which is dirty, is done with: it is counted as what it is delivered as.
/// Interleaving: the worker counts the key as dirty by an add; the key becomes a retry; the worker queues it.
#[test]
fn a_key_that_becomes_a_retry_as_it_comes_back_gives_back_what_it_took() {
    check("room_retry_back", 3, || {
        let (queue, time) = delayed_queue(|builder| builder.manual_timers().capacity(2));
        queue.add(1);
        let item = queue.try_get().unwrap();
        assert_eq!(item.retry_after(Duration::from_secs(1)), Added::Delayed);
        queue.add(1);
        let item = queue.try_get().unwrap();
        queue.add(1);
        time.advance(Duration::from_secs(1));
        let firing = spawn_with(&queue, WorkQueue::fire_due);
        item.done();
        assert_eq!(firing.join().unwrap(), 1);
        drop(queue.try_get().unwrap());
        let fits = |key| queue.entry(key).try_add().is_ok();
        assert_eq!([fits(2), fits(3), fits(4)], [true, true, false]);
    });
}
