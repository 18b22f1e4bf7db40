//! The tests of the suite with many threads.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::strict;
use crate::common::timed::{HOUR, MS, after, built, ms};
use crate::common::{Note, eventually, watchdog};
use keyqueue::{Added, Builder, State, WorkQueue};

#[test] // C5 C9: and none twice
fn returns_many_items() {
    const KEYS: u64 = 1000;
    let _watchdog = watchdog(120);
    let mut random = fastrand::Rng::with_seed(1);
    let (queue, time) = built(|builder: Builder<u64>| strict(builder).levels(8));
    for _ in 0..20 {
        for key in 0..KEYS {
            let entry = queue.entry(key);
            let added = match random.u64(0..100) {
                0 => entry.after(Duration::ZERO).add(),
                delay @ 1..10 => entry.after(ms(delay)).add(),
                other => entry.level(other as usize % 8).add(),
            };
            assert!(matches!(added, Added::Queued | Added::Delayed), "{added:?}");
        }
        let mut taken = thread::scope(|scope| {
            // More getters than keys for them, until the delays end.
            let take = || (0..10).map(|_| *queue.get().unwrap()).collect::<Vec<_>>();
            let getters: Vec<_> = (0..KEYS / 10).map(|_| scope.spawn(take)).collect();
            time.advance(ms(10));
            queue.fire_due();
            getters
                .into_iter()
                .map(|g| g.join().unwrap())
                .collect::<Vec<_>>()
                .concat()
        });
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..KEYS), "each key once");
    }
}

#[test] // S1 C9
fn test_priority_queue_does_not_deadlock_on_shutdown_while_handing_out_items() {
    let _watchdog = watchdog(120);
    for seed in 0..50 {
        let queue = strict(WorkQueue::<u64>::builder())
            .levels(8)
            .build()
            .unwrap();
        let deliveries = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..20 {
                let mut random = fastrand::Rng::with_seed(seed * 20 + worker);
                let (queue, deliveries) = (&queue, &deliveries);
                scope.spawn(move || {
                    loop {
                        let key = random.u64(0..1000);
                        queue.entry(key).level(random.usize(0..8)).add();
                        if queue.get().is_none() {
                            return;
                        }
                        deliveries.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            eventually("keys are delivered", || {
                deliveries.load(Ordering::Relaxed) >= 100
            });
            queue.shut_down();
        });
        assert_eq!(queue.len(), 0, "what was queued was delivered");
    }
}

/// The levels at which a key is owed: of what is queued or dirty, and of its pending delay.
#[derive(Default)]
struct Owed {
    due: Option<usize>,
    delayed: Option<usize>,
}

/// Producers add keys at random levels, with and without a delay, and consumers take them. Each
/// delivery has to be owed, at the most urgent level of the adds that it serves, and no key is held
/// twice. Only the consumers move the clock.
fn fuzz(seed: u64) {
    const KEYS: u64 = 100;
    let most_urgent = |a: Option<usize>, b: usize| a.map_or(b, |a| a.min(b));
    let _note = Note(seed);
    let (queue, time) = built(|builder: Builder<u64>| strict(builder).levels(8));
    let all_owed = Mutex::new(HashMap::<u64, Owed>::new());
    let held = Mutex::new(HashSet::new());
    let producers = AtomicUsize::new(10);
    let produce = |mut random: fastrand::Rng| {
        for _ in 0..1000 {
            let (key, level) = (random.u64(0..KEYS), random.usize(0..8));
            let delay = random.u64(0..20).saturating_sub(10);
            let mut all_owed = all_owed.lock().unwrap();
            let owed = all_owed.entry(key).or_default();
            if matches!(queue.state(&key), Some(State::Queued | State::Dirty)) {
                // Its delay may have ended.
                owed.due = owed.due.or(owed.delayed.take());
            }
            let entry = queue.entry(key);
            entry.level(level).after(ms(delay)).add();
            if delay == 0 || owed.due.is_some() {
                let level = most_urgent(owed.delayed.take(), level);
                owed.due = Some(most_urgent(owed.due, level));
            } else {
                owed.delayed = Some(most_urgent(owed.delayed, level));
            }
        }
        producers.fetch_sub(1, Ordering::SeqCst);
    };
    let consume = || {
        loop {
            let ended = producers.load(Ordering::SeqCst) == 0;
            let mut all_owed_now = all_owed.lock().unwrap();
            if ended && all_owed_now.is_empty() {
                return;
            }
            time.advance(MS);
            queue.fire_due();
            let Ok(item) = queue.try_get() else {
                drop(all_owed_now);
                thread::yield_now();
                continue;
            };
            let owed = all_owed_now.remove(&*item);
            drop(all_owed_now);
            let level = owed.and_then(|owed| owed.due.or(owed.delayed));
            assert_eq!(level, Some(item.level()), "of {}", *item);
            assert!(held.lock().unwrap().insert(*item), "held twice: {}", *item);
            thread::yield_now();
            assert!(held.lock().unwrap().remove(&*item));
        }
    };
    thread::scope(|scope| {
        for n in 0..10 {
            let (produce, random) = (&produce, fastrand::Rng::with_seed(seed * 10 + n));
            scope.spawn(move || produce(random));
        }
        for _ in 0..20 {
            scope.spawn(consume);
        }
    });
    assert_eq!(after(&queue, &time, HOUR), [0; 0], "nothing more is owed");
}

#[test] // C3 C5 P3 P4 D5
fn test_fuzz_priority_queue() {
    let _watchdog = watchdog(120);
    (0..20).for_each(fuzz);
}
