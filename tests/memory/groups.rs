//! What groups take, and what their waits leave behind (G3, G6, C10).

use std::time::Duration;

use crate::common::timed::{HOUR, built};
use crate::common::{alone, there};
use crate::{CACHE, assert_flat, million};
use keyqueue::{Builder, MockClock, WorkQueue};
use rig::heap::held;

/// The bytes for each of a million queued keys.
fn per_key(queue: &WorkQueue<u64>) -> f64 {
    let before = held();
    queue.add_all(0..million());
    (held() - before) as f64 / million() as f64
}

#[test] // G3
fn a_group_takes_at_most_200_bytes() {
    alone(|| {
        let plain = per_key(&WorkQueue::new());
        let by = |groups: u64| {
            let builder = WorkQueue::builder().group_by(move |key: &u64| key % groups);
            let queue = builder.build().unwrap();
            let bytes = per_key(&queue);
            // All of it is given back with the keys.
            let before = held();
            while queue.try_get().is_ok() {}
            queue.shrink();
            let given = (before - held()) as f64 / million() as f64;
            assert!(
                given > 0.9 * bytes,
                "{given} of {bytes} bytes are given back"
            );
            bytes
        };
        let (few, each) = (by(100), by(million()));
        println!(
            "{plain:.0} bytes a key, {few:.0} in a hundred groups, {each:.0} in a group of its own"
        );
        assert!(
            few < 1.8 * plain,
            "{few} bytes a key in few groups, {plain} without"
        );
        assert!(
            each - few < 200.0,
            "{each} bytes a key and its group, {few} in few groups"
        );
    });
}

/// The bytes that are left of holds of a million groups without keys, of which the last call ends the hold.
fn left_of_holds(hold: impl Fn(&WorkQueue<u64>, &MockClock)) -> isize {
    let (queue, time) = built(|builder| builder.group_by(|key: &u64| *key).shards(16));
    let before = held();
    hold(&queue, &time);
    assert!(queue.try_get().is_err());
    queue.shrink();
    assert!(queue.groups::<u64>().is_empty());
    held() - before
}

#[test] // G3 G6
fn a_million_holds_that_have_ended_hold_nothing() {
    alone(|| {
        type Hold = fn(&WorkQueue<u64>, &MockClock);
        let holds: [(&str, Hold); 4] = [
            ("over", |queue, time| {
                (0..million()).for_each(|group| _ = queue.hold_group(&group, HOUR));
                time.advance(HOUR);
            }),
            ("released", |queue, _| {
                for group in 0..million() {
                    assert!(queue.hold_group(&group, HOUR));
                    assert!(queue.hold_group(&group, Duration::ZERO));
                }
            }),
            ("endless, and released", |queue, _| {
                for group in 0..million() {
                    assert!(queue.hold_group(&group, Duration::MAX));
                    assert!(queue.hold_group(&group, Duration::ZERO));
                }
            }),
            ("of one group, each shorter than the last", |queue, time| {
                for n in 0..million() {
                    assert!(queue.hold_group(&0_u64, HOUR - Duration::from_nanos(n)));
                }
                time.advance(HOUR);
            }),
        ];
        for (what, hold) in holds {
            let left = left_of_holds(hold);
            println!("{what}: {left} bytes are left");
            assert!(left < CACHE, "{what}: {left} bytes are left");
        }
    });
}

#[test] // G6
fn one_group_that_is_held_a_million_times_holds_no_more() {
    alone(|| {
        let (queue, _time) = built(|builder| builder.group_by(|key: &u64| *key));
        queue.add(0);
        assert_flat(|n| {
            // Each is over before all that came before.
            assert!(queue.hold_group(&0_u64, HOUR - Duration::from_nanos(n)));
        });
        assert_flat(|n| _ = queue.hold_group(&0_u64, HOUR + Duration::from_nanos(n)));
        assert_flat(|n| {
            assert!(queue.hold_group(&0_u64, HOUR + Duration::from_nanos(n % 100)));
            assert!(queue.hold_group(&0_u64, Duration::ZERO));
        });
    });
}

#[test] // G2 G5 G6 T1 T2 S8 C10
fn a_million_keys_that_wait_are_given_back_after_an_abort() {
    alone(|| {
        type Set = fn(Builder<u64>) -> Builder<u64>;
        let sets: [(&str, Set); 6] = [
            ("nothing", |builder| builder),
            ("a hold", |builder| builder.group_by(|key| key % 10)),
            ("a limit", |builder| {
                builder.group_by(|key| key % 10).group_limit(1)
            }),
            ("a rate", |builder| {
                builder.group_by(|key| key % 10).group_rate(1.0, 1)
            }),
            ("a pace", |builder| builder.dispatch_rate(1.0, 1)),
            ("an interval", |builder| builder.min_interval(HOUR)),
        ];
        for (what, set) in sets {
            let (queue, _time) = built(|builder| set(builder).shards(16));
            let before = held();
            queue.add_all(0..million());
            let item = queue.try_get().unwrap();
            if what == "an interval" {
                // All of them have been delivered, and are queued again.
                there(&queue).for_each(drop);
                queue.add_all(0..million());
            }
            (0..10_u64).for_each(|group| _ = queue.hold_group(&group, HOUR));
            queue.shut_down_now();
            drop(item);
            queue.shrink();
            let left = held() - before;
            println!("{what}: {left} bytes are left");
            assert!(left < 4 * CACHE, "{what}: {left} bytes are left");
        }
    });
}
