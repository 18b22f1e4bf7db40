//! Groups among threads: no key is lost or delivered twice at once, and no getter sleeps while one may be
//! delivered (G1, G2, G5, C2, C3).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::common::{eventually, poll, scaled, watchdog};
use keyqueue::{Added, Builder, WorkQueue};

const KEYS: usize = 64;
const THREADS: usize = 4;
const ROUNDS: usize = scaled(30_000);

/// Each add raises a number before, and each delivery has to see at least the number of the adds it covers.
fn crowd(set: impl FnOnce(Builder<usize>) -> Builder<usize>, levels: usize) {
    let _watchdog = watchdog(120);
    let builder = WorkQueue::builder().levels(levels);
    let queue = set(builder).build().unwrap();
    let wanted: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let seen: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    let busy: Vec<AtomicBool> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let (queue, wanted, seen, busy) = (&queue, &wanted, &seen, &busy);
            scope.spawn(move || {
                for (n, item) in queue.iter().enumerate() {
                    let key = *item;
                    assert!(
                        !busy[key].swap(true, Ordering::SeqCst),
                        "{key} is held twice"
                    );
                    let now = wanted[key].load(Ordering::SeqCst);
                    seen[key].store(now, Ordering::SeqCst);
                    busy[key].store(false, Ordering::SeqCst);
                    if (n + worker) % 17 == 0 {
                        item.retry();
                    }
                }
            });
        }
        let adders: Vec<_> = (0..THREADS)
            .map(|adder| {
                let (queue, wanted) = (&queue, &wanted);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let key = (round * 7 + adder * 13) % KEYS;
                        wanted[key].fetch_add(1, Ordering::SeqCst);
                        match round % 5 {
                            0 => queue.add_at(round % 3, key),
                            1 if round % 100 == 1 => {
                                queue.hold_group(&(key % 8), Duration::from_micros(100));
                                queue.add(key)
                            }
                            2 if round % 50 == 2 => {
                                queue.add_after(key, Duration::from_micros(50));
                                queue.add(key)
                            }
                            _ => queue.add(key),
                        };
                    }
                })
            })
            .collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        // Hangs if a getter sleeps while a key may be delivered.
        queue.shut_down_with_drain();
    });
    for key in 0..KEYS {
        let of = |counts: &[AtomicUsize]| counts[key].load(Ordering::SeqCst);
        assert_eq!(of(&seen), of(&wanted), "key {key}");
    }
    assert_eq!(queue.len(), 0);
}

#[test] // G1 C2 C3
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn groups_in_a_crowd() {
    crowd(|builder| builder.group_by(|key| key % 8), 1);
}

#[test] // G4
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn groups_with_levels_in_a_crowd() {
    crowd(|builder| builder.group_by(|key| key % 8), 3);
}

#[test] // G2
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn groups_with_a_limit_in_a_crowd() {
    crowd(|builder| builder.group_by(|key| key % 8).group_limit(1), 1);
    crowd(
        |builder| builder.group_by(|key| key % 8).group_limit(2).ring(1),
        2,
    );
}

#[test] // G1
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn groups_with_a_weight_in_a_crowd() {
    let by = |builder: Builder<usize>| builder.group_by(|key| key % 8);
    crowd(
        |builder| by(builder).group_weight(|group: &usize| *group as u32),
        1,
    );
}

#[test] // G5 T1
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn groups_with_rates_in_a_crowd() {
    let by = |builder: Builder<usize>| builder.group_by(|key| key % 8);
    crowd(|builder| by(builder).group_rate(1e6, 10), 1);
    crowd(
        |builder| {
            by(builder)
                .group_rate(3e5, 3)
                .dispatch_rate(5e5, 2)
                .group_limit(2)
        },
        2,
    );
}

#[test] // T2
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn keys_with_an_interval_in_a_crowd() {
    crowd(
        |builder| builder.min_interval(Duration::from_micros(200)),
        1,
    );
    let by = |builder: Builder<usize>| builder.group_by(|key| key % 8);
    crowd(
        |builder| {
            by(builder)
                .min_interval(Duration::from_micros(50))
                .group_limit(1)
        },
        3,
    );
}

