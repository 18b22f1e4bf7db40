//! Values merge while they wait, in the order of the puts, and a delivery takes what is there (V1, V2).

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use super::{assert_nothing_delivered, deliveries, lists, tracked};
use crate::common::{Config, with_queues};
use keyqueue::{Added, WorkQueue, merge};

/// A queue of lists with every setting of the configuration but its hash bits.
fn configured(config: &Config) -> WorkQueue<u32, Vec<u32>> {
    let mut builder = WorkQueue::builder();
    if let Some(shards) = config.shards {
        builder = builder.shards(shards);
    }
    if let Some(ring) = config.ring {
        builder = builder.ring(ring);
    }
    builder.merge(merge::append).build().unwrap()
}

#[test] // V1
fn every_way_to_put_merges_in_the_order_of_the_calls() {
    let queue: WorkQueue<String, Vec<u32>> = lists();
    let key = || String::from("a");
    let handle = queue.handle(key());
    assert_eq!(queue.entry_ref("a").put(vec![0]), Added::Queued);
    assert_eq!(queue.put(key(), vec![1]), Added::Merged);
    assert_eq!(
        queue.entry(key()).update(|list| list.push(2)),
        Added::Merged
    );
    assert_eq!(handle.put(vec![3]), Added::Merged);
    let put_by_handle = |value| {
        let (entry, receipt) = handle.entry().tracked();
        assert_eq!(entry.put(value), Added::Merged);
        receipt
    };
    let receipts = [tracked(&queue, key(), vec![4]), put_by_handle(vec![5])];
    assert_eq!(
        queue.entry(key()).after(Duration::ZERO).put(vec![6]),
        Added::Merged
    );
    assert_eq!(
        handle.entry().after(Duration::ZERO).put(vec![7]),
        Added::Merged
    );
    assert_eq!(queue.entry_ref("a").put(vec![8]), Added::Merged);
    assert_eq!(queue.entry(key()).try_put(vec![9]), Ok(Added::Merged));
    let item = queue.get().unwrap();
    assert_eq!(*item.value(), (0..10).collect::<Vec<_>>());
    item.done();
    assert!(receipts.iter().all(|receipt| receipt.ended().is_some()));
    assert_nothing_delivered(&queue);
}

#[test] // V1
fn the_first_put_of_every_kind_makes_the_key_known() {
    let queue: WorkQueue<String, Vec<u32>> = lists();
    assert_eq!(queue.put("put".into(), vec![1]), Added::Queued);
    assert_eq!(queue.entry_ref("borrowed").put(vec![2]), Added::Queued);
    assert_eq!(
        queue.entry("update".into()).update(|list| list.push(3)),
        Added::Queued
    );
    let (entry, _receipt) = queue.entry_ref("tracked").tracked();
    assert_eq!(entry.put(vec![4]), Added::Queued);
    assert_eq!(
        queue.handle(String::from("handle")).put(vec![5]),
        Added::Queued
    );
    let values: Vec<_> = deliveries(&queue)
        .into_iter()
        .flat_map(|(_, list)| list)
        .collect();
    assert_eq!(values, [1, 2, 3, 4, 5]);
}

#[test] // V1 V2
fn a_value_goes_with_the_next_delivery_in_every_state_and_configuration() {
    with_queues(|config| {
        let queue = configured(config);
        for key in 0..5 {
            assert_eq!(queue.put(key, vec![1]), Added::Queued);
            assert_eq!(queue.put(key, vec![2]), Added::Merged);
        }
        for key in 0..5 {
            let item = queue.get().unwrap();
            assert_eq!((*item.key(), &item.value()[..]), (key, &[1, 2][..]));
            assert_eq!(queue.put(key, vec![3]), Added::Deferred);
            assert_eq!(queue.put(key, vec![4]), Added::Merged);
            assert_eq!(*item.value(), [1, 2], "of this delivery");
            drop(item);
        }
        let again = (0..5).map(|key| (key, vec![3, 4])).collect::<Vec<_>>();
        assert_eq!(deliveries(&queue), again);
        assert_nothing_delivered(&queue);
    });
}

