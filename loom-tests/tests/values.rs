//! Values: handed over from adders to deliveries, against everything else that happens to their key.
//!
//! Each value has a witness, a cell that every merge and every delivery writes: loom reports a
//! causality violation if the queue does not order two of these.
#![cfg(keyqueue_loom)]

use std::time::Duration;

use keyqueue::{Added, Ended, GetError, MockClock};
use keyqueue_loom_tests::values::{Item, Values, bag, delayed_values, drain, put_tracked, values};
use keyqueue_loom_tests::{check, spawn, spawn_with};
use loom::sync::Arc;

const NS: Duration = Duration::from_nanos(1);
/// A tick.
const MS: Duration = Duration::from_millis(1);

/// A queue whose key 1 is known and idle.
fn idle_key() -> Arc<Values> {
    let queue = values(|builder| builder);
    queue.put(1, bag(0));
    assert_eq!(drain(&queue), [[0]]);
    queue
}

/// A queue with value 1, whose delay is over and ends with the next `fire_due`.
fn due_value() -> (Arc<Values>, MockClock) {
    let (queue, time) = delayed_values();
    queue.entry(1).after(NS).put(bag(1));
    time.advance(MS);
    (queue, time)
}

/// Gets the key with this value.
fn held<'q>(queue: &'q Values, value: &[u8]) -> Item<'q> {
    let mut item = queue.try_get().unwrap();
    assert_eq!(item.value_mut().touch(), value);
    item
}

/// V1, V2. The value goes with the delivery that begins meanwhile, or with the next.
#[test]
fn a_put_beside_the_begin_of_a_delivery() {
    check("put_begin", 5, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let adder = spawn_with(&queue, |queue| queue.put(1, bag(2)));
        let mut all = drain(&queue);
        let added = adder.join().unwrap();
        all.extend(drain(&queue));
        match added {
            Added::Merged => assert_eq!(all, [[1, 2].to_vec()]),
            _ => assert_eq!(all, [[1], [2]]),
        }
    });
}

/// V2. A delivery that has begun does not get the value; one that follows does.
#[test]
fn a_put_beside_the_end_of_a_delivery() {
    check("put_finish", 5, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let mut item = held(&queue, &[1]);
        let adder = spawn_with(&queue, |queue| queue.put(1, bag(2)));
        assert_eq!(item.value_mut().touch(), [1]);
        item.done();
        let mut all = drain(&queue);
        assert_ne!(adder.join().unwrap(), Added::Merged);
        all.extend(drain(&queue));
        assert_eq!(all, [[2]]);
    });
}

/// V1, V2, C5. A worker that waits gets both values, in one delivery or two. One that finds a
/// delivery without a value waits on.
#[test]
fn two_puts_beside_a_worker() {
    check("two_puts", 3, || {
        let queue = values(|builder| builder);
        let adders = [1, 2].map(|id| spawn_with(&queue, move |queue| queue.put(1, bag(id))));
        let mut all = Vec::new();
        while all.len() < 2 {
            let mut item = queue.get().unwrap();
            all.extend(item.value_mut().touch());
        }
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        for adder in adders {
            adder.join().unwrap();
        }
        assert_eq!(queue.try_get().err(), Some(GetError::Empty));
    });
}

/// C10. The node of a key stays interned while a put merges into it.
#[test]
fn a_put_beside_a_sweep() {
    check("put_sweep", 5, || {
        let queue = idle_key();
        let adder = spawn_with(&queue, |queue| queue.put(1, bag(1)));
        queue.shrink();
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!(drain(&queue), [[1]]);
    });
}