#[test] // G3
fn groups_that_come_and_go_in_a_crowd() {
    // A group for each key, and they are forgotten all the time.
    let _watchdog = watchdog(120);
    let queue = WorkQueue::builder()
        .group_by(|key: &usize| *key)
        .build()
        .unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| queue.iter().for_each(drop));
        }
        let adders: Vec<_> = (0..2)
            .map(|adder| {
                let queue = &queue;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        queue.add(round * 2 + adder);
                        if round % 200 == 0 {
                            queue.shrink();
                        }
                    }
                })
            })
            .collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        queue.shut_down_with_drain();
    });
    queue.shrink();
    assert!(queue.groups::<usize>().is_empty());
}

/// Blocking getters sleep; another thread tries, times out, drops what was woken, and takes batches. All
/// keys have to come, and no later add or shut-down makes up for a lost wake-up.
fn nobody_oversleeps(rounds: usize, set: impl Fn(Builder<usize>) -> Builder<usize>) {
    let _watchdog = watchdog(120);
    for round in 0..rounds {
        let queue = set(WorkQueue::builder().group_by(|key| key % 5))
            .build()
            .unwrap();
        let seen = AtomicUsize::new(0);
        let is_added = AtomicBool::new(false);
        let (queue, seen, is_added) = (&queue, &seen, &is_added);
        thread::scope(|scope| {
            let _end = queue.shut_down_on_drop();
            for _ in 0..3 {
                scope.spawn(|| {
                    queue.iter().for_each(|item| {
                        item.done();
                        seen.fetch_add(1, Ordering::SeqCst);
                    });
                });
            }
            scope.spawn(move || {
                let mut n = round;
                while !is_added.load(Ordering::SeqCst) {
                    n += 1;
                    let got = match n % 5 {
                        0 => usize::from(queue.try_get().is_ok()),
                        1 => usize::from(queue.get_timeout(Duration::from_micros(30)).is_ok()),
                        2 | 3 => {
                            let mut getter = Box::pin(queue.get_async());
                            let mut get = || poll(&mut getter, Waker::noop()).is_ready();
                            usize::from(
                                get() || {
                                    thread::yield_now();
                                    n % 2 == 0 && get()
                                },
                            )
                        }
                        _ => queue.try_get_batch(3).map_or(0, |batch| batch.len()),
                    };
                    seen.fetch_add(got, Ordering::SeqCst);
                }
            });
            let mut keys = 0;
            for key in 0..40 {
                keys += usize::from(queue.add(key) == Added::Queued);
                match key % 16 {
                    3 | 11 => _ = queue.hold_group(&(key % 5), Duration::from_micros(700)),
                    9 => _ = queue.release_group(&(key % 5)),
                    _ => {}
                }
            }
            is_added.store(true, Ordering::SeqCst);
            eventually("all keys come", || seen.load(Ordering::SeqCst) == keys);
        });
    }
}

#[test] // C9 G1 G2 G6
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn nobody_oversleeps_with_groups_and_holds() {
    nobody_oversleeps(60, |builder| builder);
    nobody_oversleeps(60, |builder| builder.group_limit(1).levels(3));
}

#[test] // C9 G5 T1 T2
#[cfg_attr(miri, ignore = "Miri cannot read the real clock")]
fn nobody_oversleeps_with_rates_and_intervals() {
    nobody_oversleeps(30, |builder| builder.dispatch_rate(5000.0, 1));
    nobody_oversleeps(60, |builder| builder.dispatch_rate(1e6, 1));
    nobody_oversleeps(30, |builder| builder.group_rate(2000.0, 2));
    nobody_oversleeps(30, |builder| {
        builder
            .group_limit(1)
            .group_rate(3000.0, 2)
            .dispatch_rate(8000.0, 3)
            .group_weight(|_: &usize| u32::MAX)
            .min_interval(Duration::from_micros(300))
    });
}
