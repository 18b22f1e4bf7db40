//! Groups that leave: what they have waiting is taken back, and their end is waited for (G8).

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::{Key, Queue, grouped, keys};
use crate::common::timed::{HOUR, MS, secs};
use crate::common::{Task, figures, scaled, take_all, there, watchdog};
use keyqueue::{
    Added, Builder, Clock, Ended, Full, Left, LeftReason, MockClock, Receipt, State, WorkQueue,
    merge,
};

const ZERO: Duration = Duration::ZERO;

pub(super) type Lists = WorkQueue<Key, Vec<u32>>;

pub(super) fn lists(
    set: impl FnOnce(Builder<Key, Vec<u32>>) -> Builder<Key, Vec<u32>>,
) -> (Lists, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let builder = builder.group_by(|key: &Key| key.0).merge(merge::append);
    (set(builder).build().unwrap(), time)
}

/// What was taken back, by key.
pub(super) fn sorted<V>(left: Option<Vec<Left<Key, V>>>) -> Vec<(u32, Option<V>, LeftReason)> {
    let left = left.unwrap().into_iter();
    let mut left: Vec<_> = left
        .map(|left| (left.key.1, left.value, left.reason))
        .collect();
    left.sort_by_key(|(key, ..)| *key);
    left
}

#[test] // G8 B1 B5
fn what_a_group_has_waiting_is_taken_back_whatever_it_waits_for() {
    type Set = fn(Builder<Key>) -> Builder<Key>;
    let sets: [Set; 8] = [
        |builder| builder,
        |builder| builder.levels(3),
        |builder| builder.group_limit(1),
        |builder| builder.group_rate(1.0, 1),
        |builder| builder.dispatch_rate(1.0, 1),
        |builder| builder.min_interval(HOUR),
        |builder| builder.adds_wait_for_retries(true),
        |builder| builder.supersede_delays(true).timing(true),
    ];
    for (nth, set) in sets.into_iter().enumerate() {
        let (queue, time) = grouped(|builder| set(builder.capacity(8)));
        // One is held by a worker, and one has failed.
        queue.add(("a", 0));
        let item = queue.get().unwrap();
        time.advance(secs(1));
        queue.fire_due();
        queue.add(("a", 1));
        if let Ok(failed) = queue.try_get() {
            assert_eq!(failed.retry_after(HOUR), Added::Delayed);
        }
        queue.add_all(keys("a", 2..4));
        queue.add_all(keys("b", 0..2));
        queue.add_after(("a", 4), HOUR);
        queue.add_after(("b", 4), HOUR);
        if nth % 2 == 0 {
            assert!(queue.hold_group(&"a", HOUR));
        }
        let counts = queue.counts();
        let taken = sorted(queue.take_group(&"a"));
        let reason = |number| match number {
            // With a limit of one, it was never delivered.
            1 if nth == 2 => LeftReason::Queued,
            1 | 4 => LeftReason::Delayed,
            _ => LeftReason::Queued,
        };
        let expected: Vec<_> = (1..5)
            .map(|number| (number, None, reason(number)))
            .collect();
        assert_eq!(taken, expected, "{nth}");
        assert_eq!(queue.counts().queued, 2, "{nth} {counts:?}");
        assert_eq!((queue.counts().delayed, queue.counts().processing), (1, 1));
        assert_eq!(queue.state(&("a", 0)), Some(State::Processing));
        assert_eq!(sorted(queue.take_group(&"a")), []);
        // Their room is free again, and they can be added as before.
        for number in 0..5 {
            assert_eq!(
                queue.entry(("a", 5 + number)).try_add(),
                Ok(Added::Queued),
                "{nth}"
            );
        }
        assert_eq!(
            queue.entry(("b", 9)).try_add(),
            Err(Full(("b", 9))),
            "{nth}"
        );
        item.done();
        assert_eq!(sorted(queue.take_group(&"a")).len(), 5);
        assert_eq!(sorted(queue.take_group(&"b")).len(), 3);
        let counts = queue.counts();
        assert_eq!(
            (counts.queued, counts.processing, counts.delayed),
            (0, 0, 0)
        );
    }
}