/// C10. The same while another put has the lock of the value, so that this one waits for it, and the
/// worker is done with the other meanwhile.
#[test]
fn a_put_that_waits_for_another_beside_a_sweep() {
    check("put_put_sweep", 3, || {
        let queue = idle_key();
        let adders = [1, 2].map(|id| spawn_with(&queue, move |queue| queue.put(1, bag(id))));
        let mut all = drain(&queue).concat();
        queue.shrink();
        for adder in adders {
            assert!(adder.join().unwrap().is_accepted());
        }
        all.extend(drain(&queue).concat());
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

/// V1, D4. The value of a delay that ends, and one that is put: none lost, in order.
#[test]
fn a_put_beside_the_end_of_a_delay() {
    check("put_fire", 5, || {
        let (queue, _time) = due_value();
        let driver = spawn_with(&queue, Values::fire_due);
        queue.put(1, bag(2));
        let mut all = drain(&queue);
        assert_eq!(driver.join().unwrap(), 1);
        all.extend(drain(&queue));
        assert_eq!(
            all,
            [[1, 2].to_vec()],
            "put under the lock, so before the delivery"
        );
    });
}

/// V1, D1. The delay ends before its value is merged: the delivery waits for it.
#[test]
fn a_delayed_put_beside_its_own_end() {
    check("put_after_fire", 5, || {
        let (queue, time) = delayed_values();
        let adder = spawn_with(&queue, |queue| queue.entry(1).after(NS).put(bag(1)));
        time.advance(2 * MS);
        let fired = queue.fire_due();
        let mut all = drain(&queue);
        assert!(all.len() <= fired);
        assert_eq!(adder.join().unwrap(), Added::Delayed);
        time.advance(2 * MS);
        assert_eq!(fired + queue.fire_due(), 1);
        all.extend(drain(&queue));
        assert_eq!(all, [[1]]);
    });
}

/// V1, D3. The second value is kept with the pending delay, or has a delay of its own.
#[test]
fn two_delayed_puts_beside_the_end_of_one() {
    check("two_put_afters_fire", 5, || {
        let (queue, time) = due_value();
        let driver = spawn_with(&queue, |queue| (queue.fire_due(), drain(queue)));
        assert_eq!(queue.entry(1).after(MS).put(bag(2)), Added::Delayed);
        let (_, mut all) = driver.join().unwrap();
        time.advance(2 * MS);
        queue.fire_due();
        all.extend(drain(&queue));
        assert_eq!(all.concat(), [1, 2]);
        assert_eq!(queue.shut_down().delayed, 0);
    });
}

/// D6. The value is dropped with the delay, or delivered.
#[test]
fn a_cancel_beside_the_end_of_the_delay() {
    check("cancel_fire", 5, || {
        let (queue, _time) = due_value();
        let driver = spawn_with(&queue, |queue| (queue.fire_due(), drain(queue)));
        let cancelled = queue.cancel(&1);
        let (fired, all) = driver.join().unwrap();
        assert_eq!(fired + usize::from(cancelled), 1);
        assert_eq!(all.len(), fired);
        assert_eq!(
            queue.remove(&1).map(|_| ()),
            None,
            "no value is left behind"
        );
    });
}

/// D6. A put makes the key queued; then the cancel leaves both values alone.
#[test]
fn a_cancel_beside_a_put() {
    check("cancel_put", 5, || {
        let (queue, _time) = due_value();
        let adder = spawn_with(&queue, |queue| queue.put(1, bag(2)));
        assert!(queue.cancel(&1));
        assert_eq!(adder.join().unwrap(), Added::Queued);
        let all = drain(&queue).concat();
        assert!(all == [1, 2] || all == [2], "{all:?}");
    });
}

/// V2. A value is taken back, or delivered.
#[test]
fn a_removal_beside_a_delivery() {
    check("remove_begin", 5, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let remover = spawn_with(&queue, |queue| queue.remove(&1).map(|mut bag| bag.touch()));
        let mut all = drain(&queue);
        all.extend(remover.join().unwrap());
        assert_eq!(all, [[1]]);
        assert_eq!(queue.put(1, bag(2)), Added::Queued, "idle");
    });
}

/// V2. The same of the value of a dirty key, beside the end of the delivery before.
#[test]
fn a_removal_beside_a_done() {
    check("remove_finish", 5, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let mut item = held(&queue, &[1]);
        queue.put(1, bag(2));
        let remover = spawn_with(&queue, |queue| queue.remove(&1).map(|mut bag| bag.touch()));
        assert_eq!(item.value_mut().touch(), [1]);
        item.done();
        let mut all = drain(&queue);
        all.extend(remover.join().unwrap());
        assert_eq!(all, [[2]]);
        assert_eq!(queue.put(1, bag(3)), Added::Queued, "idle");
    });
}

/// S1, S2, S12. A key that is dirty for the value is closed with it, or without: it is delivered once, or not at all, and a getter
/// that waits ends. If its delivery is counted and never comes, the getter waits forever.
#[test]
fn a_removal_of_the_value_of_a_dirty_key_beside_a_shut_down() {
    check("remove_close", 3, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let item = held(&queue, &[1]);
        queue.put(1, bag(2));
        let remover = spawn_with(&queue, |queue| {
            let mut all = queue.remove(&1).map(|mut bag| bag.touch());
            while let Some(mut item) = queue.get() {
                assert_eq!(all.replace(item.value_mut().touch()), None);
            }
            all
        });
        queue.shut_down();
        item.done();
        assert_eq!(remover.join().unwrap(), Some(vec![2]));
        assert!(queue.shut_down_with_drain().is_nothing());
    });
}

