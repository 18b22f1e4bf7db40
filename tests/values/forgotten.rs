//! What an ended queue keeps of its values: nothing, whatever their keys have waited for (C10, S8).

use std::time::Duration;

use super::tracked;
use crate::common::counted::{Alive, Counted};
use crate::common::timed::HOUR;
use crate::common::{scaled, there};
use keyqueue::{Builder, Clock, Ended, WorkQueue, merge};

type Value = Vec<Counted<u32>>;
type Queue = WorkQueue<u32, Value>;
type Set = fn(Builder<u32, Value>) -> Builder<u32, Value>;

const KEYS: u32 = scaled(1000) as u32;

/// What keys can wait for, and what else queues have.
const SETS: [(&str, Set); 8] = [
    ("nothing", |builder| builder),
    ("levels", |builder| builder.levels(2)),
    ("a bound", |builder| builder.capacity(5000)),
    ("a limit", |builder| {
        builder.group_by(|key| *key % 4).group_limit(1)
    }),
    ("a rate", |builder| {
        builder.group_by(|key| *key % 4).group_rate(0.001, 3)
    }),
    ("a pace", |builder| builder.dispatch_rate(0.001, 12)),
    ("an interval", |builder| builder.min_interval(HOUR)),
    ("all of them", |builder| {
        let builder = builder
            .group_by(|key| *key % 4)
            .group_limit(9)
            .group_rate(0.001, 5);
        builder
            .min_interval(HOUR)
            .dispatch_rate(0.001, 15)
            .levels(8)
            .capacity(5000)
    }),
];

fn queue(set: Set) -> Queue {
    let (clock, _time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    set(builder.merge(merge::append)).build().unwrap()
}

#[test] // C10 S8 V2
fn values_that_an_abort_has_discarded_are_dropped_by_a_shrink() {
    for (what, set) in SETS {
        for hold in [Duration::ZERO, HOUR, Duration::MAX] {
            let alive = Alive::default();
            let queue = queue(set);
            let put = |key| tracked(&queue, key, vec![alive.of(key)]);
            let first: Vec<_> = (0..10).map(put).collect();
            there(&queue).take(10).for_each(drop);
            let mut receipts: Vec<_> = (0..KEYS).map(put).collect();
            for key in 0..20 {
                queue.entry(KEYS + key).after(HOUR).put(vec![alive.of(key)]);
            }
            (0..4_u32).for_each(|group| _ = queue.hold_group(&group, hold));
            let mut items: Vec<_> = there(&queue).take(2).collect();
            receipts.extend(items.iter().map(|item| put(*item.key())));
            let left = queue.shut_down_now();
            assert_eq!((left.processing, left.delayed), (items.len(), 20), "{what}");
            queue.shrink();
            let held: usize = items.iter().map(|item| item.value().len()).sum();
            // A dirty key keeps what was put for its next delivery as long as it is held.
            assert!(
                alive.count() <= held + items.len(),
                "{what}, held for {hold:?}"
            );
            items.clear();
            queue.shrink();
            assert_eq!(alive.count(), 0, "{what}, held for {hold:?}");
            // And nobody waits for them.
            let pending = |receipt: &&keyqueue::Receipt| receipt.ended().is_none();
            assert_eq!(receipts.iter().filter(pending).count(), 0, "{what}");
            let dropped = |receipt: &&keyqueue::Receipt| receipt.ended() == Some(Ended::Dropped);
            assert!(first.iter().filter(dropped).count() < 10, "{what}");
        }
    }
}

#[test] // C10 S6
fn values_are_dropped_with_the_queue() {
    for (what, set) in SETS {
        let alive = Alive::default();
        let queue = queue(set);
        for key in 0..KEYS {
            queue.put(key, vec![alive.of(key)]);
            queue.entry(key).after(HOUR).put(vec![alive.of(key)]);
        }
        there(&queue).take(10).for_each(drop);
        (0..4_u32).for_each(|group| _ = queue.hold_group(&group, Duration::MAX));
        drop(queue);
        assert_eq!(alive.count(), 0, "{what}");
    }
}
