//! Groups that take turns (G1 to G6).

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built, secs};
use crate::common::{Task, eventually, scaled, take_all, watchdog};
use keyqueue::limiter::NoLimit;
use keyqueue::worker::{Outcome, Workers};
use keyqueue::{Added, Builder, DrainEnd, MockClock, WorkQueue, merge};

/// A group, and a number in it.
type Key = (&'static str, u32);
type Queue = WorkQueue<Key>;

fn grouped(set: impl FnOnce(Builder<Key, NoLimit>) -> Builder<Key, NoLimit>) -> (Queue, MockClock) {
    built(|builder| set(builder.group_by(|key: &Key| key.0)))
}

fn turns() -> Queue {
    grouped(|builder| builder).0
}

fn keys(group: &'static str, numbers: std::ops::Range<u32>) -> impl Iterator<Item = Key> {
    numbers.map(move |number| (group, number))
}

/// The groups of the next deliveries, each done before the next.
fn groups_of(queue: &Queue, n: usize) -> Vec<&'static str> {
    queue.try_iter().take(n).map(|item| item.0).collect()
}

#[test] // G1
fn groups_take_turns() {
    let queue = turns();
    queue.add_all(
        keys("a", 0..3)
            .chain(keys("b", 0..1))
            .chain(keys("c", 0..2)),
    );
    assert_eq!(groups_of(&queue, 9), ["a", "b", "c", "a", "c", "a"]);
    // A group that comes again is last.
    queue.add_all(keys("a", 0..2).chain(keys("b", 0..2)));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    queue.add_all(keys("c", 0..1));
    assert_eq!(groups_of(&queue, 9), ["b", "a", "c", "b"]);
}

#[test] // G1
fn a_million_keys_of_one_group_delay_another_by_one_delivery() {
    let queue = turns();
    queue.add_all(keys("noisy", 0..scaled(1_000_000) as u32));
    for number in 0..100 {
        queue.add(("quiet", number));
        let order = groups_of(&queue, 2);
        assert!(order.contains(&"quiet"), "{order:?}");
    }
}

#[test] // G1
fn over_any_window_two_groups_differ_by_one_turn() {
    for weight in [1, 3] {
        let (queue, _) = grouped(|builder| builder.group_weight(move |_: &&str| weight));
        let names = ["a", "b", "c", "d", "e"];
        for name in names {
            queue.add_all(keys(name, 0..200));
        }
        let order = groups_of(&queue, 500);
        let turn = weight as usize;
        for length in 1..100 {
            for window in order.windows(length) {
                let count = |name| window.iter().filter(|group| **group == name).count();
                let counts = names.map(count);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= turn, "{counts:?} in {length} with {weight}");
            }
        }
    }
}

#[test] // G1
fn a_group_has_its_weight_in_keys_a_turn() {
    let weight = |group: &&str| if *group == "a" { 3 } else { 0 };
    let (queue, _) = grouped(|builder| builder.group_weight(weight));
    queue.add_all(keys("a", 0..6).chain(keys("b", 0..3)));
    assert_eq!(
        groups_of(&queue, 9),
        ["a", "a", "a", "b", "a", "a", "a", "b", "b"]
    );
    // A turn that was cut short is over.
    queue.add_all(keys("a", 0..1).chain(keys("b", 0..2)));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    queue.add_all(keys("a", 0..9));
    assert_eq!(groups_of(&queue, 6), ["b", "a", "a", "a", "b", "a"]);
}

#[test] // G1 C2 C3 C5
fn a_key_keeps_its_promises_in_its_group() {
    let queue = turns();
    assert_eq!(queue.add(("a", 1)), Added::Queued);
    assert_eq!(queue.add(("a", 1)), Added::Merged);
    queue.add_all(keys("b", 0..2));
    let item = queue.try_get().unwrap();
    assert_eq!(queue.add(("a", 1)), Added::Deferred);
    assert_eq!((queue.len(), queue.is_empty()), (2, false));
    drop(item);
    assert_eq!(take_all(&queue), [("b", 0), ("a", 1), ("b", 1)]);
    assert_eq!((queue.len(), queue.is_empty()), (0, true));
}

