//! Delays: setting a million, letting many end within a moment, moving and cancelling, and the memory
//! of a delayed key.
//!
//! Only `u64` keys: other workloads measure what longer keys cost.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rig::heap::Meter;

use super::{processor_time, quantiles};
use crate::keys::{Key, Tally};
use crate::queue::Delays;
use crate::workload::{Kind, Round};

/// The longest delay where none should end.
const FAR: Duration = Duration::from_secs(600);
/// Delays of `fire` are due within this time of their start.
const BURST: Duration = Duration::from_millis(200);
/// The time that setting them may take.
const LEAD: Duration = Duration::from_millis(300);

pub(crate) fn run<D: Delays>(round: &Round<'_>) -> Option<Vec<f64>> {
    Some(match round.kind {
        Kind::DelayInsert => insert::<D>(round.count),
        Kind::DelayFire => fire::<D>(round.count),
        Kind::DelayReset => reset::<D>(round.count),
        Kind::DelayMemory => memory::<D>(round.count),
        _ => return None,
    })
}

/// Below `most`, the same for each key in every run.
fn random(key: u64, most: Duration) -> Duration {
    let wide = u128::from(key.wrapping_mul(0xD6E8_FEB8_6659_FD93)) * most.as_nanos();
    Duration::from_nanos((wide >> 64) as u64)
}

fn keys(n: usize) -> impl Iterator<Item = u64> {
    (0..n).map(u64::nth)
}

/// Sets delays between half of [`FAR`] and all of it, less `sooner`; nanoseconds for each.
fn set_far<D: Delays>(delays: &D, n: usize, sooner: Duration) -> f64 {
    let start = Instant::now();
    for key in keys(n) {
        delays.add_after(key, FAR / 2 + random(key, FAR / 2) - sooner);
    }
    delays.settle();
    start.elapsed().as_nanos() as f64 / n as f64
}

/// Nanoseconds to set a delay of up to ten minutes.
fn insert<D: Delays>(n: usize) -> Vec<f64> {
    let delays = D::new(channel().0);
    let each = set_far(&delays, n, Duration::ZERO);
    assert_ne!(delays.cancel(u64::nth(n - 1)), Some(false));
    vec![each]
}

/// The lateness of keys that are due within a moment of each other (median, 99th percentile, most),
/// and the processor time for each key.
fn fire<D: Delays>(n: usize) -> Vec<f64> {
    let (send, ready) = channel();
    let delays = D::new(send);
    let used = processor_time();
    let start = Instant::now() + LEAD;
    let due = |key: u64| start + random(key, BURST);
    let mut delivered = Tally::default();
    let mut lateness = Vec::with_capacity(n);
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in keys(n) {
                delays.add_after(key, due(key).saturating_duration_since(Instant::now()));
            }
        });
        for _ in 0..n {
            let key = delays.get(&ready);
            lateness.push(due(key).elapsed().as_nanos() as u64);
            delivered.count(&key);
        }
    });
    let used = processor_time() - used;
    assert_eq!(delivered, Tally::of_first::<u64>(n));
    let [p50, p99, most] = quantiles(lateness, [0.5, 0.99, 1.0]).map(|ns| ns / 1000.0);
    vec![p50, p99, most, used / n as f64]
}

/// Nanoseconds for each of a million delays to move it once, to an earlier time, and to cancel
/// every other one.
fn reset<D: Delays>(n: usize) -> Vec<f64> {
    let delays = D::new(channel().0);
    set_far(&delays, n, Duration::ZERO);
    let moved = set_far(&delays, n, FAR / 4);
    let start = Instant::now();
    for key in keys(n).step_by(2) {
        match delays.cancel(key) {
            Some(pending) => assert!(pending, "{key:#x} was not delayed"),
            None => return vec![moved],
        }
    }
    let cancelled = start.elapsed().as_nanos() as f64 / n.div_ceil(2) as f64;
    vec![moved, cancelled]
}

/// Bytes for each delayed key, table and timer included.
fn memory<D: Delays>(n: usize) -> Vec<f64> {
    let meter = Meter::start();
    let delays = D::new(channel().0);
    set_far(&delays, n, Duration::ZERO);
    vec![meter.bytes() / n as f64]
}