#[test] // G8
fn a_key_that_is_queued_and_delayed_is_taken_back_once() {
    let (queue, _) = grouped(|builder| builder.capacity(2));
    queue.add_after(("a", 1), HOUR);
    queue.add(("a", 1));
    let taken = sorted(queue.take_group(&"a"));
    assert_eq!(taken, [(1, None, LeftReason::Queued)]);
    assert_eq!(queue.counts().delayed, 0);
    let fits = (5..).take_while(|number| queue.entry(("a", *number)).try_add().is_ok());
    assert_eq!(fits.count(), 2);
}

#[test] // G8 T2 C8
fn keys_that_wait_for_the_ends_of_their_intervals_are_taken_back_and_counted_no_more() {
    let (queue, time) = grouped(|builder| builder.min_interval(HOUR));
    for key in [("a", 1), ("b", 1)] {
        queue.add(key);
        queue.get().unwrap().done();
        queue.add(key);
    }
    let groups = queue.groups::<&str>();
    assert!(groups.iter().all(|group| group.queued == 1), "{groups:?}");
    assert_eq!(groups.len(), 2);
    queue.add_all([("a", 2), ("b", 2)]);
    assert_eq!(queue.len(), 4);
    let queued = LeftReason::Queued;
    assert_eq!(
        sorted(queue.take_group(&"a")),
        [(1, None, queued), (2, None, queued)]
    );
    assert_eq!(queue.len(), 2);
    assert_eq!(take_all(&queue), [("b", 2)]);
    // Its interval goes on.
    queue.add(("a", 1));
    assert!(queue.try_get().is_err());
    time.advance(HOUR);
    queue.fire_due();
    assert_eq!(take_all(&queue), [("a", 1), ("b", 1)]);
    assert_eq!(queue.len(), 0);
}

#[test] // G8 V2 V3
fn values_are_taken_back_with_their_keys_and_the_one_of_a_delivery_is_not() {
    for waits in [false, true] {
        let (queue, time) = lists(|builder| builder.adds_wait_for_retries(waits));
        let tracked = |key, value| {
            let (entry, receipt) = queue.entry(key).tracked();
            entry.put(value);
            receipt
        };
        // It has failed, and more has come.
        queue.put(("a", 1), vec![1]);
        assert_eq!(queue.get().unwrap().retry_after(HOUR), Added::Delayed);
        queue.put(("a", 1), vec![2]);
        // It is processed, and more has come.
        queue.put(("a", 2), vec![3]);
        // Without the setting key 1 is queued again, and first.
        let mut item = queue.get().unwrap();
        if !waits {
            assert_eq!(item.retry_after(ZERO), Added::Deferred);
            item = queue.get().unwrap();
        }
        assert_eq!(item.1, 2);
        let receipts = [
            tracked(("a", 2), vec![4]),
            tracked(("a", 3), vec![5]),
            tracked(("b", 1), vec![6]),
        ];
        // A delay without a value is none of it.
        queue.add_after(("a", 4), HOUR);
        let taken = sorted(queue.take_group(&"a"));
        let first = if waits {
            LeftReason::Delayed
        } else {
            LeftReason::Queued
        };
        let queued = LeftReason::Queued;
        assert_eq!(
            taken,
            [
                (1, Some(vec![1, 2]), first),
                (2, Some(vec![4]), queued),
                (3, Some(vec![5]), queued)
            ]
        );
        let ends = receipts.each_ref().map(Receipt::ended);
        assert_eq!(ends, [Some(Ended::Dropped), Some(Ended::Dropped), None]);
        assert_eq!(*item.value(), [3]);
        item.done();
        time.advance(HOUR);
        queue.fire_due();
        let rest = there(&queue).map(|item| *item.key()).collect::<Vec<_>>();
        assert_eq!(rest, [("b", 1)]);
        assert_eq!(queue.counts().delayed, 0);
    }
}

