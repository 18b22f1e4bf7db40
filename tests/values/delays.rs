//! Values that wait for a delay (V1 to V3, with D3 to D6).

use std::thread;

use super::{assert_nothing_delivered, deliveries, timed_lists};
use crate::common::timed::{HOUR, ms, secs};
use keyqueue::{Added, DelayPolicy, State};

#[test] // V1 D1
fn a_delayed_value_is_delivered_when_its_delay_ends() {
    let (queue, time) = timed_lists(|builder| builder);
    assert_eq!(queue.entry("a").after(secs(2)).put(vec![1]), Added::Delayed);
    let handle = queue.handle("a");
    assert_eq!(handle.entry().after(secs(1)).put(vec![2]), Added::Delayed);
    assert_eq!(queue.entry("a").after(secs(3)).put(vec![3]), Added::Delayed);
    assert_nothing_delivered(&queue);
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(deliveries(&queue), [("a", vec![1, 2, 3])]);
}

#[test] // V2
fn a_put_takes_the_delayed_value_with_it_and_nothing_is_left_for_the_delay() {
    let (queue, time) = timed_lists(|builder| builder);
    queue.entry("a").after(secs(1)).put(vec![1]);
    assert_eq!(queue.put("a", vec![2]), Added::Queued);
    assert_eq!(deliveries(&queue), [("a", vec![1, 2])]);
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!((queue.len(), queue.state(&"a")), (1, Some(State::Queued)));
    assert_nothing_delivered(&queue);
    assert_eq!((queue.len(), queue.state(&"a")), (0, None));

    // The other way round, and while the key is processing.
    queue.put("a", vec![3]);
    assert_eq!(queue.entry("a").after(secs(1)).put(vec![4]), Added::Delayed);
    let item = queue.get().unwrap();
    assert_eq!(*item.value(), [3, 4]);
    queue.entry("a").after(secs(1)).put(vec![5]);
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!((queue.len(), queue.state(&"a")), (0, Some(State::Dirty)));
    drop(item);
    assert_eq!(deliveries(&queue), [("a", vec![5])]);
}

#[test] // V2
fn a_plain_add_delivers_the_delayed_value_now() {
    let (queue, _time) = timed_lists(|builder| builder);
    queue.entry("a").after(secs(1)).put(vec![1]);
    assert_eq!(queue.add("a"), Added::Queued);
    assert_eq!(deliveries(&queue), [("a", vec![1])]);
}

#[test] // S5 S12 V2
fn a_shut_down_counts_no_delay_that_has_nothing_to_deliver() {
    // A put takes the value of the delay with it, before the shut-down or in the drain.
    for before in [true, false] {
        let (queue, _time) = timed_lists(|builder| builder);
        queue.entry("a").debounce(secs(1), HOUR).put(vec![1]);
        queue.put("a", vec![2]);
        if before {
            assert_eq!(deliveries(&queue), [("a", vec![1, 2])]);
        }
        thread::scope(|scope| {
            let drain = scope.spawn(|| queue.shut_down_with_drain());
            while let Some(item) = queue.get() {
                assert!(!before);
                assert_eq!(*item.value(), [1, 2]);
            }
            let left = drain.join().unwrap();
            assert!(left.is_nothing(), "{left}");
        });
        assert!(queue.shut_down().is_nothing());
        assert!(queue.take_left().is_empty());
    }

    // What the delay of a key in hand has to deliver is counted, unless the key is dirty as well.
    for (dirty, delayed) in [(false, 1), (true, 0)] {
        let (queue, _time) = timed_lists(|builder| builder);
        queue.put("a", vec![1]);
        let item = queue.get().unwrap();
        queue.entry("a").after(secs(1)).put(vec![2]);
        queue.entry("b").after(secs(1)).add();
        if dirty {
            queue.put("a", vec![3]);
        }
        assert_eq!(queue.shut_down().delayed, delayed);
        item.done();
        assert_eq!(deliveries(&queue).len(), usize::from(dirty));
        assert_eq!(queue.take_left().len(), delayed);
    }
}

#[test] // V2
fn an_ended_delay_without_a_value_neither_hides_keys_nor_holds_up_a_drain() {
    let (queue, time) = timed_lists(|builder| builder);
    for key in ["a", "b", "c"] {
        queue.entry(key).after(secs(1)).put(vec![1]);
        queue.put(key, vec![2]);
    }
    assert_eq!(deliveries(&queue).len(), 3);
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 3);
    queue.put("d", vec![3]);
    assert_eq!(queue.len(), 4);
    assert_eq!(queue.shut_down().queued, 4);
    assert_eq!(deliveries(&queue), [("d", vec![3])]);
    assert!(queue.get().is_none());
    assert!(queue.shut_down_with_drain().is_nothing());

    // The last of all, too.
    let (queue, time) = timed_lists(|builder| builder);
    queue.entry("a").after(secs(1)).put(vec![1]);
    queue.put("a", vec![2]);
    assert_eq!(deliveries(&queue).len(), 1);
    time.advance(secs(1));
    queue.fire_due();
    queue.shut_down();
    assert!(queue.get().is_none());
    assert!(queue.shut_down_with_drain().is_nothing());
}

