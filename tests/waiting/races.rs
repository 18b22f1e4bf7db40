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
use keyqueue::Added;

/// Spins for a random while, so that two threads meet at ever different points.
fn dawdle(most: u32) {
    for _ in 0..fastrand::u32(0..=scaled(most as usize) as u32) {
        std::hint::spin_loop();
    }
}

/// Runs rounds with one key, one getter that gives up half-way, and a thread that waits forever: if
/// the quitter does not take the key, that thread must.
fn rounds_against_a_quitter(quitter: impl Fn(&Queue<usize>) -> bool + Sync) {
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
                queue.add(round);
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

/// Runs rounds with one key and one getter, which may be about to sleep when the key is added.
fn rounds_with_one_getter(consume: impl Fn(&Queue<usize>) -> bool + Sync) {
    const ROUNDS: usize = scaled(4000);
    with_these_queues(&Config::races(), |config| {
        let queue = config.queue();
        let delivered = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while consume(&queue) {
                    delivered.fetch_add(1, Ordering::SeqCst);
                }
            });
            for round in 0..ROUNDS {
                dawdle(1500);
                queue.add(round);
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
fn a_key_added_as_the_only_thread_goes_to_sleep_wakes_it() {
    rounds_with_one_getter(|queue| queue.get().is_some());
}

#[test] // C9
fn a_key_added_as_the_only_timed_thread_goes_to_sleep_wakes_it() {
    rounds_with_one_getter(|queue| queue.get_timeout(Duration::MAX).is_ok());
}

#[test] // C9
fn a_key_added_as_the_only_task_goes_to_sleep_wakes_it() {
    rounds_with_one_getter(|queue| pollster::block_on(queue.get_async()).is_some());
}

#[test] // C1 C9
fn nobody_finds_a_queue_empty_that_holds_a_key_for_him() {
    const EACH: usize = scaled(20_000);
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

#[test] // C9
fn tasks_cancelled_on_tokio_lose_no_key() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    rounds_against_a_quitter(|queue| {
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = tokio::task::yield_now() => false,
                item = queue.get_async() => item.is_some(),
            }
        })
    });
}

/// A consumer that counts what it delivers.
async fn consume(queue: Arc<Queue<usize>>, delivered: Arc<AtomicUsize>) {
    while let Some(item) = queue.get_async().await {
        delivered.fetch_add(1, Ordering::SeqCst);
        item.done();
    }
}

#[test] // C9 C12
#[cfg_attr(miri, ignore = "smol needs system calls that Miri does not know")]
fn threads_and_tasks_of_every_kind_share_a_queue_and_nobody_is_forgotten() {
    const ROUNDS: usize = scaled(1500);
    with_these_queues(&Config::races(), |config| {
        let queue = Arc::new(config.queue());
        let delivered = Arc::new(AtomicUsize::new(0));
        let task = || consume(Arc::clone(&queue), Arc::clone(&delivered));
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let on_tokio: Vec<_> = (0..3).map(|_| tokio.spawn(task())).collect();
        let on_smol: Vec<_> = (0..3).map(|_| smol::spawn(task())).collect();
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let task = task();
                thread::spawn(move || pollster::block_on(task))
            })
            .collect();
        for max in [0, 0, 3] {
            let (queue, delivered) = (Arc::clone(&queue), Arc::clone(&delivered));
            threads.push(thread::spawn(move || {
                loop {
                    let taken = match max {
                        0 => queue.get().map_or(0, |_| 1),
                        max => queue.get_batch(max).map_or(0, |batch| batch.len()),
                    };
                    if taken == 0 {
                        break;
                    }
                    delivered.fetch_add(taken, Ordering::SeqCst);
                }
            }));
        }
        let mut added = 0;
        for round in 0..ROUNDS {
            let keys = added..added + fastrand::usize(1..=12);
            added = keys.end;
            match round % 3 {
                0 => assert_eq!(queue.add_all(keys.clone()), keys.len()),
                1 => keys.for_each(|key| assert_eq!(queue.add(key), Added::Queued)),
                _ => keys.for_each(|key| assert_eq!(queue.handle(key).add(), Added::Queued)),
            }
            while delivered.load(Ordering::SeqCst) < added {
                thread::yield_now();
            }
        }
        queue.shut_down();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        on_smol.into_iter().for_each(smol::block_on);
        tokio.block_on(async {
            for task in on_tokio {
                task.await.unwrap();
            }
        });
        assert_eq!(delivered.load(Ordering::SeqCst), added);
    });
}