#[test] // G8 S14
fn groups_of_another_type_are_refused() {
    let (queue, _) = grouped(|builder| builder);
    queue.add(("a", 1));
    assert_eq!(queue.take_group(&String::from("a")), None);
    assert_eq!(queue.drain_group(&7, ZERO), None);
    let drain: Box<dyn Future<Output = _> + Send> = Box::new(queue.drain_group_async(&7));
    assert_eq!(pollster::block_on(Box::into_pin(drain)), None);
    assert_eq!(queue.take_group(&"nobody"), Some(vec![]));
    assert!(queue.drain_group(&"nobody", HOUR).unwrap().is_nothing());
    let plain = WorkQueue::<Key>::builder().levels(2).build().unwrap();
    assert_eq!(
        (plain.take_group(&"a"), plain.drain_group(&"a", ZERO)),
        (None, None)
    );
    assert_eq!(take_all(&queue), [("a", 1)]);
}

/// A key whose clone panics if it is told to.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile(u32);

static BREAKS: AtomicBool = AtomicBool::new(false);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if self.0 % 2 == 1 && BREAKS.load(Ordering::Relaxed) {
            resume_unwind(Box::new("as intended"));
        }
        Fragile(self.0)
    }
}

#[test] // G8 S12 S15
fn a_key_whose_clone_panics_is_not_taken_and_not_lost() {
    let builder = WorkQueue::builder().group_by(|_: &Fragile| ());
    let queue = builder.merge(merge::append).build().unwrap();
    for number in 0..4 {
        queue.put(Fragile(number), vec![number]);
        queue
            .entry(Fragile(number + 10))
            .after(HOUR)
            .put(vec![number + 10]);
    }
    BREAKS.store(true, Ordering::Relaxed);
    let taken = queue.take_group(&()).unwrap();
    BREAKS.store(false, Ordering::Relaxed);
    let mut taken: Vec<_> = taken.into_iter().map(|left| left.key.0).collect();
    taken.sort_unstable();
    assert_eq!(taken, [0, 2, 10, 12]);
    let again: BTreeMap<_, _> = queue
        .take_group(&())
        .unwrap()
        .into_iter()
        .map(|left| (left.key.0, left.value))
        .collect();
    let all = [1, 3, 11, 13].map(|number| (number, Some(vec![number])));
    assert_eq!(again, BTreeMap::from(all));
}

#[test] // G8
fn a_key_whose_group_panics_is_in_no_group_that_can_be_named() {
    let (queue, _) = grouped(|builder| {
        builder.group_by(|key: &Key| {
            if key.1 == 7 {
                resume_unwind(Box::new("as intended"));
            }
            key.0
        })
    });
    queue.add_all(keys("a", 6..9));
    assert_eq!(sorted(queue.take_group(&"a")).len(), 2);
    assert_eq!(take_all(&queue), [("a", 7)]);
}

/// A group whose hash panics.
#[derive(Clone, PartialEq, Eq)]
struct Unhashed;

impl Hash for Unhashed {
    fn hash<H: Hasher>(&self, _: &mut H) {
        resume_unwind(Box::new("as intended"));
    }
}

#[test] // G8 S15
fn what_is_delayed_is_taken_back_although_the_hash_of_its_group_panics() {
    let builder = WorkQueue::builder().group_by(|_: &u32| Unhashed);
    let queue = builder.merge(merge::append).build().unwrap();
    queue.entry(1).after(HOUR).put(vec![7]);
    queue.put(2, vec![8]);
    let taken = queue.take_group(&Unhashed).unwrap();
    let taken: Vec<_> = taken
        .iter()
        .map(|left| (left.key, left.value.as_deref()))
        .collect();
    assert_eq!(taken, [(1, Some(&[7][..]))]);
    assert_eq!(take_all(&queue), [2]);
}

