//! The promises of levels beside other threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{Config, scaled, with_these_queues};
use keyqueue::{Added, WorkQueue};

#[test] // C2 C3 C5 P3: raised by many threads, while it is delivered
fn racing_raises_neither_lose_nor_double_a_key() {
    const KEYS: usize = 8;
    let adds = scaled(40_000);
    with_these_queues(&[Config::usual(), Config::tiny()], |config| {
        let config = Config {
            levels: 4,
            ..config.clone()
        };
        let queue = config.queue::<usize>();
        let held: [AtomicUsize; KEYS] = Default::default();
        // What the last add of each key was told about, and what its last delivery saw.
        let (told, seen): ([AtomicUsize; KEYS], [AtomicUsize; KEYS]) = Default::default();
        thread::scope(|scope| {
            let _end = queue.shut_down_on_drop();
            let adders: Vec<_> = (0..3_usize)
                .map(|adder| {
                    let (queue, told) = (&queue, &told);
                    scope.spawn(move || {
                        for n in 0..adds {
                            let key = n * 7 % KEYS;
                            told[key].fetch_add(1, Ordering::Relaxed);
                            assert_ne!(queue.add_at((n / KEYS + adder) % 5, key), Added::ShutDown);
                        }
                    })
                })
                .collect();
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(item) = queue.get() {
                        let key = *item;
                        assert!(item.level() < 4);
                        assert_eq!(held[key].fetch_add(1, Ordering::Relaxed), 0, "two holders");
                        seen[key].store(told[key].load(Ordering::Relaxed), Ordering::Relaxed);
                        held[key].fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            queue.shut_down_with_drain();
        });
        for key in 0..KEYS {
            let [told, seen] = [&told[key], &seen[key]].map(|n| n.load(Ordering::Relaxed));
            assert_eq!(
                seen, told,
                "the last add of {key} was not followed by a delivery"
            );
        }
        assert!(queue.is_empty());
    });
}

#[test] // P2: with any number of getters, counted over all of them
fn no_level_starves_with_many_getters() {
    const LIMIT: usize = 4;
    let urgent = scaled(40_000);
    let queue = WorkQueue::builder()
        .levels(2)
        .starvation_limit(LIMIT)
        .build()
        .unwrap();
    let others = urgent / (LIMIT - 1);
    (0..urgent).for_each(|key| _ = queue.add_at(0, key));
    (0..others).for_each(|key| _ = queue.add_at(1, urgent + key));
    let deliveries: usize = thread::scope(|scope| {
        let getters: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| queue.try_iter().filter(|item| item.level() == 1).count()))
            .collect();
        getters
            .into_iter()
            .map(|getter| getter.join().unwrap())
            .sum()
    });
    assert_eq!(deliveries, others);
    // Both had keys all the time, so they ended together: had the others starved, they would be left.
    assert!(queue.is_empty());
}
