//! Delays: setting a million, letting many end within a moment, moving and cancelling, and the memory
//! of a delayed key.
//!
//! Only `u64` keys: other workloads measure what longer keys cost.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::keys::{Key, Tally};
use crate::memory::Meter;
use crate::queue::Delays;
use crate::spec::{Delay, Scale};

/// The longest delay where none should end.
const FAR: Duration = Duration::from_secs(600);
/// Delays of `fire` are due within this time of their start.
const BURST: Duration = Duration::from_millis(200);
/// The time that setting them may take.
const LEAD: Duration = Duration::from_millis(300);

pub(crate) fn run<D: Delays>(of: Delay, scale: &Scale) -> Vec<f64> {
    match of {
        Delay::Insert => insert::<D>(scale.keys),
        Delay::Fire => fire::<D>(scale.fired),
        Delay::Reset => reset::<D>(scale.keys),
        Delay::Memory => memory::<D>(scale.keys),
    }
}

/// Below `most`, the same for each key in every run.
fn random(key: u64, most: Duration) -> Duration {
    let wide = u128::from(key.wrapping_mul(0xD6E8_FEB8_6659_FD93)) * most.as_nanos();
    Duration::from_nanos((wide >> 64) as u64)
}

fn keys(n: usize) -> impl Iterator<Item = u64> {
    (0..n).map(u64::nth)
}

/// Between half of [`FAR`] and all of it.
fn far(key: u64) -> Duration {
    FAR / 2 + random(key, FAR / 2)
}

fn set_far<D: Delays>(delays: &D, n: usize) {
    keys(n).for_each(|key| delays.add_after(key, far(key)));
    delays.settle();
}

/// Nanoseconds to set a delay of up to ten minutes.
fn insert<D: Delays>(n: usize) -> Vec<f64> {
    let delays = D::new();
    let start = Instant::now();
    set_far(&delays, n);
    let elapsed = start.elapsed();
    assert!(!D::CANCELS || delays.cancel(u64::nth(n - 1)));
    vec![elapsed.as_nanos() as f64 / n as f64]
}

/// The lateness of keys that are due within a moment of each other (median, 99th percentile, most),
/// and the processor time for each key.
fn fire<D: Delays>(n: usize) -> Vec<f64> {
    let delays = D::new();
    let used = processor_time();
    let start = Instant::now() + LEAD;
    let due = |key: u64| start + random(key, BURST);
    let mut delivered = Tally::default();
    let mut lateness = Histogram::<u64>::new(3).expect("three digits are allowed");
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in keys(n) {
                delays.add_after(key, due(key).saturating_duration_since(Instant::now()));
            }
        });
        for _ in 0..n {
            let key = delays.get();
            lateness += due(key).elapsed().as_nanos() as u64;
            delivered.count(&key);
        }
    });
    assert_eq!(delivered, Tally::of_first::<u64>(n));
    let used = processor_time() - used;
    let at = |quantile| lateness.value_at_quantile(quantile) as f64 / 1000.0;
    vec![
        at(0.5),
        at(0.99),
        lateness.max() as f64 / 1000.0,
        used / n as f64,
    ]
}

/// Nanoseconds of processor time that this process has used, where there is a clock for it.
fn processor_time() -> f64 {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }
    #[cfg(not(unix))]
    f64::NAN
}

/// Nanoseconds for each of a million delays to move it once, to an earlier time, and to cancel
/// every other one.
fn reset<D: Delays>(n: usize) -> Vec<f64> {
    let delays = D::new();
    set_far(&delays, n);
    let start = Instant::now();
    for key in keys(n) {
        delays.add_after(key, far(key) - FAR / 4);
    }
    delays.settle();
    let moved = start.elapsed();
    if !D::CANCELS {
        return vec![moved.as_nanos() as f64 / n as f64, f64::NAN];
    }
    let cancelled = keys(n).step_by(2).filter(|&key| delays.cancel(key)).count();
    let both = start.elapsed();
    assert_eq!(cancelled, n.div_ceil(2));
    vec![
        moved.as_nanos() as f64 / n as f64,
        (both - moved).as_nanos() as f64 / cancelled as f64,
    ]
}

/// Bytes for each delayed key, table and timer included.
fn memory<D: Delays>(n: usize) -> Vec<f64> {
    let meter = Meter::start();
    let delays = D::new();
    set_far(&delays, n);
    vec![meter.bytes() / n as f64]
}