#[test] // G2
fn a_limit_holds_and_delays_no_other_group() {
    let (queue, _) = grouped(|builder| builder.group_limit(2));
    queue.add_all(keys("a", 0..5).chain(keys("b", 0..1)));
    let mut items: Vec<_> = queue.try_iter().take(9).collect();
    let held: Vec<_> = items.iter().map(|item| item.0).collect();
    assert_eq!(held, ["a", "b", "a"]);
    assert!(queue.try_get().is_err());
    assert_eq!(queue.len(), 3);
    // One that is done makes place for the next, also for one that waits.
    let mut task = Task::waiting(Box::pin(queue.get_async()));
    items.remove(1).done(); // "b"
    assert_eq!(task.wakes(), 0);
    items.remove(0).done();
    assert_eq!(task.wakes(), 1);
    let next = task.output().unwrap();
    assert_eq!(*next, ("a", 2));
    assert!(queue.try_get().is_err());
    // A dirty key that comes back is one that is done.
    queue.add(("a", 2));
    next.done();
    assert_eq!(*queue.try_get().unwrap(), ("a", 3));
}

#[test] // G2
fn a_limit_holds_for_batches_tasks_and_threads_at_every_moment() {
    let _watchdog = watchdog(120);
    const LIMIT: usize = 3;
    let builder = WorkQueue::builder().group_by(|key: &u64| key % 4);
    let queue = builder.group_limit(LIMIT).build().unwrap();
    let in_flight: [AtomicUsize; 4] = Default::default();
    let begin = |key: u64| {
        let group = &in_flight[(key % 4) as usize];
        let before = group.fetch_add(1, Ordering::Relaxed);
        assert!(before < LIMIT, "{before} of group {}", key % 4);
    };
    let end = |key: u64| _ = in_flight[(key % 4) as usize].fetch_sub(1, Ordering::Relaxed);
    let done = AtomicUsize::new(0);
    let keys = scaled(40_000) as u64;
    thread::scope(|scope| {
        for worker in 0..4 {
            let (queue, done, begin, end) = (&queue, &done, &begin, &end);
            scope.spawn(move || {
                loop {
                    let batch: Vec<_> = match worker {
                        0 => queue.get_batch(5).into_iter().flatten().collect(),
                        1 => pollster::block_on(queue.get_async()).into_iter().collect(),
                        _ => queue.get().into_iter().collect(),
                    };
                    if batch.is_empty() {
                        return;
                    }
                    batch.iter().for_each(|item| begin(**item));
                    for item in batch {
                        end(*item);
                        done.fetch_add(1, Ordering::Relaxed);
                        if *item % 7 == 0 && done.load(Ordering::Relaxed) % 3 == 0 {
                            item.retry();
                        }
                    }
                }
            });
        }
        (0..keys).for_each(|key| _ = queue.add(key));
        queue.shut_down_with_drain();
    });
    assert!(done.into_inner() >= keys as usize);
}

#[test] // G2
fn an_item_that_is_dropped_by_a_panic_makes_place() {
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..2));
    let worker = std::panic::AssertUnwindSafe(|| {
        let _item = queue.get();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(std::panic::catch_unwind(worker).is_err());
    assert_eq!(*queue.try_get().unwrap(), ("a", 1));
}

/// A group that counts how many there are.
#[derive(Debug)]
struct Counted(u64, Arc<()>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted(self.0, Arc::clone(&self.1))
    }
}

#[test] // G3
fn groups_without_keys_are_forgotten() {
    let alive = Arc::new(());
    let count = Arc::clone(&alive);
    let (queue, _time) =
        built(move |builder| builder.group_by(move |key: &u64| Counted(*key, Arc::clone(&count))));
    let keys = scaled(100_000) as u64;
    for key in 0..keys {
        queue.add(key);
        drop(queue.try_get().unwrap());
    }
    let left = Arc::strong_count(&alive);
    assert!(left < 20_000, "{left} of {keys} groups are left");
    queue.add(0);
    queue.shrink();
    let item = queue.try_get().unwrap();
    queue.shrink();
    assert_eq!(Arc::strong_count(&alive), 3, "a group with a key in flight");
    drop(item);
    queue.shrink();
    assert_eq!(Arc::strong_count(&alive), 2);
}

#[test] // G3 G6
fn a_hold_and_an_empty_bucket_are_not_forgotten_with_the_last_key() {
    let (queue, time) = grouped(|builder| builder.group_rate(1.0, 1));
    queue.add(("a", 1));
    drop(queue.try_get().unwrap());
    queue.hold_group(&"b", HOUR);
    queue.shrink();
    queue.add_all([("a", 2), ("b", 1)]);
    assert!(queue.try_get().is_err());
    time.advance(secs(1));
    assert_eq!(take_all(&queue), [("a", 2)]);
    queue.shrink();
    time.advance(HOUR);
    assert_eq!(take_all(&queue), [("b", 1)]);
    time.advance(HOUR);
    assert!(queue.try_get().is_err());
    queue.shrink();
    assert!(queue.groups::<&str>().is_empty());
}