#[test] // V2 D6
fn a_cancelled_delay_drops_its_value_unless_the_key_is_queued_too() {
    let (queue, time) = timed_lists(|builder| builder);
    queue.entry("a").after(secs(1)).put(vec![1]);
    assert!(queue.cancel(&"a") && !queue.cancel(&"a"));
    assert_eq!(queue.remove("a"), None);
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 0);
    queue.put("a", vec![2]);
    assert!(!queue.cancel(&"a"));
    assert_eq!(deliveries(&queue), [("a", vec![2])]);

    // Queued.
    queue.entry("a").after(secs(1)).put(vec![3]);
    queue.put("a", vec![4]);
    assert!(queue.cancel(&"a"));
    // Processing: the delayed value goes, that of the delivery stays.
    let mut item = queue.try_get().unwrap();
    assert_eq!(*item.value(), [3, 4]);
    queue.entry("a").after(secs(1)).put(vec![5]);
    assert!(queue.cancel(&"a"));
    assert_eq!(item.take(), Some(vec![3, 4]));
    // Dirty: it stays.
    queue.entry("a").after(secs(1)).put(vec![6]);
    queue.put("a", vec![7]);
    assert!(queue.cancel(&"a"));
    drop(item);
    assert_eq!(deliveries(&queue), [("a", vec![6, 7])]);
    assert!(!queue.cancel(&"unknown"));
}

#[test] // V1 D5
fn an_add_that_supersedes_the_delay_takes_its_value() {
    let (queue, time) = timed_lists(|builder| builder.supersede_delays(true));
    let handle = queue.handle("a");
    let adds: [&dyn Fn() -> Added; 4] = [
        &|| queue.put("a", vec![2]),
        &|| queue.entry_ref(&"a").put(vec![2]),
        &|| handle.put(vec![2]),
        &|| queue.entry("a").update(|list| list.push(2)),
    ];
    for add in adds {
        queue.entry("a").after(secs(1)).put(vec![1]);
        assert_eq!(add(), Added::Queued);
        assert!(!queue.cancel(&"a"), "the delay is gone");
        assert_eq!(deliveries(&queue), [("a", vec![1, 2])]);
        time.advance(secs(1));
        assert_eq!(queue.fire_due(), 0);
    }
    // A retry with a delay, superseded.
    queue.put("a", vec![1]);
    let _ = queue.get().unwrap().retry_after(secs(1));
    queue.add("a");
    assert_eq!(deliveries(&queue), [("a", vec![1])]);
}

#[test] // V1 D3
fn each_policy_keeps_one_delay_and_every_value() {
    for (policy, due) in [
        (DelayPolicy::Earliest, 1),
        (DelayPolicy::Latest, 3),
        (DelayPolicy::Replace, 2),
        (DelayPolicy::KeepFirst, 3),
    ] {
        let (queue, time) = timed_lists(|builder| builder.delay_policy(policy));
        for (n, delay) in [(1, 3), (2, 1), (3, 2)] {
            assert_eq!(
                queue.entry("a").after(secs(delay)).put(vec![n]),
                Added::Delayed
            );
        }
        time.advance(secs(due) - ms(1));
        assert_eq!(queue.fire_due(), 0, "{policy:?}");
        time.advance(ms(1));
        assert_eq!(queue.fire_due(), 1, "{policy:?}");
        assert_eq!(deliveries(&queue), [("a", vec![1, 2, 3])], "{policy:?}");
        time.advance(HOUR);
        assert_eq!(queue.fire_due(), 0);
    }
}

#[test] // V3 D4
fn a_delayed_retry_and_a_delayed_put_share_a_delivery() {
    let (queue, time) = timed_lists(|builder| builder);
    queue.put("a", vec![1]);
    let item = queue.get().unwrap();
    queue.entry("a").after(secs(5)).put(vec![2]);
    let _ = item.retry_after(secs(1));
    time.advance(secs(1));
    assert_eq!(queue.fire_due(), 1);
    assert_eq!(deliveries(&queue), [("a", vec![1, 2])]);
}

#[test] // V2 S5
fn a_drain_delivers_delayed_values_if_it_should() {
    let (queue, _time) = timed_lists(|builder| builder.drain_delays(true));
    queue.entry("a").after(HOUR).put(vec![1]);
    queue.entry("b").after(secs(1)).put(vec![2]);
    queue.put("b", vec![3]);
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        let mut values = Vec::new();
        while let Some(item) = queue.get() {
            values.push((*item.key(), item.value().clone()));
        }
        values.sort();
        assert_eq!(values, [("a", vec![1]), ("b", vec![2, 3])]);
        assert!(drain.join().unwrap().is_nothing());
    });
    assert_eq!(queue.entry("a").after(HOUR).put(vec![9]), Added::ShutDown);
    assert_eq!(queue.remove("a"), None);
}
