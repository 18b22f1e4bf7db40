//! The workloads: what a round of each does.
//!
//! | file | workloads |
//! | --- | --- |
//! | `catalogue` | all by id, with their metrics and targets |
//! | `scale` | how many keys, adds, threads: the parameters of all |
//! | `one_thread` | cycle, memory, start |
//! | `duplicate` | adding queued keys |
//! | `flow` | producers and consumers, each key once: unique, string, work |
//! | `hot` | producers and consumers, few keys over and over |
//! | `replay` | the events of a log, `log` makes one |
//! | `backlog` | a million keys waiting, a thousand workers |
//! | `reconcile` | the loop around the queue |
//! | `latency` | adds at a set pace, from add to get |
//! | `wake` | a parked consumer |
//! | `delay` | delays: insert, fire, reset, memory |
//! | `limiter` | rate limiters |
//!
//! A round returns one figure for each metric of its workload, always "less is better", and panics
//! with the values when a count is wrong. A figure that is not a number stands for what a
//! contender cannot do.

pub(crate) mod backlog;
mod catalogue;
pub(crate) mod delay;
mod duplicate;
mod flow;
mod hot;
mod latency;
pub(crate) mod limiter;
mod log;
mod one_thread;
pub(crate) mod reconcile;
mod replay;
mod scale;
pub(crate) mod wake;

use std::fmt;

use serde::Serialize;

use crate::contenders::Queue;
use crate::keys::{Key, Tally};
use crate::work::Work;

pub(crate) use catalogue::{Metric, Target, Workload, all};
pub(crate) use delay::Delays;
pub(crate) use limiter::Limiter;
pub(crate) use log::Log;
pub(crate) use scale::{Round, Scale, cores};

/// What to run. A contender in another process is told in JSON.
#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Kind {
    Cycle { by: By },
    Duplicate { threads: usize, by: By },
    Flow { keys: Keys, crowd: Crowd },
    Hot { crowd: Crowd },
    Replay,
    Backlog,
    Reconcile,
    Latency { pace: Pace },
    Wake { waiter: Waiter },
    Delay { of: delay::Kind },
    Limiter { limiter: Limiter, threads: usize },
    Memory,
    Start,
}

/// How keys are added.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    U64,
    Str,
    Handle,
}

/// What flows.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keys {
    U64,
    Strings,
    /// `u64` keys with real work for each.
    Worked,
}

/// How often a key comes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pace {
    /// At half the rate that client-go can take, for everybody.
    Common,
    /// At half the rate that the contender itself can take.
    Own,
}

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Waiter {
    Thread,
    Task,
}

/// The threads of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Crowd {
    producers: usize,
    consumers: usize,
}

impl Kind {
    /// As many keys as a producer and a consumer can move.
    pub(crate) const SATURATED: Self = Self::Flow {
        keys: Keys::U64,
        crowd: Crowd::of(1, 1),
    };

    pub(crate) fn is_of_strings(self) -> bool {
        matches!(
            self,
            Self::Cycle { by: By::Str }
                | Self::Flow {
                    keys: Keys::Strings,
                    ..
                }
                | Self::Replay
        )
    }

    /// What a contender in another process must have delivered, where that is known beforehand.
    pub(crate) fn delivers(self, scale: &Scale) -> Option<Tally> {
        let first = |n| {
            Some(if self.is_of_strings() {
                Tally::of_first::<str>(n)
            } else {
                Tally::of_first::<u64>(n)
            })
        };
        match self {
            Self::Cycle { .. } => {
                let passes = one_thread::passes(scale, scale.recurring);
                first(scale.recurring).map(|tally| tally.times(passes as u64))
            }
            Self::Duplicate { .. } => first(scale.recurring),
            Self::Flow { .. } | Self::Memory => first(scale.keys),
            Self::Start => first(1).map(|tally| tally.times(scale.starts as u64)),
            Self::Backlog => first(scale.keys + scale.backlog_adds),
            Self::Latency { .. } => first(scale.paced),
            Self::Wake { .. } => first(scale.wakes),
            Self::Delay {
                of: delay::Kind::Fire,
            } => first(scale.fired),
            Self::Hot { .. }
            | Self::Replay
            | Self::Reconcile
            | Self::Delay { .. }
            | Self::Limiter { .. } => None,
        }
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

/// Runs one round of a workload on a new queue.
pub(crate) fn run<Q: Key + ?Sized, C: Queue<Q>>(
    kind: Kind,
    scale: &Scale,
    round: &Round,
) -> Vec<f64> {
    match kind {
        Kind::Backlog
        | Kind::Delay { .. }
        | Kind::Latency { .. }
        | Kind::Limiter { .. }
        | Kind::Reconcile
        | Kind::Replay
        | Kind::Wake {
            waiter: Waiter::Task,
        } => {
            unreachable!("not for every kind of key: its contenders run it themselves")
        }
        Kind::Cycle { by: By::Handle } => one_thread::cycle_handle::<Q, C>(scale),
        Kind::Cycle {
            by: By::U64 | By::Str,
        } => one_thread::cycle::<Q, C>(scale),
        Kind::Duplicate { threads, by } => duplicate::run::<Q, C>(scale, threads, by),
        Kind::Flow {
            keys: Keys::U64 | Keys::Strings,
            crowd,
        } => {
            vec![flow::run::<Q, C>(scale.keys, crowd, Work::NONE)]
        }
        Kind::Flow {
            keys: Keys::Worked,
            crowd,
        } => {
            let ideal = round.work_ns / crowd.consumers.min(cores()) as f64;
            let whole = flow::run::<Q, C>(scale.keys, crowd, scale.work);
            vec![whole, whole - ideal]
        }
        Kind::Hot { crowd } => hot::run::<Q, C>(scale, crowd),
        Kind::Memory => one_thread::memory::<Q, C>(scale),
        Kind::Start => one_thread::start::<Q, C>(scale),
        Kind::Wake {
            waiter: Waiter::Thread,
        } => wake::thread::<Q, C>(scale),
    }
}

/// Runs one round of a workload that is of `u64` keys alone.
pub(crate) fn run_u64<C: Queue<u64>>(kind: Kind, scale: &Scale, round: &Round) -> Vec<f64> {
    match kind {
        Kind::Latency { pace } => latency::run::<C>(scale, pace),
        _ => run::<u64, C>(kind, scale, round),
    }
}

/// Runs one round of a workload that is of strings alone.
pub(crate) fn run_str<C: Queue<str>>(kind: Kind, scale: &Scale, round: &Round) -> Vec<f64> {
    match kind {
        Kind::Replay => replay::run::<C>(&scale.log),
        _ => run::<str, C>(kind, scale, round),
    }
}