#[test] // G4 P1 P2 P3
fn a_group_has_levels() {
    let (queue, _) = grouped(|builder| builder.levels(3).starvation_limit(3));
    for number in 0..4 {
        queue.add_at(2, ("a", number));
    }
    queue.add_at(1, ("b", 0));
    queue.add_at(0, ("a", 10));
    assert_eq!(queue.len_by_level(), [1, 1, 4]);
    // A key that becomes more urgent passes the others of its group.
    assert_eq!(queue.add_at(1, ("a", 3)), Added::Merged);
    assert_eq!(queue.add_at(2, ("a", 3)), Added::Merged);
    assert_eq!(queue.len_by_level(), [1, 2, 3]);
    let item = queue.try_get().unwrap();
    assert_eq!((*item, item.level()), (("a", 10), 0));
    drop(item);
    let order = [(); 4].map(|()| {
        let item = queue.try_get().unwrap();
        (*item, item.level())
    });
    assert_eq!(
        order,
        [(("b", 0), 1), (("a", 3), 1), (("a", 0), 2), (("a", 1), 2)]
    );
    assert_eq!(take_all(&queue), [("a", 2)]);
    // No level starves, in its group.
    (0..9).for_each(|number| _ = queue.add_at(0, ("a", number)));
    queue.add_at(2, ("a", 20));
    queue.add_at(1, ("a", 21));
    let order: Vec<_> = take_all(&queue).into_iter().map(|key| key.1).collect();
    assert_eq!(order, [0, 1, 21, 2, 3, 20, 4, 5, 6, 7, 8]);
}

#[test] // G4 P4
fn a_retry_keeps_its_level_in_its_group() {
    let (queue, _) = grouped(|builder| builder.levels(3));
    queue.add_at(0, ("a", 1));
    let item = queue.try_get().unwrap();
    queue.add_at(1, ("a", 2));
    assert_eq!(item.retry(), Added::Deferred);
    let item = queue.try_get().unwrap();
    assert_eq!((*item, item.level()), (("a", 1), 0));
}

#[test] // G5
fn a_rate_holds_for_each_group_and_delays_no_other() {
    let (queue, time) = grouped(|builder| builder.group_rate(1.0, 2));
    queue.add_all(keys("a", 0..4).chain(keys("b", 0..1)));
    assert_eq!(groups_of(&queue, 9), ["a", "b", "a"]);
    time.advance(Duration::from_millis(999));
    assert!(queue.try_get().is_err());
    // Adds meanwhile merge.
    assert_eq!(queue.add(("a", 2)), Added::Merged);
    time.advance(Duration::from_millis(1));
    assert_eq!(take_all(&queue), [("a", 2)]);
    time.advance(secs(9));
    queue.add_all(keys("a", 4..9));
    // The bucket holds two tokens, however long it was.
    assert_eq!(take_all(&queue), [("a", 3), ("a", 4)]);
}

#[test] // G5
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn a_getter_that_waits_is_woken_when_the_token_is_there() {
    let _watchdog = watchdog(60);
    let builder = WorkQueue::builder().group_by(|key: &Key| key.0);
    let queue = builder.group_rate(200.0, 1).build().unwrap();
    queue.add_all(keys("a", 0..5));
    // The timer's thread wakes it, no other add.
    for number in 0..5 {
        assert_eq!(*queue.get().unwrap(), ("a", number));
    }
    queue.add_all(keys("a", 0..5));
    for number in 0..5 {
        let item = pollster::block_on(queue.get_async()).unwrap();
        assert_eq!(*item, ("a", number));
    }
}

#[test] // G6
fn a_group_is_held_until_its_time_and_the_others_go_on() {
    let (queue, time) = grouped(|builder| builder);
    queue.add_all(keys("a", 0..2).chain(keys("b", 0..1)));
    assert!(queue.hold_group(&"a", secs(30)));
    assert_eq!(groups_of(&queue, 9), ["b"]);
    assert_eq!(queue.add(("a", 0)), Added::Merged);
    assert_eq!(queue.add(("a", 9)), Added::Queued);
    assert_eq!(queue.len(), 3);
    let groups = queue.groups::<&str>();
    assert_eq!((groups[0].group, groups[0].queued), ("a", 3));
    assert_eq!(groups[0].held_for, Some(secs(30)));
    time.advance(secs(29));
    assert!(queue.try_get().is_err());
    time.advance(secs(1));
    assert_eq!(take_all(&queue), [("a", 0), ("a", 1), ("a", 9)]);
}

