//! The bound among threads and in random runs: no add waits while there is room, and none is refused for room
//! that is counted twice (B1 to B3).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, built, ms};
use crate::common::{scaled, watchdog};
use keyqueue::{Added, Builder, DelayPolicy, Full, State, WorkQueue};

const ROUNDS: usize = scaled(20_000);
const THREADS: usize = 4;

fn bounded(capacity: usize, levels: usize) -> WorkQueue<usize> {
    let builder = WorkQueue::builder().capacity(capacity).levels(levels);
    builder.build().unwrap()
}

#[test] // B1
fn a_try_succeeds_while_there_is_room() {
    let _watchdog = watchdog(120);
    for levels in [1, 2] {
        // Each thread has one key in the queue at most.
        let queue = bounded(THREADS, levels);
        thread::scope(|scope| {
            for key in 0..THREADS {
                let queue = &queue;
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        assert_eq!(queue.try_add(key), Ok(Added::Queued));
                        while queue.state(&key) != State::Idle {
                            drop(queue.try_get());
                        }
                    }
                });
            }
        });
    }
}

#[test] // B2
fn the_bound_is_never_exceeded_by_adds_that_keep_it() {
    let _watchdog = watchdog(120);
    const CAPACITY: usize = 3;
    let queue = bounded(CAPACITY, 1);
    thread::scope(|scope| {
        let adders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let queue = &queue;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        queue.add_wait(round * THREADS + thread);
                        let len = queue.len();
                        assert!(len <= CAPACITY, "{len} keys are queued");
                    }
                })
            })
            .collect();
        let worker = scope.spawn(|| queue.iter().count());
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        queue.shut_down();
        assert_eq!(worker.join().unwrap(), THREADS * ROUNDS);
    });
}

/// Adds by every kind of wait, delays and cancellations, while some deliveries are retried.
#[test] // B1 B2 B3
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn no_add_waits_forever_and_all_room_is_there_again() {
    let _watchdog = watchdog(120);
    for (capacity, levels) in [(1, 1), (16, 1), (2, 3)] {
        let queue = bounded(capacity, levels);
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            let adders: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (queue, accepted) = (&queue, &accepted);
                    scope.spawn(move || {
                        for round in 0..ROUNDS {
                            let key = (round * 7 + thread) % 64;
                            let added = match (round + thread) % 8 {
                                0 => queue.try_add(key).ok(),
                                1 => queue.add_wait_timeout(key, Duration::from_micros(50)).ok(),
                                2 => Some(pollster::block_on(queue.add_async(key))),
                                3 => {
                                    // Cancelled after one poll, unless it was ready.
                                    let add = Box::pin(queue.add_async(key));
                                    pollster::block_on(futures_lite::future::or(
                                        async { Some(add.await) },
                                        std::future::ready(None),
                                    ))
                                }
                                4 if round % 32 == 0 => Some(queue.add(key)),
                                5 => Some(queue.add_after(key, Duration::from_micros(200))),
                                6 => {
                                    queue.cancel(&((round * 5) % 64));
                                    None
                                }
                                _ => Some(queue.add_wait(key)),
                            };
                            if let Some(added) = added {
                                assert!(added.is_accepted());
                                accepted.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
            for thread in 0..2 {
                let queue = &queue;
                scope.spawn(move || {
                    for (n, item) in queue.iter().enumerate() {
                        if (n + thread) % 5 == 0 {
                            assert!(item.retry().is_accepted());
                        }
                    }
                });
            }
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            crate::common::eventually("nothing waits", || {
                let counts = queue.counts();
                counts.queued + counts.delayed + counts.processing == 0
            });
            queue.shut_down();
        });
        assert!(accepted.load(Ordering::Relaxed) > 0);
    }
}

#[test] // B1
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn all_room_is_there_again_after_a_crowd() {
    let _watchdog = watchdog(120);
    let queue = bounded(8, 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let queue = &queue;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let _ = queue.try_add((round + thread) % 16);
                    if let Ok(item) = queue.try_get() {
                        match round % 3 {
                            0 => _ = item.retry(),
                            _ => item.done(),
                        }
                    }
                    queue.add_after((round * 3) % 16, Duration::from_micros(100));
                    queue.cancel(&((round * 5) % 16));
                    let _ = queue.try_get();
                }
            });
        }
    });
    for key in 0..16 {
        queue.cancel(&key);
    }
    while queue.try_get().is_ok() {}
    for key in 100..108 {
        assert_eq!(queue.try_add(key), Ok(Added::Queued));
    }
    assert_eq!(queue.try_add(108), Err(Full(108)));
}

