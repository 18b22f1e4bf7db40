//! Many values at a time keep every promise of one at a time (C14).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use keyqueue::{WorkQueue, merge};

/// The values of what is queued, in the order of the deliveries.
fn take_all<V: Clone + Sync, S>(queue: &WorkQueue<u32, V, S>) -> Vec<(u32, V)> {
    let next = || {
        let item = queue.try_get().ok()?;
        Some((*item.key(), item.value().clone()))
    };
    std::iter::from_fn(next).collect()
}

#[test] // V1, C1, C14
fn values_are_merged_and_keys_delivered_in_the_order_of_the_call() {
    for shards in [2, 8, 256] {
        let builder = WorkQueue::<u32>::builder().shards(shards).ring(16);
        let queue = builder.merge(merge::append).build().unwrap();
        for _ in 0..2 {
            let put = (0..1000_u32).map(|n| (n % 300, vec![n]));
            assert_eq!(queue.put_all(put), 300);
            let of = |key| (key..1000).step_by(300).collect::<Vec<_>>();
            assert!(
                take_all(&queue)
                    .into_iter()
                    .eq((0..300).map(|key| (key, of(key))))
            );
        }
    }
}

#[test] // V2, C4, C14
fn values_of_keys_that_are_processed_belong_to_the_next_delivery() {
    let queue = WorkQueue::builder().merge(merge::sum).build().unwrap();
    queue.put_all((0..50_u32).map(|key| (key, 1_u64)));
    let batch = queue.get_batch(45).unwrap();
    assert_eq!((batch.len(), queue.len()), (45, 5));
    let rest = queue.get_batch(100).unwrap();
    let batch: keyqueue::Batch<'_, _, _> = batch.into_iter().chain(rest).collect();
    assert!(batch.iter().map(|item| *item.key()).eq(0..50));
    assert_eq!(queue.put_all((0..60).map(|key| (key, 10))), 10);
    assert!(batch.iter().all(|item| *item.value() == 1));
    batch.done();
    let expected = (50..60).chain(0..50).map(|key| (key, 10));
    assert!(take_all(&queue).into_iter().eq(expected));
}

#[test] // C14: in queues that do more for each key, in which they are put one by one.
fn queues_with_levels_groups_times_or_bounds_take_them_all() {
    let builders = [
        WorkQueue::<u32>::builder().levels(3),
        WorkQueue::builder().group_by(|key: &u32| key % 4),
        WorkQueue::builder().name("many"),
        WorkQueue::builder().capacity(10),
        WorkQueue::builder().supersede_delays(true),
    ];
    for builder in builders {
        let queue = builder.merge(merge::sum).build().unwrap();
        assert_eq!(queue.put_all((0..200).map(|n| (n % 100, 1_u64))), 100);
        let mut batch = queue.get_batch(200).unwrap();
        batch.sort_by_key(|item| *item.key());
        assert!(
            batch
                .iter()
                .map(|item| (*item.key(), *item.value()))
                .eq((0..100).map(|key| (key, 2)))
        );
        drop(batch);
        assert_eq!(queue.counts().queued, 0);
    }
}

#[test] // C14
fn a_queue_without_values_adds_the_keys() {
    let queue = WorkQueue::<u32>::new();
    assert_eq!(queue.put_all((0..200).map(|key| (key, ()))), 200);
    assert_eq!(queue.len(), 200);
}

#[test] // C14
fn a_queue_that_is_shut_down_refuses_and_drops_them() {
    let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
    queue.put_all((0..40_u32).map(|key| (key, vec![key])));
    queue.shut_down();
    assert_eq!(queue.put_all((0..80).map(|key| (key, vec![key]))), 0);
    assert!(
        take_all(&queue)
            .into_iter()
            .eq((0..40).map(|key| (key, vec![key])))
    );
}

#[test] // V4, C14
fn a_panic_of_merge_in_the_middle_leaves_each_value_put_or_not_and_no_key_stuck() {
    struct Blown;
    for bad in (0..40_u32).step_by(if cfg!(miri) { 13 } else { 1 }) {
        let merges = AtomicU32::new(0);
        let merge = move |older: &mut Vec<u32>, newer: Vec<u32>| {
            if merges.fetch_add(1, Ordering::Relaxed) == bad {
                resume_unwind(Box::new(Blown));
            }
            older.extend(newer);
        };
        let queue = WorkQueue::builder()
            .shards(2)
            .ring(4)
            .merge(merge)
            .build()
            .unwrap();
        // Those from 20 on are known and idle.
        queue.put_all((20..40).map(|key| (key, vec![0])));
        drop(queue.get_batch(40));
        let items = (0..40)
            .chain(0..40)
            .enumerate()
            .map(|(n, key)| (key, vec![n as u32]));
        let end = catch_unwind(AssertUnwindSafe(|| {
            queue.put_all(items.collect::<Vec<_>>())
        }));
        assert!(end.is_err());
        let len = queue.len();
        let taken = take_all(&queue);
        assert_eq!(taken.len(), len, "a key is queued and has no entry");
        // All have their first value; those before the panic the second one, too.
        let expected = |key| {
            if key < bad {
                vec![key, key + 40]
            } else {
                vec![key]
            }
        };
        assert!(
            taken
                .into_iter()
                .eq((0..40).map(|key| (key, expected(key))))
        );
        assert_eq!(queue.put_all((0..40).map(|key| (key, vec![1]))), 40);
        assert_eq!(take_all(&queue).len(), 40);
    }
}

#[test] // S15, C14
fn what_is_left_over_is_dropped_when_the_keys_before_it_can_be_delivered() {
    let queue = WorkQueue::<u32>::builder()
        .merge(merge::latest)
        .build()
        .unwrap();
    let (sender, receiver) = mpsc::channel::<u32>();
    struct Outdated(mpsc::Receiver<u32>);
    impl Drop for Outdated {
        fn drop(&mut self) {
            // Without the delivery it would wait forever.
            assert_eq!(self.0.recv_timeout(Duration::from_secs(20)), Ok(0));
        }
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let item = queue.get().unwrap();
            sender.send(*item.key()).unwrap();
        });
        let outdated = Some(Outdated(receiver));
        queue.put_all([(0, None), (1, outdated), (1, None), (2, None)]);
    });
    assert_eq!(queue.len(), 2);
}
