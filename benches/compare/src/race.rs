//! Threads that start together, and the time until the last of them ends.
//!
//! Every thread reads the clock twice, as it passes the barrier and as it ends: the one that
//! starts them all may itself be late to the start where there are fewer cores than threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use crate::keys::Tally;

/// Nanoseconds from the first start to the end of the last producer and of the last thread, and
/// what the consumers returned.
pub(crate) struct Race {
    pub(crate) adding_ns: f64,
    pub(crate) ns: f64,
    pub(crate) delivered: Tally,
}

/// Runs each producer and each consumer on its own thread. The last producer to end calls `over`,
/// which shuts the queue down: it still delivers what is queued, and then its consumers end,
/// without a counter that they would share.
pub(crate) fn race(
    producers: Vec<impl FnOnce() + Send>,
    over: impl Fn() + Sync,
    consumers: Vec<impl FnOnce() -> Tally + Send>,
) -> Race {
    let producing = &AtomicUsize::new(producers.len());
    let (start, over) = (&Barrier::new(producers.len() + consumers.len()), &over);
    thread::scope(|scope| {
        let produce = |run| {
            scope.spawn(move || {
                let lap = lap(start, run);
                // Ordering: AcqRel; the last one's call comes after the adds of all.
                if producing.fetch_sub(1, Ordering::AcqRel) == 1 {
                    over();
                }
                lap
            })
        };
        let consume = |run| scope.spawn(move || lap(start, run));
        let producers: Vec<_> = producers.into_iter().map(produce).collect();
        let consumers: Vec<_> = consumers.into_iter().map(consume).collect();

        let mut laps = Vec::new();
        for producer in producers {
            laps.push(producer.join().expect("a producer panicked").0);
        }
        let adding_ns = ns(&laps);
        let mut delivered = Tally::default();
        for consumer in consumers {
            let (lap, tally) = consumer.join().expect("a consumer panicked");
            laps.push(lap);
            delivered = delivered.merge(tally);
        }
        Race {
            adding_ns,
            ns: ns(&laps),
            delivered,
        }
    })
}

/// A start and an end.
type Lap = (Instant, Instant);

fn lap<T>(barrier: &Barrier, run: impl FnOnce() -> T) -> (Lap, T) {
    barrier.wait();
    let start = Instant::now();
    let result = run();
    ((start, Instant::now()), result)
}

/// From the first start to the last end.
fn ns(laps: &[Lap]) -> f64 {
    let start = laps.iter().map(|lap| lap.0).min().expect("a lap");
    let end = laps.iter().map(|lap| lap.1).max().expect("a lap");
    (end - start).as_nanos() as f64
}
