//! How much of everything: what a run, and a round of it, have in common.

use std::time::Duration;

use serde::Serialize;

use super::Log;
use crate::work::Work;

/// How much of everything. A contender in another process is told in JSON.
#[derive(Serialize)]
pub(crate) struct Scale {
    /// Recurring keys of the single-threaded workloads.
    pub(super) recurring: usize,
    pub(super) cycles: usize,
    pub(super) duplicates: usize,
    /// Distinct keys.
    pub(super) keys: usize,
    pub(super) hot_keys: usize,
    pub(super) hot_adds: usize,
    pub(super) backlog_workers: usize,
    pub(super) backlog_adds: usize,
    /// Distinct keys through the loop around the queue, and how many of them at a time.
    pub(crate) reconciled: usize,
    pub(crate) reconcilers: u16,
    /// Keys that come at a pace, and the nanoseconds between two of them where it is the same for
    /// all.
    pub(super) paced: usize,
    pub(crate) common_interval: f64,
    pub(super) starts: usize,
    pub(super) wakes: usize,
    /// Delays that come up in a burst.
    pub(super) fired: usize,
    /// Real work on one key: 500 ns.
    #[serde(skip)]
    pub(super) work: Work,
    pub(super) work_ns: f64,
    #[serde(skip)]
    pub(crate) log: Log,
}

impl Scale {
    /// A divisor of 1 gives the numbers of keys that the targets speak of.
    pub(crate) fn divided_by(divisor: usize, log: Log) -> Self {
        const WORK: Duration = Duration::from_nanos(500);
        Self {
            recurring: 1024,
            cycles: 2_000_000 / divisor,
            duplicates: 4_000_000 / divisor,
            keys: 1_000_000 / divisor,
            hot_keys: 64,
            hot_adds: 2_000_000 / divisor,
            backlog_workers: (1000 / divisor).max(100),
            backlog_adds: 100_000 / divisor,
            reconciled: 50_000 / divisor,
            reconcilers: 16,
            paced: 200_000 / divisor,
            common_interval: 2_000.0,
            starts: 10_000 / divisor,
            wakes: (1000 / divisor).max(1),
            fired: 200_000 / divisor,
            work: Work::calibrated(WORK),
            work_ns: WORK.as_nanos() as f64,
            log,
        }
    }
}

/// What the contenders of one round share.
pub(crate) struct Round {
    /// Nanoseconds that the work on one key takes an undisturbed core, measured as the round
    /// starts.
    pub(super) work_ns: f64,
}

impl Round {
    pub(crate) fn start(scale: &Scale) -> Self {
        Self {
            work_ns: scale.work.measure(5_000),
        }
    }
}

/// Hardware threads of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
