//! A known amount of real work: what a worker does with a key.
//!
//! One chain of dependent multiplications, as many of them as take the time asked for on this
//! machine. No clock is read while it runs, so that it costs the same whether it is interrupted
//! or not, and several may run at once.

use std::hint::black_box;
use std::time::Instant;

/// Work that takes a set time on an undisturbed core.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    steps: u32,
}

impl Work {
    pub(crate) const NONE: Self = Self { steps: 0 };

    /// As many steps as take this many nanoseconds.
    pub(crate) fn calibrated(ns: f64) -> Self {
        let probe = Self { steps: 10_000 };
        let steps = ns * f64::from(probe.steps) / probe.measure(2_000);
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

    /// Nanoseconds that one run takes now.
    pub(crate) fn measure(self, runs: u32) -> f64 {
        fastest(runs, || self.run())
    }
}

/// Nanoseconds for a call, in the fastest of ten blocks of them, since whatever disturbs only adds.
pub(crate) fn fastest(calls: u32, call: impl Fn()) -> f64 {
    let block = |_| {
        let start = Instant::now();
        (0..calls / 10).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / f64::from(calls / 10)
    };
    (0..10).map(block).fold(f64::INFINITY, f64::min)
}
