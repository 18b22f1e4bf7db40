//! Races of waiting: a getter gives up while it is notified, and every kind of waiter at once (C9).
//!
//! The races run in *rounds*: each round adds keys while all threads are free to sleep, and then
//! waits for them to be delivered. So a single lost wake-up makes the round hang, where a steady
//! stream would hide it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::common::{Config, Queue, poll, scaled, waiting, with_these_queues};
use async_executor::Executor;
use futures_lite::future::block_on;
use keyqueue::Added;
use tokio::runtime::Runtime;

/// Spins for a random while, so that two threads meet at ever different points.
fn dawdle(most: u32) {
    for _ in 0..fastrand::u32(0..=scaled(most as usize) as u32) {
        std::hint::spin_loop();
    }
}

/// Runs rounds with one key, one getter that gives up half-way, and a thread that waits forever: if
/// the quitter does not take the key, that thread must.
fn rounds_against_a_quitter(quitter: impl Fn(&Queue<u64>) -> bool + Sync) {
    const ROUNDS: usize = scaled(2000);
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue();
        let delivered = AtomicUsize::new(0);
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !queue.is_shutting_down() {
                    // Lets the quitter register first: the add must notify it.
                    if waiting(&queue) == 0 && queue.is_empty() {
                        thread::yield_now();
                    } else if queue.get().is_some() {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    start.wait();
                    if quitter(&queue) {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                    start.wait();
                }
            });
            for round in 0..ROUNDS {
                start.wait();
                dawdle(4000);
                queue.add(round as u64);
                start.wait(); // the quitter has left
                while delivered.load(Ordering::SeqCst) <= round {
                    thread::yield_now();
                }
            }
            queue.shut_down();
        });
        assert_eq!(delivered.into_inner(), ROUNDS);
    });
}

#[test] // C9
fn a_key_added_as_the_only_getter_goes_to_sleep_wakes_it() {
    const ROUNDS: usize = scaled(4000);
    let getters: [fn(&Queue<u64>) -> bool; 3] = [
        |queue| queue.get().is_some(),
        |queue| queue.get_timeout(Duration::MAX).is_ok(),
        |queue| pollster::block_on(queue.get_async()).is_some(),
    ];
    for get in getters {
        with_these_queues(&Config::races(), |config| {
            let queue = config.queue();
            let delivered = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while get(&queue) {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                });
                for round in 0..ROUNDS {
                    dawdle(1500);
                    queue.add(round as u64);
                    while delivered.load(Ordering::SeqCst) <= round {
                        thread::yield_now();
                    }
                }
                queue.shut_down();
            });
            assert_eq!(delivered.into_inner(), ROUNDS);
        });
    }
}

#[test] // C1 C9
fn no_getter_finds_a_queue_empty_that_holds_a_key_for_it() {
    const EACH: u64 = scaled(20_000) as u64;
    for ring in [1, 2, 3, 200] {
        let config = Config {
            ring: Some(ring),
            ..Config::usual()
        };
        let queue = config.queue();
        queue.add_all(0..3 * EACH);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    // Whatever the others take, there is one for each of these looks.
                    for look in 0..EACH {
                        let got = queue.try_get();
                        assert!(got.is_ok(), "look {look} with a ring of {ring}");
                    }
                });
            }
        });
        assert!(queue.is_empty());
    }
}

#[test] // C9
fn a_thread_that_times_out_as_it_is_notified_loses_no_key() {
    rounds_against_a_quitter(|queue| {
        let limit = Duration::from_nanos(fastrand::u64(10_000..80_000));
        queue.get_timeout(limit).is_ok()
    });
}

#[test] // C9
fn a_task_that_is_dropped_as_it_is_notified_loses_no_key() {
    rounds_against_a_quitter(|queue| {
        let mut task = queue.get_async();
        let got = poll(&mut task, Waker::noop()).is_ready();
        dawdle(3000);
        got
    });
}

#[test] // C9 C12
#[cfg_attr(miri, ignore = "a crowd of threads, of which Miri runs one at a time")]
fn threads_and_tasks_of_every_kind_share_a_queue_and_no_getter_is_forgotten() {
    const ROUNDS: usize = scaled(1500);
    with_these_queues(&Config::races(), |config| {
        let queue = Arc::new(config.queue());
        let delivered = Arc::new(AtomicUsize::new(0));
        let task = || {
            let (queue, delivered) = (Arc::clone(&queue), Arc::clone(&delivered));
            async move {
                while queue.get_async().await.is_some() {
                    delivered.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        let tokio = Runtime::new().unwrap();
        let on_tokio = [(); 3].map(|()| tokio.spawn(task()));
        let smol = Executor::new();
        let on_smol = [(); 3].map(|()| smol.spawn(task()));
        thread::scope(|scope| {
            scope.spawn(|| {
                block_on(smol.run(async {
                    for task in on_smol {
                        task.await;
                    }
                }));
            });
            for _ in 0..2 {
                let task = task();
                scope.spawn(|| pollster::block_on(task));
                scope.spawn(|| {
                    while queue.get().is_some() {
                        delivered.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                while let Some(batch) = queue.get_batch(3) {
                    delivered.fetch_add(batch.len(), Ordering::SeqCst);
                }
            });
            let mut added = 0;
            for round in 0..ROUNDS {
                let first = added;
                added += fastrand::usize(1..=12);
                let keys = (first..added).map(|key| key as u64);
                match round % 3 {
                    0 => assert_eq!(queue.add_all(keys.clone()), keys.len()),
                    1 => keys.for_each(|key| assert_eq!(queue.add(key), Added::Queued)),
                    _ => keys.for_each(|key| assert_eq!(queue.handle(key).add(), Added::Queued)),
                }
                while delivered.load(Ordering::SeqCst) < added {
                    thread::yield_now();
                }
            }
            assert_eq!(delivered.load(Ordering::SeqCst), added);
            queue.shut_down();
        });
        for task in on_tokio {
            tokio.block_on(task).unwrap();
        }
    });
}
