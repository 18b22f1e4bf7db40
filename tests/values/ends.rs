//! What ends without a delivery: shut-downs, `remove`, `clear`, refused puts (V2, S1, S5, S8). Each
//! value is dropped or returned once.

use std::time::Duration;

use super::{assert_nothing_delivered, deliveries, lists, timed_lists};
use crate::common::counted::{Alive, Counted};
use crate::common::figures;
use crate::common::timed::{HOUR, secs};
use keyqueue::limiter::NoLimit;
use keyqueue::{Added, Clock, State, WorkQueue, merge};

type Queue = WorkQueue<u32, Vec<Counted<u32>>>;

/// A queue of counted values with one in each state: processing and dirty (1), delayed (2),
/// queued and delayed (3), queued (4).
fn in_all_states(alive: &Alive, body: impl FnOnce(&Queue)) {
    let (clock, _time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue: Queue = builder.merge(merge::append).build().unwrap();
    let value = || vec![alive.of(0), alive.of(0)];
    queue.put(1, value());
    let item = queue.get().unwrap();
    queue.put(1, value());
    queue.entry(2).after(HOUR).put(value());
    queue.entry(3).after(HOUR).put(value());
    queue.put(3, value());
    queue.put(4, value());
    assert_eq!(alive.count(), 12);
    body(&queue);
    // A retry after the end goes with the delivery that is owed, or is left (S11, S12).
    let before = alive.count();
    if queue.is_shutting_down() {
        let _ = item.retry_after(HOUR);
        assert_eq!(alive.count(), before);
        let left = queue.take_left().into_iter();
        let values: Vec<_> = left.flat_map(|left| left.value.unwrap()).collect();
        assert_eq!((values.len(), alive.count()), (before, before));
    }
}

#[test] // S1 V2
fn after_a_shut_down_each_value_is_delivered_or_dropped_once() {
    let alive = Alive::default();
    in_all_states(&alive, |queue| {
        // The value of key 3 goes with its entry, so nothing is left for its delay.
        assert_eq!(figures(queue.shut_down()), (2, 1, 1));
        assert_eq!(queue.try_get().unwrap().value().len(), 4); // of key 3
        assert_eq!(queue.try_get().unwrap().value().len(), 2); // of key 4
        assert_eq!(alive.count(), 6);
        // The value of the delay that was dropped can be had.
        assert_eq!(queue.remove(&2).map(|value| value.len()), Some(2));
        assert_eq!(alive.count(), 4);
        let refused: [&dyn Fn() -> Added; 5] = [
            &|| queue.put(1, vec![alive.of(0)]),
            &|| queue.put(5, vec![alive.of(0)]), // a new key
            &|| queue.entry_ref(&1).put(vec![alive.of(0)]),
            &|| queue.entry(1).after(HOUR).put(vec![alive.of(0)]),
            &|| queue.entry(1).update(|list| list.push(alive.of(0))),
        ];
        for put in refused {
            assert_eq!(put(), Added::ShutDown);
            assert_eq!(alive.count(), 4);
        }
    });
    assert_eq!(alive.count(), 0);
}

#[test] // S2 S11
fn a_dirty_key_is_delivered_with_its_value_after_a_shut_down() {
    let queue = lists::<&str>();
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    queue.put("a", vec![2]);
    queue.shut_down();
    // The retry goes with the delivery that is owed.
    assert_eq!(item.retry(), Added::Merged);
    assert_eq!(*queue.get().unwrap().value(), [1, 2]);
    assert!(queue.get().is_none());
    assert!(queue.shut_down_with_drain().is_nothing());
}

#[test] // S8
fn after_shut_down_now_no_value_is_delivered_and_each_is_dropped_once() {
    let alive = Alive::default();
    in_all_states(&alive, |queue| {
        assert_eq!(figures(queue.shut_down_now()), (2, 1, 1));
        assert!(queue.get().is_none());
        assert_eq!(queue.remove(&4).map(|value| value.len()), Some(2));
        assert_eq!(queue.remove(&4).map(|value| value.len()), None);
        assert_eq!(figures(queue.shut_down_now()), (0, 1, 1));
    });
    assert_eq!(alive.count(), 0);

    // A key that is processing and not dirty is counted, too.
    let queue = lists::<&str>();
    queue.put("a", vec![1]);
    let _item = queue.get().unwrap();
    assert_eq!(figures(queue.shut_down_now()), (0, 1, 0));
}

#[test] // S6
fn a_dropped_queue_drops_its_values_once_also_if_a_handle_lives() {
    let alive = Alive::default();
    in_all_states(&alive, |_| ());
    assert_eq!(alive.count(), 0);

    let queue: Queue = WorkQueue::builder().merge(merge::append).build().unwrap();
    let handle = queue.handle(1);
    handle.put(vec![alive.of(0)]);
    queue.put(2, vec![alive.of(0)]);
    queue.entry(3).after(HOUR).put(vec![alive.of(0)]);
    drop(queue);
    assert_eq!(handle.put(vec![alive.of(0)]), Added::ShutDown);
    assert_eq!(
        handle.entry().after(Duration::ZERO).put(vec![alive.of(0)]),
        Added::ShutDown
    );
    assert_eq!(
        handle.entry().after(HOUR).put(vec![alive.of(0)]),
        Added::ShutDown
    );
    assert_eq!(alive.count(), 3);
    drop(handle);
    assert_eq!(alive.count(), 0);
}

#[test] // V2
fn remove_takes_back_what_waits_in_each_state() {
    let (queue, time) = timed_lists(|builder| builder);
    assert_eq!(queue.remove("a"), None);
    // Queued: the place stays, for a later value.
    queue.put("a", vec![1]);
    queue.put("b", vec![2]);
    assert_eq!(queue.remove("a"), Some(vec![1]));
    assert_eq!(queue.remove("a"), None);
    assert_eq!((queue.len(), queue.state(&"a")), (2, Some(State::Queued)));
    assert_eq!(queue.put("a", vec![3]), Added::Merged);
    assert_eq!(deliveries(&queue), [("a", vec![3]), ("b", vec![2])]);
    // Delayed, and a delayed retry.
    queue.entry("a").after(secs(1)).put(vec![4]);
    assert_eq!(queue.remove("a"), Some(vec![4]));
    queue.put("a", vec![5]);
    let _ = queue.get().unwrap().retry_after(secs(1));
    assert_eq!(queue.remove("a"), Some(vec![5]));
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 0);
    // Processing, and dirty.
    queue.put("a", vec![6]);
    let item = queue.get().unwrap();
    assert_eq!(queue.remove("a"), None);
    queue.put("a", vec![7]);
    assert_eq!(queue.remove("a"), Some(vec![7]));
    assert_eq!(*item.value(), [6]);
    drop(item);
    assert_nothing_delivered(&queue);
    assert_eq!(queue.state(&"a"), None);
    // By a borrowed form, and after the shut-down.
    queue.put("a", vec![8]);
    queue.shut_down();
    assert_eq!(queue.remove("a"), Some(vec![8]));
    assert!(queue.get().is_none());
    assert!(queue.shut_down_with_drain().is_nothing());
}