#[test] // G6
fn a_hold_can_be_replaced_and_released() {
    let (queue, time) = grouped(|builder| builder);
    queue.hold_group(&"a", HOUR); // before it has keys
    queue.add_all(keys("a", 0..3));
    assert!(queue.try_get().is_err());
    queue.hold_group(&"a", secs(2)); // a shorter one counts
    time.advance(secs(2));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    queue.hold_group(&"a", HOUR);
    let mut task = Task::waiting(Box::pin(queue.get_async()));
    assert!(queue.release_group(&"a"));
    assert_eq!(task.wakes(), 1);
    assert_eq!(*task.output().unwrap(), ("a", 1));
    // Again while its earlier time is still waited for.
    queue.hold_group(&"a", 2 * HOUR);
    time.advance(HOUR);
    assert!(queue.try_get().is_err());
    time.advance(HOUR);
    assert_eq!(groups_of(&queue, 9), ["a"]);
}

#[test] // G6
fn another_type_of_group_is_held_by_nobody() {
    let queue = turns();
    queue.add(("a", 1));
    assert!(!queue.hold_group(&7_u32, HOUR));
    assert!(!queue.release_group(&String::from("a")));
    assert!(queue.groups::<u32>().is_empty());
    assert_eq!(take_all(&queue), [("a", 1)]);
    let plain = WorkQueue::<u32>::new();
    assert!(!plain.hold_group(&"a", HOUR));
    assert!(plain.groups::<&str>().is_empty());
}

#[test] // G6
fn a_worker_holds_the_group_of_its_key() {
    let (queue, time) = grouped(|builder| builder);
    queue.add_all(keys("a", 0..2).chain(keys("b", 0..1)));
    let seen = std::sync::Mutex::new(Vec::new());
    Workers::new(&queue)
        .threads(1)
        .run(|key| {
            let mut seen = seen.lock().unwrap();
            seen.push(*key);
            match seen.len() {
                1 => Outcome::HoldGroup(secs(30)),
                2 => {
                    time.advance(secs(30));
                    queue.fire_due();
                    Outcome::Done
                }
                3 => Outcome::Done,
                _ => {
                    queue.shut_down();
                    Outcome::Done
                }
            }
        })
        .unwrap();
    // Its own key comes back, behind the other of its group.
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen, [("a", 0), ("b", 0), ("a", 1), ("a", 0)]);
}

#[test] // G6
fn without_groups_a_worker_puts_off_the_key() {
    let (queue, time) = built::<&str, _>(|builder| builder);
    queue.add("a");
    let runs = Cell::new(0);
    let runs_of = AtomicUsize::new(0);
    Workers::new(&queue)
        .threads(1)
        .run(|_| match runs_of.fetch_add(1, Ordering::Relaxed) {
            0 => {
                queue.add("b");
                Outcome::HoldGroup(secs(30))
            }
            1 => {
                time.advance(secs(30));
                assert_eq!(queue.fire_due(), 1);
                Outcome::Done
            }
            _ => {
                queue.shut_down();
                Outcome::Done
            }
        })
        .unwrap();
    runs.set(runs_of.into_inner());
    assert_eq!(runs.get(), 3);
}

#[test] // G1
fn a_panic_of_the_users_function_loses_no_key() {
    let (queue, _) = built(|builder| {
        builder.group_by(|key: &u32| {
            assert!(key.is_multiple_of(2), "odd");
            key % 4
        })
    });
    let mut queued = 0;
    for key in 0..10 {
        queued += usize::from(queue.add(key) == Added::Queued);
    }
    assert_eq!((queued, queue.len()), (10, 10));
    let mut keys = take_all(&queue);
    keys.sort_unstable();
    assert_eq!(keys, (0..10).collect::<Vec<_>>());
    let groups = queue.groups::<u32>();
    assert!(groups.is_empty(), "{groups:?}");
}

#[test] // G1 S1 S4 S5
fn shut_downs_and_drains_deliver_or_discard_what_groups_have() {
    let _watchdog = watchdog(60);
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..3).chain(keys("b", 0..1)));
    thread::scope(|scope| {
        scope.spawn(|| queue.iter().for_each(drop));
        assert_eq!(queue.shut_down_with_drain().end, DrainEnd::Finished);
    });
    // What is discarded waits for nothing.
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..3).chain(keys("b", 0..1)));
    queue.hold_group(&"b", HOUR);
    let item = queue.try_get().unwrap();
    let left = queue.shut_down_now();
    assert_eq!((left.queued, left.processing), (3, 1));
    assert!(queue.get().is_none());
    drop(item);
    assert_eq!(queue.len(), 0);
}

