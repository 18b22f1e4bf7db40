//! The bound beside another thread and in random runs: none is refused for room that is counted twice (B1 to B3).
//! What a crowd of threads does to it is for the lives of `checks/soak`.

use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built, ms};
use crate::common::{scaled, there, watchdog};
use keyqueue::{Added, Builder, DelayPolicy, Full, WorkQueue};

const ROUNDS: u64 = scaled(20_000) as u64;

#[test] // B1 B2
fn a_merged_add_takes_no_room_for_a_moment() {
    let _watchdog = watchdog(120);
    let queue = WorkQueue::<u64>::builder().capacity(1).build().unwrap();
    queue.add(0);
    let _item = queue.try_get().unwrap();
    queue.add(0); // dirty, which takes no room
    thread::scope(|scope| {
        let merges = scope.spawn(|| {
            for _ in 0..5 * ROUNDS {
                assert_eq!(queue.entry(0).try_add(), Ok(Added::Merged));
            }
        });
        while !merges.is_finished() {
            assert_eq!(queue.entry(1).try_add(), Ok(Added::Queued));
            assert_eq!(*queue.try_get().unwrap(), 1);
        }
    });
}

#[test] // B1 D5
fn an_add_that_supersedes_a_delay_lets_no_other_in_for_a_moment() {
    let _watchdog = watchdog(120);
    let builder = WorkQueue::builder().capacity(1).supersede_delays(true);
    let queue = builder.build().unwrap();
    // There is always a key that is queued or delayed.
    queue.add_after(0, HOUR);
    thread::scope(|scope| {
        let turns = scope.spawn(|| {
            for round in 0..5 * ROUNDS {
                let (key, next) = (round % 2, (round + 1) % 2);
                assert_eq!(queue.add(key), Added::Queued);
                queue.add_after(next, HOUR);
                let item = queue.try_get().unwrap();
                assert_eq!(*item, key, "exceeds the bound");
            }
        });
        while !turns.is_finished() {
            assert_eq!(queue.entry(9).try_add(), Err(Full(9)), "exceeds the bound");
        }
    });
}

#[test] // B1 D4
fn a_try_succeeds_while_delays_end() {
    let _watchdog = watchdog(120);
    const KEYS: u64 = 200;
    // The last key is that of another thread, for which there is always room.
    let (queue, time) = built(|builder| builder.capacity(KEYS as usize + 1));
    thread::scope(|scope| {
        let turns = scope.spawn(|| {
            for _ in 0..ROUNDS / 20 {
                (0..KEYS).for_each(|key| _ = queue.add_after(key, ms(1)));
                time.advance(ms(1));
                queue.fire_due();
                let mut left = KEYS;
                while left > 0 {
                    let item = queue.try_get().unwrap();
                    left -= u64::from(*item < KEYS);
                }
            }
        });
        while !turns.is_finished() {
            assert!(queue.entry(KEYS).try_add().is_ok(), "there is room for one");
        }
    });
}

#[test] // B1 D3
fn a_try_succeeds_while_delays_are_kept_or_moved() {
    let _watchdog = watchdog(120);
    let (queue, _time) = built::<u64>(|builder| builder.capacity(2));
    queue.add_after(0, HOUR);
    thread::scope(|scope| {
        let delays = scope.spawn(|| {
            for round in 0..5 * ROUNDS {
                // Each second one is earlier than the last.
                queue.add_after(0, HOUR - ms(round / 2));
            }
        });
        while !delays.is_finished() {
            assert_eq!(
                queue.entry(1).try_add(),
                Ok(Added::Queued),
                "there is room for one"
            );
            queue.try_get().unwrap().done();
        }
    });
}

/// Runs a random mix of adds, delays, cancels and deliveries in a queue with room for 6 keys, and compares the
/// room that is left with what is counted.
fn keeps_its_room(seed: u64, set: impl Fn(Builder<u64>) -> Builder<u64>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (queue, time) = built(|builder| set(builder).capacity(6));
    let handle = queue.handle(3);
    let mut held = Vec::new();
    let turn = || {
        time.advance(ms(10));
        queue.fire_due();
    };
    for _ in 0..60 {
        let key = random.u64(..8);
        match random.u8(..14) {
            0 => _ = queue.add(key),
            1 => _ = queue.entry(key).level(random.usize(..3)).add(),
            2 | 3 => _ = queue.entry(key).try_add(),
            4 => _ = queue.add_after(key, ms(random.u64(..30))),
            5 => _ = queue.cancel(&key),
            6 | 7 => held.extend(queue.try_get().ok()),
            8 if !held.is_empty() => held.swap_remove(0).done(),
            9 if !held.is_empty() => _ = held.swap_remove(0).retry_after(ms(random.u64(..20))),
            10 => turn(),
            11 if random.u8(..4) == 0 => _ = queue.clear(),
            12 => _ = handle.add(),
            13 => _ = queue.entry(key).within(Duration::ZERO).try_add(),
            _ => {}
        }
    }
    let room = || {
        (100..120)
            .filter(|key| queue.entry(*key).try_add().is_ok())
            .count()
    };
    let counts = queue.counts();
    let waits = counts.queued + counts.delayed;
    // B5. A key that is queued and delayed may be retrying twice.
    let snapshot = queue.snapshot();
    let twice = |key: &&keyqueue::KeySnapshot<'_, u64>| {
        key.state() == keyqueue::State::Queued && key.due_in().is_some()
    };
    let twice = snapshot.iter().filter(twice).count();
    let left = |retrying: usize| 6_usize.saturating_sub(waits - retrying.saturating_sub(3).min(6));
    let room_now = room();
    assert!(
        (left(counts.retrying)..=left(counts.retrying + twice)).contains(&room_now),
        "seed {seed}, {counts:?}, room for {room_now}"
    );
    drop(snapshot);
    held.clear();
    // And no key is lost.
    for _ in 0..50 {
        turn();
        there(&queue).for_each(drop);
    }
    let counts = queue.counts();
    assert_eq!((counts.queued, counts.delayed), (0, 0), "seed {seed}");
    assert_eq!(room(), 6, "seed {seed}");
}

#[test] // B1 B3
fn random_runs_neither_lose_nor_double_room() {
    for seed in 0..scaled(500) as u64 {
        keeps_its_room(seed, |builder| builder);
        keeps_its_room(seed, |builder| builder.levels(3).supersede_delays(true));
        let latest = DelayPolicy::Latest;
        keeps_its_room(seed, |builder| builder.levels(3).delay_policy(latest));
        let by = |builder: Builder<u64>| builder.group_by(|key| key % 2).group_limit(1);
        keeps_its_room(seed, |builder| by(builder).levels(3).group_rate(200.0, 2));
        keeps_its_room(seed, |builder| {
            by(builder).min_interval(ms(15)).supersede_delays(true)
        });
    }
}