/// V2. What is taken back and put again at the same time.
#[test]
fn a_removal_beside_a_put() {
    check("remove_put", 5, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let adder = spawn_with(&queue, |queue| {
            assert_eq!(queue.put(1, bag(2)), Added::Merged);
        });
        let mut all: Vec<_> = queue
            .remove(&1)
            .map(|mut bag| bag.touch())
            .into_iter()
            .collect();
        adder.join().unwrap();
        all.extend(drain(&queue));
        assert_eq!(all.concat(), [1, 2]);
    });
}

/// V2, V3. The value goes back under the newer one, whoever is first.
#[test]
fn a_retry_beside_a_put() {
    check("retry_put", 5, || {
        let queue = values(|builder| builder);
        queue.put(1, bag(1));
        let item = held(&queue, &[1]);
        let adder = spawn_with(&queue, |queue| queue.put(1, bag(2)));
        let _ = item.retry();
        let mut all = drain(&queue);
        adder.join().unwrap();
        all.extend(drain(&queue));
        assert_eq!(all.concat(), [1, 2]);
    });
}

/// V3, D4. The value goes back with a delay that ends at once.
#[test]
fn a_delayed_retry_beside_its_end() {
    check("retry_after_fire", 5, || {
        let (queue, time) = delayed_values();
        queue.put(1, bag(1));
        let item = held(&queue, &[1]);
        let driver = spawn_with(&queue, move |queue| {
            time.advance(2 * MS);
            (queue.fire_due(), time)
        });
        assert_eq!(item.retry_after(NS), Added::Delayed);
        let mut all = drain(&queue);
        let (fired, time) = driver.join().unwrap();
        time.advance(2 * MS);
        assert_eq!(fired + queue.fire_due(), 1);
        all.extend(drain(&queue));
        assert_eq!(all, [[1]]);
    });
}

/// S1. A value that is accepted is delivered.
#[test]
fn a_put_beside_a_shut_down() {
    check("shut_down_put", 5, || {
        let queue = idle_key();
        let adder = spawn_with(&queue, |queue| put_tracked(queue, 1, bag(1)).1);
        queue.shut_down();
        let mut all = Vec::new();
        while let Some(mut item) = queue.get() {
            all.push(item.value_mut().touch());
        }
        match adder.join().unwrap().ended() {
            Some(Ended::Done) => assert_eq!(all, [[1]]),
            ended => assert!(ended == Some(Ended::Dropped) && all.is_empty(), "{ended:?}"),
        }
    });
}