#[test] // G8 S15
fn what_is_queued_is_taken_back_although_the_weight_of_its_group_panics() {
    let builder = WorkQueue::builder().group_by(|key: &Key| key.0);
    let weigh = |_: &&str| -> u32 { resume_unwind(Box::new("as intended")) };
    let queue = builder.group_weight(weigh).group_limit(1).build().unwrap();
    queue.add_all(keys("a", 0..2));
    queue.add_all(keys("b", 0..1));
    assert!(queue.hold_group(&"a", HOUR));
    assert_eq!(sorted(queue.take_group(&"a")).len(), 2);
    assert!(queue.drain_group(&"a", ZERO).unwrap().is_nothing());
    assert_eq!(take_all(&queue), [("b", 0)]);
}

#[test] // G8 S1 S12
fn a_group_is_taken_back_after_a_shut_down_as_well_and_a_drain_ends_with_it() {
    let (queue, _) = grouped(|builder| builder.group_limit(1));
    queue.add_all(keys("a", 0..3));
    queue.add_all(keys("b", 0..1));
    let item = queue.get().unwrap();
    queue.shut_down();
    assert_eq!(sorted(queue.take_group(&"a")).len(), 2);
    item.done();
    assert_eq!(take_all(&queue), [("b", 0)]);
    assert!(queue.drain_timeout(ZERO).is_finished());
    assert!(queue.take_left().is_empty());
    // A delay that the shut-down has dropped goes with the key that is queued, too.
    let (queue, _) = grouped(|builder| builder);
    queue.add_after(("a", 1), HOUR);
    queue.add(("a", 1));
    assert_eq!(queue.shut_down().delayed, 1);
    assert_eq!(sorted(queue.take_group(&"a")).len(), 1);
    assert!(queue.take_left().is_empty());
    // What is abandoned is not waited for.
    let (queue, _) = grouped(|builder| builder);
    queue.add(("a", 1));
    queue.shut_down_now();
    assert!(queue.drain_group(&"a", HOUR).unwrap().is_finished());
    assert!(sorted(queue.take_group(&"a")).is_empty());
    assert_eq!(queue.take_left().len(), 1);
}

/// The numbers of queued, processing and delayed keys of group "a".
fn left(queue: &Queue) -> (usize, usize, usize) {
    figures(queue.drain_group(&"a", ZERO).unwrap())
}

#[test] // G8
fn a_drain_of_a_group_says_what_is_left_of_it_and_of_no_other() {
    let (queue, _) = grouped(|builder| builder);
    queue.add_all(keys("a", 0..3));
    queue.add_all(keys("b", 0..2));
    queue.add_after(("a", 5), HOUR);
    queue.add_after(("b", 5), HOUR);
    assert_eq!(left(&queue), (3, 0, 1));
    let items = queue.get_batch(4).unwrap();
    assert_eq!(items.iter().filter(|item| item.0 == "a").count(), 2);
    queue.add(*items[0]);
    assert_eq!(left(&queue), (1, 2, 1));
    assert_eq!(queue.drain_group(&"b", MS).unwrap().processing, 2);
    items.into_iter().for_each(keyqueue::Item::done);
    assert_eq!(left(&queue), (2, 0, 1));
    assert_eq!(take_all(&queue).len(), 2);
    assert_eq!(left(&queue), (0, 0, 1));
    // Delays are not waited for.
    assert!(queue.drain_group(&"a", HOUR).unwrap().is_finished());
}

#[test] // G8 C9
fn a_drain_of_a_group_ends_with_the_last_of_its_keys_and_ends_no_other() {
    let (queue, _) = grouped(|builder| builder);
    queue.add_all(keys("a", 0..2));
    queue.add_all(keys("b", 0..1));
    let mut items: Vec<_> = queue.get_batch(3).unwrap().into_iter().collect();
    let mut drain = Task::waiting(Box::pin(queue.drain_group_async(&"a")));
    let other = Task::waiting(Box::pin(queue.drain_group_async(&"b")));
    let first = items.iter().position(|item| **item == ("a", 0)).unwrap();
    // It is queued again, and waited for.
    queue.add(("a", 0));
    items.remove(first).done();
    drain.assert_pending();
    let second = items.iter().position(|item| item.0 == "a").unwrap();
    assert_eq!(items.remove(second).retry_after(HOUR), Added::Delayed);
    drain.assert_pending();
    let again = queue.get().unwrap();
    // So is one that is added meanwhile.
    queue.add(("a", 2));
    let late = queue.get().unwrap();
    drain.assert_pending();
    again.done();
    drain.assert_pending();
    late.done();
    assert!(drain.wakes() > 0);
    assert_eq!(figures(drain.output().unwrap()), (0, 0, 1));
    drop(other);
    let mut other = Task::waiting(Box::pin(queue.drain_group_async(&"b")));
    items.remove(0).done();
    assert!(other.output().unwrap().is_nothing());
}

