//! The bound beside another thread: none is refused for room that is counted twice (B1 to B3). Random runs are for the model,
//! and what a crowd of threads does for the lives of `checks/soak`.

use std::thread;

use crate::common::timed::{HOUR, built, ms};
use crate::common::{scaled, watchdog};
use keyqueue::{Added, Full, WorkQueue};

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
