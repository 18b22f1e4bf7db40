//! What levels, rates and intervals keep while a queue is busy.

use crate::common::alone;
use crate::common::timed::{HOUR, MS, built, ms};
use crate::{assert_flat, assert_flat_within, million};
use keyqueue::WorkQueue;
use rig::heap::held;

/// What idle keys that are not yet swept may take.
const IDLE: isize = 6 << 20;

#[test] // P3 C10
fn keys_that_were_raised_are_forgotten_while_urgent_ones_come() {
    alone(|| {
        let queue = WorkQueue::<u64>::builder()
            .levels(2)
            .shards(16)
            .build()
            .unwrap();
        // One more urgent key is always there.
        queue.entry(million()).level(0).add();
        assert_flat_within(IDLE, |n| {
            queue.entry(n).level(1).add();
            queue.entry(n).level(0).add();
            queue.get().unwrap().done();
        });
    });
}

#[test] // P3 C10
fn one_key_that_is_raised_a_million_times_holds_no_more() {
    alone(|| {
        let queue = WorkQueue::<u64>::builder().levels(2).build().unwrap();
        queue.entry(2).level(0).add();
        assert_flat(|_| {
            queue.entry(1).level(1).add();
            queue.entry(1).level(0).add();
            let item = queue.get().unwrap();
            queue.entry(2).level(0).add();
            item.done();
        });
    });
}

#[test] // G5 C10
fn a_million_tokens_of_one_group_hold_no_more() {
    alone(|| {
        let (queue, _time) = built(|builder| {
            let builder = builder.group_by(|_: &u64| ());
            builder.group_rate(1.0, 10_000_000)
        });
        assert_flat(|_| {
            queue.add(1);
            queue.try_get().unwrap().done();
        });
    });
}

#[test] // T2 C10
fn keys_that_never_come_again_are_forgotten_after_their_interval() {
    alone(|| {
        let (queue, time) = built(|builder| builder.min_interval(ms(10)).shards(16));
        assert_flat_within(IDLE, |n| {
            queue.add(n);
            queue.try_get().unwrap().done();
            time.advance(MS);
        });
    });
}

#[test] // T2 C10
fn keys_are_forgotten_after_their_interval_by_a_worker_that_looks_and_by_shrink() {
    alone(|| {
        type Look = fn(&WorkQueue<u64>);
        let looks: [Look; 2] = [|queue| assert!(queue.try_get().is_err()), WorkQueue::shrink];
        for look in looks {
            let (queue, time) = built(|builder| builder.min_interval(HOUR).shards(16));
            let before = held();
            queue.add_all(0..million());
            (0..million()).for_each(|_| queue.try_get().unwrap().done());
            // A first look ends the intervals, another one forgets the keys.
            for _ in 0..2 {
                time.advance(HOUR);
                look(&queue);
            }
            let left = held() - before;
            println!("{left} bytes left");
            // The list of the intervals keeps its room, 16 bytes each.
            assert!(
                left < 40 * million().cast_signed() as isize,
                "{left} bytes left"
            );
        }
    });
}
