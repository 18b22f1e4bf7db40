//! Bounds among threads: nothing waits while there is room, and nothing is refused for room that is
//! counted twice (B1 to B3).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{scaled, watchdog};
use keyqueue::{Added, ValueQueue, WorkQueue, merge};

const ROUNDS: usize = scaled(20_000);
const THREADS: usize = 4;

fn bounded(capacity: usize) -> ValueQueue<usize, usize> {
    let builder = WorkQueue::builder().merge(merge::sum);
    builder.capacity(capacity).build().unwrap()
}

#[test] // B2
fn a_try_succeeds_while_there_is_room() {
    let _watchdog = watchdog(120);
    // Each thread has one value in the queue at most.
    let queue = bounded(THREADS);
    thread::scope(|scope| {
        for key in 0..THREADS {
            let queue = &queue;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    assert_eq!(queue.try_put(key, 1), Ok(Added::Queued));
                    while queue.state(&key) != keyqueue::State::Idle {
                        drop(queue.try_get());
                    }
                }
            });
        }
    });
}

/// Puts by every kind of wait, while the deliveries are random: some retry.
fn crowd(capacity: usize, weight: Option<usize>) {
    let _watchdog = watchdog(120);
    let mut builder = WorkQueue::builder().merge(merge::sum).capacity(capacity);
    if let Some(weight) = weight {
        builder = builder.weight(move |value| value * weight);
    }
    let queue: ValueQueue<usize, usize> = builder.build().unwrap();
    let (delivered, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let put: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (queue, refused) = (&queue, &refused);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let key = (round * 7 + thread) % 64;
                        let added = match (round + thread) % 6 {
                            0 => queue.try_put(key, 1).ok(),
                            1 => queue
                                .put_wait_timeout(key, 1, Duration::from_micros(50))
                                .ok(),
                            2 => Some(pollster::block_on(queue.put_async(key, 1))),
                            3 => {
                                // Cancelled after one poll, unless it was ready.
                                let put = Box::pin(queue.put_async(key, 1));
                                let ready = std::future::ready(None);
                                pollster::block_on(futures_lite::future::or(
                                    async { Some(put.await) },
                                    ready,
                                ))
                            }
                            4 if round % 32 == 0 => Some(queue.put(key, 1)),
                            _ => Some(queue.put_wait(key, 1)),
                        };
                        match added {
                            Some(added) => assert!(added.is_accepted()),
                            None => _ = refused.fetch_add(1, Ordering::Relaxed),
                        }
                    }
                })
            })
            .collect();
        for thread in 0..2 {
            let (queue, delivered) = (&queue, &delivered);
            scope.spawn(move || {
                let mut n = thread;
                while let Some(item) = queue.get() {
                    n += 1;
                    if n % 5 == 0 {
                        assert!(item.retry().is_accepted());
                    } else {
                        delivered.fetch_add(*item.value(), Ordering::Relaxed);
                    }
                }
            });
        }
        put.into_iter().for_each(|put| put.join().unwrap());
        // The retries end, because no more keys come.
        crate::common::eventually("all was delivered", || {
            delivered.load(Ordering::Relaxed) + refused.load(Ordering::Relaxed) == THREADS * ROUNDS
        });
        queue.shut_down();
    });
}

#[test] // B2 B3
fn no_put_waits_forever_by_keys() {
    crowd(1, None);
    crowd(16, None);
}

#[test] // B2 B3
fn no_put_waits_forever_by_weight() {
    crowd(1, Some(3));
    crowd(10, Some(3));
}

#[test] // B1
fn all_room_is_there_again_after_a_crowd() {
    let _watchdog = watchdog(120);
    let queue = bounded(8);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let queue = &queue;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    queue.put_wait((round + thread) % 16, 1);
                    if let Ok(item) = queue.try_get() {
                        match round % 3 {
                            0 => _ = item.retry(),
                            _ => item.done(),
                        }
                    }
                    _ = queue.remove(&((round * 3) % 16));
                    let _ = queue.try_get();
                }
            });
        }
    });
    while queue.try_get().is_ok() {}
    for key in 100..108 {
        assert_eq!(queue.try_put(key, 1), Ok(Added::Queued));
    }
    assert!(queue.try_put(108, 1).is_err());
}