#[test] // G6 S4
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn a_drain_waits_for_a_group_that_is_held() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::builder()
        .group_by(|key: &Key| key.0)
        .build()
        .unwrap();
    queue.add_all(keys("a", 0..3));
    queue.hold_group(&"a", Duration::from_millis(30));
    thread::scope(|scope| {
        let worker = scope.spawn(|| queue.iter().count());
        assert_eq!(queue.shut_down_with_drain().end, DrainEnd::Finished);
        assert_eq!(worker.join().unwrap(), 3);
    });
}

#[test] // G1 C9
fn clear_takes_what_may_not_be_delivered_yet() {
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..3).chain(keys("b", 0..1)));
    let item = queue.try_get().unwrap(); // "a" is at its limit
    assert_eq!(queue.clear(), 3);
    assert!(queue.is_empty());
    item.done();
    queue.add(("a", 1));
    assert_eq!(*queue.try_get().unwrap(), ("a", 1));
}

#[test] // G1 V1
fn keys_with_values_take_turns() {
    let builder = WorkQueue::builder().merge(merge::append);
    let queue = builder
        .group_by(|key: &keyqueue::Valued<Key, Vec<u32>>| key.0)
        .build()
        .unwrap();
    queue.put(("a", 1), vec![1]);
    queue.put(("a", 2), vec![2]);
    queue.put(("b", 1), vec![3]);
    queue.put(("a", 2), vec![4]);
    let order: Vec<_> = queue.try_iter().map(|item| item.value().clone()).collect();
    assert_eq!(order, [vec![1], vec![3], vec![2, 4]]);
}

#[test] // G1 B1 B2
fn groups_and_a_bound_work_together() {
    let (queue, _) = grouped(|builder| builder.capacity(2));
    queue.try_add(("a", 1)).unwrap();
    queue.try_add(("a", 2)).unwrap();
    assert!(queue.try_add(("b", 1)).is_err());
    let mut task = Task::waiting(Box::pin(queue.add_async(("b", 1))));
    assert_eq!(groups_of(&queue, 1), ["a"]);
    assert_eq!(task.output(), Added::Queued);
    assert_eq!(groups_of(&queue, 9), ["a", "b"]);
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let of = |set: fn(Builder<u64>) -> Builder<u64>| {
        set(WorkQueue::builder()).build().unwrap_err().field()
    };
    let by = |builder: Builder<u64>| builder.group_by(|key| *key);
    assert_eq!(of(|builder| builder.group_limit(1)), "group_limit");
    assert_eq!(of(|builder| builder.group_rate(1.0, 1)), "group_rate");
    assert_eq!(
        of(|builder| builder.group_weight(|_: &u64| 1)),
        "group_weight"
    );
    assert_eq!(of(|builder| builder.dispatch_rate(0.0, 1)), "dispatch_rate");
    assert_eq!(of(|builder| builder.dispatch_rate(1.0, 0)), "dispatch_rate");
    assert_eq!(
        of(|builder| builder.min_interval(Duration::ZERO)),
        "min_interval"
    );
    let error = by(WorkQueue::builder()).group_limit(0).build().unwrap_err();
    assert_eq!(error.field(), "group_limit");
    let error = by(WorkQueue::builder()).group_rate(f64::NAN, 1).build();
    assert_eq!(error.unwrap_err().field(), "group_rate");
    let error = by(WorkQueue::builder()).group_weight(|_: &u32| 1).build();
    assert_eq!(error.unwrap_err().field(), "group_weight");
    let error = by(WorkQueue::builder()).merge(merge::sum::<u64>).build();
    assert_eq!(error.unwrap_err().field(), "group_by");
}

#[test] // G1
fn handles_delays_and_retries_go_to_their_groups() {
    let (queue, time) = grouped(|builder| builder);
    let handle = queue.handle(("a", 1));
    assert_eq!((handle.add(), handle.add()), (Added::Queued, Added::Merged));
    queue.add_all(keys("a", 2..3));
    queue.add_after(("b", 1), secs(1));
    time.advance(secs(1));
    queue.fire_due();
    let item = queue.try_get().unwrap();
    item.retry();
    let mut counts = HashMap::new();
    for group in groups_of(&queue, 9) {
        *counts.entry(group).or_insert(0) += 1;
    }
    assert_eq!(counts, HashMap::from([("a", 2), ("b", 1)]));
    assert_eq!(queue.counts().queued, 0);
    eventually("nothing is left", || queue.is_empty());
}
