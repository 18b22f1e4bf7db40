//! What an ended queue keeps in memory: nothing, whatever its keys have waited for (C10, S8).

use std::time::Duration;

use crate::common::counted::{Alive, Counted};
use crate::common::timed::{HOUR, built};
use crate::common::{figures, scaled, there};
use keyqueue::{Builder, GetError, WorkQueue};

/// A key, or a group.
type Key = Counted<u64>;

type Queue = WorkQueue<Key>;

type Set = fn(Builder<Key>) -> Builder<Key>;

fn group_of(key: &Key) -> u64 {
    key.0 % 4
}

/// What keys can wait for, and what else queues have.
const SETS: [(&str, Set); 12] = [
    ("nothing", |builder| builder),
    ("levels", |builder| builder.levels(3)),
    ("a ring of one, timed", |builder| {
        builder.ring(1).timing(true)
    }),
    ("a bound", |builder| {
        builder.capacity(5000).supersede_delays(true)
    }),
    ("groups", |builder| builder.group_by(group_of)),
    ("a limit", |builder| {
        builder.group_by(group_of).group_limit(1)
    }),
    ("a rate", |builder| {
        builder.group_by(group_of).group_rate(0.001, 3)
    }),
    ("a pace", |builder| builder.dispatch_rate(0.001, 12)),
    ("a pace and levels", |builder| {
        builder.dispatch_rate(0.001, 12).levels(2)
    }),
    ("an interval", |builder| builder.min_interval(HOUR)),
    ("an interval without end", |builder| {
        builder.min_interval(Duration::MAX).capacity(5000)
    }),
    ("all of them", |builder| {
        let builder = builder
            .group_by(group_of)
            .group_limit(9)
            .group_rate(0.001, 5);
        builder
            .min_interval(HOUR)
            .dispatch_rate(0.001, 15)
            .levels(8)
            .capacity(5000)
    }),
];

const KEYS: usize = scaled(1000);

/// A queue with keys that wait, keys that were done, one that is dirty again, and delayed ones; with `hold`, its groups
/// are held, if it has some.
fn waiting(set: Set, hold: Option<Duration>) -> (Queue, Alive) {
    let alive = Alive::default();
    let key = |n: usize| alive.of(n as u64);
    let (queue, _time) = built(set);
    queue.add_all((0..10).map(key));
    there(&queue).take(10).for_each(drop);
    queue.add_all((0..KEYS).map(key));
    for n in 0..10 {
        queue.add_after(key(KEYS + n), HOUR);
        queue.add_after(key(n), HOUR);
    }
    for group in hold.iter().flat_map(|_| 0..4_u64) {
        let _ = queue.hold_group(&group, hold.unwrap());
    }
    (queue, alive)
}

const HOLDS: [Option<Duration>; 3] = [None, Some(HOUR), Some(Duration::MAX)];

#[track_caller]
fn assert_forgotten(alive: &Alive, what: &str, hold: Option<Duration>) {
    assert_eq!(
        alive.count(),
        0,
        "keys are alive of a queue with {what}, held for {hold:?}"
    );
}

#[test] // C10 S8
fn keys_that_an_abort_has_discarded_are_forgotten_by_a_shrink() {
    for (what, set) in SETS {
        for hold in HOLDS {
            for first in [false, true] {
                let (queue, alive) = waiting(set, hold);
                let counts = queue.counts();
                if first {
                    queue.shut_down();
                }
                let ended = figures(queue.shut_down_now());
                assert_eq!(ended, (counts.queued, 0, counts.delayed), "{what}");
                queue.shrink();
                assert_forgotten(&alive, what, hold);
            }
        }
    }
}

#[test] // C10 S8 G2
fn keys_that_were_held_at_an_abort_are_forgotten_once_they_are_done() {
    for (what, set) in SETS {
        let (queue, alive) = waiting(set, None);
        let mut items: Vec<_> = queue.try_get_batch(3).into_iter().flatten().collect();
        if let Some(item) = items.first() {
            queue.add(Alive::default().of(item.0));
        }
        let held = items.len();
        let left = queue.shut_down_now();
        assert_eq!(left.processing, held, "{what}");
        queue.shrink();
        assert_eq!(alive.count(), held, "keys are alive of a queue with {what}");
        items.clear();
        assert!(queue.drain_timeout(Duration::ZERO).is_finished());
        queue.shrink();
        assert_forgotten(&alive, what, None);
    }
}

#[test] // C10 S6
fn a_queue_that_is_dropped_forgets_all_keys() {
    for (what, set) in SETS {
        for hold in HOLDS {
            for ends in [false, true] {
                let (queue, alive) = waiting(set, hold);
                if ends {
                    queue.shut_down();
                }
                drop(queue);
                assert_forgotten(&alive, what, hold);
            }
        }
    }
}

#[test] // C10 S1 T2
fn keys_that_are_delivered_after_a_shut_down_are_forgotten_though_their_interval_is_not_over() {
    for (what, set) in SETS {
        let alive = Alive::default();
        let (queue, time) = built(set);
        queue.add_all((0..12).map(|n| alive.of(n)));
        queue.shut_down();
        for _ in 0..1000 {
            there(&queue).for_each(drop);
            time.advance(HOUR / 10);
        }
        let end = queue.try_get().map(|item| item.0);
        assert_eq!(end.unwrap_err(), GetError::ShutDown, "{what}");
        queue.shrink();
        assert_forgotten(&alive, what, None);
    }
}

#[test] // C10 S8 G3
fn a_discarded_key_does_not_keep_its_group() {
    for hold in HOLDS {
        let alive = Alive::default();
        let (queue, _time) = built(|builder| {
            let alive = alive.clone();
            builder.group_by(move |key: &u64| alive.of(*key))
        });
        queue.add_all(0..KEYS as u64);
        for n in 0..KEYS as u64 {
            let _ = queue.hold_group(&alive.of(n), hold.unwrap_or_default());
        }
        queue.shut_down_now();
        queue.shrink();
        assert!(queue.groups::<Key>().iter().all(|group| group.queued == 0));
        for n in 0..KEYS as u64 {
            let _ = queue.hold_group(&alive.of(n), Duration::ZERO);
        }
        queue.shrink();
        assert_eq!(
            alive.count(),
            0,
            "groups are alive that were held for {hold:?}"
        );
    }
}