#[test] // G8
fn a_drain_of_a_group_ends_if_what_is_queued_is_taken_back_or_cleared() {
    for clears in [false, true] {
        let (queue, _) = grouped(|builder| builder);
        queue.add_all(keys("a", 0..2));
        let mut drain = Task::waiting(Box::pin(queue.drain_group_async(&"a")));
        match clears {
            true => assert_eq!(queue.clear(), 2),
            false => assert_eq!(sorted(queue.take_group(&"a")).len(), 2),
        }
        assert!(drain.wakes() > 0);
        assert!(drain.output().unwrap().is_nothing());
    }
}

#[test] // G8 S12
fn what_is_put_to_groups_that_leave_is_delivered_or_taken_back_once() {
    let _watchdog = watchdog(120);
    for seed in 0..scaled(200) as u64 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let builder = WorkQueue::builder().group_by(|key: &(u32, u32)| key.0);
        let builder = builder
            .adds_wait_for_retries(random.bool())
            .merge(merge::append);
        let builder = match random.u8(..4) {
            0 => builder.group_limit(1),
            1 => builder.min_interval(Duration::from_micros(200)),
            2 => builder.levels(2),
            _ => builder,
        };
        let queue = builder.build().unwrap();
        let (next, adding) = (AtomicU32::new(0), AtomicU32::new(2));
        let all: Vec<u32> = thread::scope(|scope| {
            let (queue, next, adding) = (&queue, &next, &adding);
            let put = move || {
                for _ in 0..200 {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let entry = queue.entry((number % 2, number / 2 % 3));
                    match fastrand::u8(..4) {
                        0 => _ = entry.after(Duration::from_micros(300)).put(vec![number]),
                        _ => _ = entry.put(vec![number]),
                    }
                }
                adding.fetch_sub(1, Ordering::Relaxed);
            };
            let work = move || {
                let mut done = Vec::new();
                while let Some(mut item) = queue.get() {
                    match fastrand::u8(..4) {
                        0 => {
                            let n = item.value().clone();
                            let key = *item.key();
                            assert!(
                                item.retry_after(Duration::from_micros(200)).is_accepted(),
                                "{key:?} {n:?} {seed}"
                            );
                        }
                        _ => done.extend(item.take().unwrap()),
                    }
                }
                done
            };
            let leave = move || {
                let mut taken = Vec::new();
                loop {
                    let last = adding.load(Ordering::Relaxed) == 0;
                    let left = queue.take_group(&0_u32).unwrap();
                    taken.extend(left.into_iter().flat_map(|left| left.value.unwrap()));
                    let drained = queue.drain_group(&0_u32, Duration::from_secs(60)).unwrap();
                    assert!(!last || drained.is_finished());
                    if last && drained.is_nothing() {
                        return taken;
                    }
                }
            };
            let putters = [scope.spawn(put), scope.spawn(put)];
            let workers = [scope.spawn(work), scope.spawn(work)];
            let mut all = scope.spawn(leave).join().unwrap();
            putters
                .into_iter()
                .for_each(|putter| putter.join().unwrap());
            // The other group goes on, to its end.
            while !queue
                .drain_group(&1_u32, Duration::from_secs(60))
                .unwrap()
                .is_nothing()
            {
                thread::yield_now();
            }
            queue.shut_down();
            all.extend(
                workers
                    .into_iter()
                    .flat_map(|worker| worker.join().unwrap()),
            );
            all
        });
        let count = next.into_inner();
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..count), "seed {seed}");
    }
}
