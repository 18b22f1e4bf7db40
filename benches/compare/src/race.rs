//! Threads that start together, and the time until the last of them ends.
//!
//! Every thread reads the clock twice, as it passes the barrier and as it ends: the one that
//! starts them all may itself be late to the start where there are fewer cores than threads.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// What one thread does.
pub(crate) type Racer<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// When a thread ran, and what it returned.
pub(crate) struct Lap<T> {
    start: Instant,
    end: Instant,
    pub(crate) result: T,
}

/// Runs each on its own thread; the laps are in the same order.
pub(crate) fn run<T: Send>(racers: Vec<Racer<'_, T>>) -> Vec<Lap<T>> {
    let barrier = &Barrier::new(racers.len());
    thread::scope(|scope| {
        let start = |racer: Racer<'_, T>| {
            barrier.wait();
            let start = Instant::now();
            let result = racer();
            Lap {
                start,
                end: Instant::now(),
                result,
            }
        };
        let threads: Vec<_> = racers
            .into_iter()
            .map(|racer| scope.spawn(move || start(racer)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("the thread panicked"))
            .collect()
    })
}

/// Nanoseconds from the first start to the last end.
pub(crate) fn ns<T>(laps: &[Lap<T>]) -> f64 {
    let start = laps.iter().map(|lap| lap.start).min().expect("a lap");
    let end = laps.iter().map(|lap| lap.end).max().expect("a lap");
    (end - start).as_nanos() as f64
}