/// S8. A value that is accepted may be discarded, and then its receipt says so.
#[test]
fn a_put_beside_a_shut_down_that_abandons() {
    check("now_put", 5, || {
        let queue = idle_key();
        let adder = spawn_with(&queue, |queue| put_tracked(queue, 1, bag(1)).1);
        queue.shut_down_now();
        assert!(queue.get().is_none());
        assert_eq!(adder.join().unwrap().ended(), Some(Ended::Dropped));
    });
}

/// S8. The same of a key that is processing: its item ends as ever, and the value put meanwhile is
/// discarded.
#[test]
fn a_deferred_put_beside_a_shut_down_that_abandons() {
    check("now_deferred", 3, || {
        let queue = values(|builder| builder);
        let (_, first) = put_tracked(&queue, 1, bag(1));
        let mut item = held(&queue, &[1]);
        let adder = spawn_with(&queue, |queue| put_tracked(queue, 1, bag(2)).1);
        let ending = spawn_with(&queue, |queue| _ = queue.shut_down_now());
        assert_eq!(item.value_mut().touch(), [1]);
        item.done();
        ending.join().unwrap();
        assert!(queue.get().is_none());
        assert_eq!(first.ended(), Some(Ended::Done));
        assert_eq!(adder.join().unwrap().ended(), Some(Ended::Dropped));
    });
}

/// S5. A retry whose delay a shut-down drops, or refuses: the receipt ends either way.
#[test]
fn a_delayed_retry_beside_a_shut_down() {
    check("shut_down_retry", 5, || {
        let (queue, _time) = delayed_values();
        let (_, receipt) = put_tracked(&queue, 1, bag(1));
        let item = held(&queue, &[1]);
        let ending = spawn_with(&queue, |queue| _ = queue.shut_down());
        let added = item.retry_after(MS);
        ending.join().unwrap();
        assert!(queue.get().is_none());
        let ended = receipt.ended();
        match added {
            Added::Delayed => assert_eq!(ended, Some(Ended::Dropped)),
            added => assert!(
                added == Added::ShutDown && ended.is_some(),
                "{added:?} {ended:?}"
            ),
        }
    });
}

/// V2, S5. A delayed value beside a drain that delivers delays: accepted is delivered.
#[test]
fn a_delayed_put_beside_a_drain_that_delivers_delays() {
    check("drain_put_after", 5, || {
        let (queue, _time) = delayed_values();
        let adder = spawn_with(&queue, |queue| queue.entry(1).after(MS).put(bag(1)));
        let drained = queue.drain_timeout(Duration::ZERO);
        let mut all = Vec::new();
        while let Some(mut item) = queue.get() {
            all.push(item.value_mut().touch());
        }
        match adder.join().unwrap() {
            Added::Delayed => assert_eq!(all, [[1]], "{drained:?}"),
            added => assert!(added == Added::ShutDown && all.is_empty(), "{added:?}"),
        }
    });
}

/// The thread that puts `receipt` reads it where the worker has ended.
#[test]
fn a_receipt_shows_what_was_done_with_the_value() {
    check("receipt_value", 5, || {
        let queue = values(|builder| builder);
        let seen = Arc::new(loom::cell::UnsafeCell::new(0));
        let worker = spawn({
            let (queue, seen) = (Arc::clone(&queue), Arc::clone(&seen));
            move || {
                let mut item = queue.get().unwrap();
                assert_eq!(item.value_mut().touch(), [1]);
                // SAFETY: ordered by the receipt; loom checks that.
                seen.with_mut(|seen| unsafe { *seen = 1 });
            }
        });
        assert_eq!(put_tracked(&queue, 1, bag(1)).1.wait(), Ended::Done);
        // SAFETY: as above.
        assert_eq!(seen.with(|seen| unsafe { *seen }), 1);
        worker.join().unwrap();
    });
}