#[test] // V1
fn the_given_functions_merge() {
    let latest = WorkQueue::builder().merge(merge::latest).build().unwrap();
    let sum = WorkQueue::builder().merge(merge::sum).build().unwrap();
    for n in 1..=3_usize {
        latest.put("a", n);
        sum.put("a", n);
    }
    assert_eq!(deliveries(&latest), [("a", 3)]);
    assert_eq!(deliveries(&sum), [("a", 6)]);

    fn appended<C: Send + Clone + Extend<T> + IntoIterator<Item = T> + 'static, T: 'static>(
        values: [C; 2],
    ) -> C {
        let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
        values
            .into_iter()
            .for_each(|value| _ = queue.put("a", value));
        deliveries(&queue).remove(0).1
    }
    assert_eq!(appended([vec![1_u32], vec![2]]), [1, 2]);
    assert_eq!(appended([VecDeque::from([1]), VecDeque::from([2])]), [1, 2]);
    assert_eq!(
        appended([HashSet::from([1]), HashSet::from([1, 2])]).len(),
        2
    );
    let maps = [BTreeMap::from([(1, 1), (2, 1)]), BTreeMap::from([(2, 2)])];
    assert_eq!(appended(maps), BTreeMap::from([(1, 1), (2, 2)]));
}

#[test] // V2
fn a_key_that_is_added_without_a_value_is_not_delivered() {
    let queue = lists::<&str>();
    assert_eq!(queue.add("a"), Added::Queued);
    assert_eq!(queue.add("a"), Added::Merged);
    assert_eq!(queue.len(), 1);
    queue.put("b", vec![1]);
    let item = queue.get().unwrap();
    assert_eq!(*item, "b");
    assert_eq!(queue.state(&"a"), None);

    // Nor while it is processing, or by a handle; and a value that comes is delivered with it.
    assert_eq!(queue.add("b"), Added::Deferred);
    item.done();
    assert_nothing_delivered(&queue);
    let handle = queue.handle("a");
    assert_eq!(handle.add(), Added::Queued);
    assert_eq!(handle.put(vec![2]), Added::Merged);
    assert_eq!(deliveries(&queue), [("a", vec![2])]);
    assert_eq!(handle.add(), Added::Queued);
    assert!(queue.try_get_batch(10).is_err());
    assert!(queue.shut_down().is_nothing());
    assert!(queue.get().is_none());
}

#[test] // V2
fn a_waiting_getter_passes_over_keys_without_values() {
    let _watchdog = crate::common::watchdog(60);
    let queue = lists::<&str>();
    std::thread::scope(|scope| {
        let getter = scope.spawn(|| queue.get().map(|item| item.value().clone()));
        crate::common::eventually("the getter waits", || crate::common::waiting(&queue) == 1);
        queue.add("a");
        crate::common::eventually("it found nothing", || queue.is_empty());
        queue.put("a", vec![1]);
        assert_eq!(getter.join().unwrap(), Some(vec![1]));
    });
}

#[test] // V2
fn a_batch_has_the_value_of_each_key() {
    let queue = lists::<&str>();
    for (key, n) in [("a", 1), ("b", 2), ("a", 3)] {
        queue.put(key, vec![n]);
    }
    queue.add("c");
    let batch = queue.get_batch(10).unwrap();
    let values: Vec<_> = batch.iter().map(|item| item.value().clone()).collect();
    assert_eq!(values, [vec![1, 3], vec![2]]);
    for mut item in batch {
        item.value_mut().push(9);
        assert_eq!(item.take().unwrap().last(), Some(&9));
        assert_eq!(item.take(), None);
    }
    assert_nothing_delivered(&queue);
}
