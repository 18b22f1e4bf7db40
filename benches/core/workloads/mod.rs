//! The workloads: what a round of each does.
//!
//! | file | workloads |
//! | --- | --- |
//! | `catalogue` | all by id, with their metrics and targets |
//! | `one_thread` | cycle, memory, start |
//! | `duplicate` | adding queued keys |
//! | `flow` | producers and consumers, each key once: unique, string, work |
//! | `hot` | producers and consumers, few keys over and over |
//! | `wake` | a parked consumer |
//! | `delay` | delays: insert, fire, reset, memory |
//!
//! A round returns one figure for each metric of its workload, always "less is better", and panics
//! with the values when a count is wrong.

mod catalogue;
pub(crate) mod delay;
mod duplicate;
mod flow;
mod hot;
mod one_thread;
mod wake;

use std::fmt;
use std::time::Duration;

use crate::contenders::Queue;
use crate::keys::Key;
use crate::work::Work;

pub(crate) use catalogue::{Metric, Target, Workload, all};
pub(crate) use delay::Delays;

/// What to run.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Cycle(By),
    /// On so many threads.
    Duplicate(usize, By),
    Flow(Keys, Crowd),
    Hot(Crowd),
    Memory,
    Start,
    Wake,
    Delay(delay::Kind),
}

/// How keys are added.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    U64,
    Str,
    Handle,
}

/// What flows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    U64,
    Strings,
    /// `u64` keys with real work for each.
    Worked,
}

/// The threads of a workload.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    producers: usize,
    consumers: usize,
}

impl Kind {
    pub(crate) fn is_of_strings(self) -> bool {
        matches!(self, Self::Cycle(By::Str) | Self::Flow(Keys::Strings, _))
    }
}

impl Crowd {
    const ALL: [Self; 3] = [Self::of(1, 1), Self::of(2, 2), Self::of(8, 8)];

    const fn of(producers: usize, consumers: usize) -> Self {
        Self {
            producers,
            consumers,
        }
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.producers, self.consumers)
    }
}

/// How much of everything.
pub(crate) struct Scale {
    /// Recurring keys of the single-threaded workloads.
    recurring: usize,
    cycles: usize,
    duplicates: usize,
    /// Distinct keys.
    keys: usize,
    hot_keys: usize,
    hot_adds: usize,
    starts: usize,
    wakes: usize,
    /// Delays that come up in a burst.
    fired: usize,
    /// Real work on one key.
    work: Work,
}

impl Scale {
    /// A divisor of 1 gives the numbers of keys that the targets speak of.
    pub(crate) fn divided_by(divisor: usize) -> Self {
        Self {
            recurring: 1024,
            cycles: 2_000_000 / divisor,
            duplicates: 4_000_000 / divisor,
            keys: 1_000_000 / divisor,
            hot_keys: 64,
            hot_adds: 2_000_000 / divisor,
            starts: 10_000 / divisor,
            wakes: (1000 / divisor).max(1),
            fired: 200_000 / divisor,
            work: Work::calibrated(Duration::from_nanos(500)),
        }
    }
}

/// What the contenders of one round share.
pub(crate) struct Round {
    /// Nanoseconds that the work on one key takes an undisturbed core, measured as the round
    /// starts.
    work_ns: f64,
}

impl Round {
    pub(crate) fn start(scale: &Scale) -> Self {
        Self {
            work_ns: scale.work.measure(5_000),
        }
    }
}

/// Runs one round of a workload on a new queue.
pub(crate) fn run<Q: Key + ?Sized, C: Queue<Q>>(
    kind: Kind,
    scale: &Scale,
    round: &Round,
) -> Vec<f64> {
    match kind {
        Kind::Delay(_) => unreachable!("its contenders run it themselves"),
        Kind::Cycle(By::Handle) => one_thread::cycle_handle::<Q, C>(scale),
        Kind::Cycle(By::U64 | By::Str) => one_thread::cycle::<Q, C>(scale),
        Kind::Duplicate(threads, by) => duplicate::run::<Q, C>(scale, threads, by),
        Kind::Flow(Keys::U64 | Keys::Strings, crowd) => {
            vec![flow::run::<Q, C>(scale.keys, crowd, Work::NONE)]
        }
        Kind::Flow(Keys::Worked, crowd) => {
            let ideal = round.work_ns / crowd.consumers.min(cores()) as f64;
            let whole = flow::run::<Q, C>(scale.keys, crowd, scale.work);
            vec![whole, whole - ideal]
        }
        Kind::Hot(crowd) => hot::run::<Q, C>(scale, crowd),
        Kind::Memory => one_thread::memory::<Q, C>(scale),
        Kind::Start => one_thread::start::<Q, C>(scale),
        Kind::Wake => wake::run::<Q, C>(scale),
    }
}

/// Hardware threads of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