#[test] // B1 B2
fn a_merged_add_takes_no_room_for_a_moment() {
    let _watchdog = watchdog(120);
    let queue = bounded(1, 1);
    queue.add(0);
    let _item = queue.try_get().unwrap();
    queue.add(0); // dirty, which takes no room
    thread::scope(|scope| {
        let merges = scope.spawn(|| {
            for _ in 0..5 * ROUNDS {
                assert_eq!(queue.try_add(0), Ok(Added::Merged));
            }
        });
        while !merges.is_finished() {
            assert_eq!(queue.try_add(1), Ok(Added::Queued));
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
            assert_eq!(queue.try_add(9), Err(Full(9)), "exceeds the bound");
        }
    });
}

#[test] // B1 D4
fn a_try_succeeds_while_delays_end() {
    let _watchdog = watchdog(120);
    const KEYS: usize = 200;
    // The last key is that of another thread, for which there is always room.
    let (queue, time) = built(|builder| builder.capacity(KEYS + 1));
    thread::scope(|scope| {
        let turns = scope.spawn(|| {
            for _ in 0..ROUNDS / 20 {
                (0..KEYS).for_each(|key| _ = queue.add_after(key, ms(1)));
                time.advance(ms(1));
                queue.fire_due();
                let mut left = KEYS;
                while left > 0 {
                    let item = queue.try_get().unwrap();
                    left -= usize::from(*item < KEYS);
                }
            }
        });
        while !turns.is_finished() {
            assert!(queue.try_add(KEYS).is_ok(), "there is room for one");
        }
    });
}

#[test] // B1 D3
fn a_try_succeeds_while_delays_are_kept_or_moved() {
    let _watchdog = watchdog(120);
    let (queue, _time) = built(|builder| builder.capacity(2));
    queue.add_after(0, HOUR);
    thread::scope(|scope| {
        let delays = scope.spawn(|| {
            for round in 0..5 * ROUNDS {
                // Each second one is earlier than the last.
                queue.add_after(0, HOUR - ms((round / 2) as u64));
            }
        });
        while !delays.is_finished() {
            assert_eq!(queue.try_add(1), Ok(Added::Queued), "there is room for one");
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
            1 => _ = queue.add_at(random.usize(..3), key),
            2 | 3 => _ = queue.try_add(key),
            4 => _ = queue.add_after(key, ms(random.u64(..30))),
            5 => _ = queue.cancel(&key),
            6 | 7 => held.extend(queue.try_get().ok()),
            8 if !held.is_empty() => held.swap_remove(0).done(),
            9 if !held.is_empty() => _ = held.swap_remove(0).retry_after(ms(random.u64(..20))),
            10 => turn(),
            11 if random.u8(..4) == 0 => _ = queue.clear(),
            12 => _ = handle.add(),
            13 => _ = queue.add_wait_timeout(key, Duration::ZERO),
            _ => {}
        }
    }
    let room = || (100..120).filter(|key| queue.try_add(*key).is_ok()).count();
    let counts = queue.counts();
    let left = 6_usize.saturating_sub(counts.queued + counts.delayed);
    assert_eq!(room(), left, "seed {seed}, {counts:?}");
    held.clear();
    // And no key is lost.
    for _ in 0..50 {
        turn();
        queue.try_iter().for_each(drop);
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