#[test] // V2 C5 S2
fn a_key_in_hand_whose_newer_value_is_removed_is_not_delivered_for_it() {
    let (queue, _time) = timed_lists(|builder| builder);
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    queue.put("a", vec![2]);
    assert_eq!(queue.remove("a"), Some(vec![2]));
    assert_eq!(queue.state(&"a"), Some(State::Processing));
    // Nothing ends its back-off.
    assert_eq!(item.retry_after(HOUR), Added::Delayed);
    assert_eq!((queue.len(), queue.state(&"a")), (0, Some(State::Idle)));
    // An add without a value stays.
    queue.put("b", vec![3]);
    let item = queue.get().unwrap();
    queue.add("b");
    assert_eq!(queue.remove("b"), None);
    assert_eq!(queue.state(&"b"), Some(State::Dirty));
    assert_eq!(item.retry_after(HOUR), Added::Delayed);
    assert_eq!(deliveries(&queue), [("b", vec![3])]);
    // After a shut-down the delivery is counted, and ends without a value.
    queue.put("c", vec![4]);
    let item = queue.get().unwrap();
    queue.put("c", vec![5]);
    queue.shut_down();
    assert_eq!(queue.remove("c"), Some(vec![5]));
    item.done();
    assert!(queue.get().is_none());
    assert!(queue.drain_timeout(Duration::ZERO).is_finished());
}

#[test] // V2
fn clear_drops_what_is_queued_and_nothing_else() {
    let alive = Alive::default();
    in_all_states(&alive, |queue| {
        assert_eq!(queue.clear(), 2);
        assert_eq!(alive.count(), 6); // key 1 twice, and key 2
        // A key without a value is no key.
        queue.add(4);
        assert_eq!(queue.clear(), 0);
        assert!(queue.is_empty());
        queue.put(4, vec![alive.of(0)]);
        assert_eq!(queue.clear(), 1);
    });
    assert_eq!(alive.count(), 0);
}

#[test] // V1 V2
fn values_that_are_merged_replaced_or_taken_are_dropped_once() {
    let alive = Alive::default();
    let queue: Queue = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .merge(merge::latest)
        .build()
        .unwrap();
    queue.put(1, vec![alive.of(0)]);
    queue.put(1, vec![alive.of(0)]);
    assert_eq!(alive.count(), 1);
    let mut item = queue.get().unwrap();
    queue.put(1, vec![alive.of(0)]);
    *item.value_mut() = vec![alive.of(0)];
    assert_eq!(alive.count(), 2);
    let _ = item.retry(); // the newer one is kept
    assert_eq!(alive.count(), 1);
    drop(queue.get().unwrap().take());
    assert_eq!(alive.count(), 0);
}
