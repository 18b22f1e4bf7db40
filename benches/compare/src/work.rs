//! A known amount of real work: what a worker does with a key.
//!
//! One chain of dependent multiplications, as many of them as take the time asked for on this
//! machine. No clock is read while it runs, so that it costs the same whether it is interrupted
//! or not, and several may run at once.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Work that takes a set time on an undisturbed core.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    steps: u32,
}

impl Work {
    /// No work.
    pub(crate) const NONE: Self = Self { steps: 0 };

    /// Finds out how many steps take `time`.
    pub(crate) fn calibrated(time: Duration) -> Self {
        let probe = Self { steps: 10_000 };
        let steps = time.as_secs_f64() * 1e9 * f64::from(probe.steps) / probe.measure(2_000);
        Self {
            steps: steps.round() as u32,
        }
    }

    /// Does it once.
    pub(crate) fn run(self) {
        let mut x = black_box(u64::from(self.steps));
        for _ in 0..self.steps {
            x = x.wrapping_mul(x | 5);
        }
        black_box(x);
    }

    /// Nanoseconds that one run takes now: the fastest of ten blocks, since whatever disturbs
    /// only adds.
    pub(crate) fn measure(self, runs: u32) -> f64 {
        let block = || {
            let start = Instant::now();
            for _ in 0..runs / 10 {
                self.run();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(runs / 10)
        };
        (0..10).map(|_| block()).fold(f64::INFINITY, f64::min)
    }
}
