//! An open loop: keys are added at set times, whether or not the queue keeps up, and each key's
//! latency counts from the time at which it was to be added.
//!
//! So a stall counts for every key that it holds up, even a stall of the producer (closed loops leave
//! those keys out: "coordinated omission").

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::flow;
use crate::keys::{Key, Tally};
use crate::queue::Queue;
use crate::race::{self, Racer};
use crate::spec::{Crowd, Pace, Scale};
use crate::work::Work;

/// Nanoseconds between two keys, and from the time of an add to its `get`: median, 99th, 99.9th
/// percentile.
pub(super) fn run<C: Queue<u64>>(scale: &Scale, pace: Pace) -> Vec<f64> {
    let interval = match pace {
        Pace::Common => scale.common_interval,
        Pace::Own => 2.0 * flow::run::<u64, C>(scale.paced, Crowd::of(1, 1), Work::NONE),
    };
    let queue = C::new();
    let keys: Vec<C::Key> = (0..scale.paced).map(|n| C::key(u64::nth(n))).collect();
    // A moment for both threads to be there.
    let start = Instant::now() + Duration::from_millis(1);
    let due = |n: usize| start + Duration::from_nanos((n as f64 * interval) as u64);

    let mut racers: Vec<Racer<'_, (Histogram<u64>, Tally)>> = Vec::new();
    racers.push(Box::new(|| {
        for (n, key) in keys.into_iter().enumerate() {
            let due = due(n);
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            queue.add(key);
        }
        queue.shut_down();
        (histogram(), Tally::default())
    }));
    racers.push(Box::new(|| {
        let (mut latencies, mut delivered) = (histogram(), Tally::default());
        while let Some(item) = queue.get() {
            let key = C::key_of(&item);
            latencies += due(number(*key)).elapsed().as_nanos() as u64;
            delivered.count(key);
            queue.done(item);
        }
        (latencies, delivered)
    }));
    let laps = race::run(racers);
    let (latencies, delivered) = &laps[1].result;
    assert_eq!(*delivered, Tally::of_first::<u64>(scale.paced));
    let at = |quantile| latencies.value_at_quantile(quantile) as f64;
    vec![interval, at(0.5), at(0.99), at(0.999)]
}

fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

/// Which key of the sequence it is: undoes [`Key::nth`].
fn number(key: u64) -> usize {
    // The inverse of its factor, modulo 2^64.
    key.wrapping_mul(0xF1DE_83E1_9937_733D) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_number() {
        for n in [0, 1, 2, 1000, 199_999, usize::MAX] {
            assert_eq!(number(u64::nth(n)), n);
        }
    }
}
