//! What a round runs, and how much of it: the words that the harness, the workloads and the
//! contenders share. A contender in another process receives them as JSON.

use std::time::Duration;

use serde::Serialize;

use crate::keys::Tally;
use crate::log::Log;
use crate::work::Work;

/// Which workload.
#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Kind {
    Cycle { by: By },
    Duplicate { threads: usize, by: By },
    Flow { keys: Keys, crowd: Crowd },
    Hot { crowd: Crowd },
    Recur,
    Replay,
    Backlog,
    Reconcile,
    Latency { pace: Pace },
    Wake { waiter: Waiter },
    Delay { of: Delay },
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

/// The keys that producers and consumers move.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Keys {
    U64,
    Strings,
    /// `u64` keys with real work for each.
    Worked,
}

/// The rate at which keys are added.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pace {
    /// Half of what client-go can take, for every contender.
    Common,
    /// Half of what the contender itself can take.
    Own,
}

/// What waits for a key.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Waiter {
    Thread,
    Task,
}

/// What is done with delays.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Delay {
    Insert,
    Fire,
    Reset,
    Memory,
}

/// Which rate limiter.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limiter {
    Exponential,
    FastSlow,
    Bucket,
    /// The longer delay of exponential and bucket: client-go's default.
    Controller,
}

/// The threads of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Crowd {
    pub(crate) producers: usize,
    pub(crate) consumers: usize,
}

impl Crowd {
    pub(crate) const fn of(producers: usize, consumers: usize) -> Self {
        Self {
            producers,
            consumers,
        }
    }
}

impl Kind {
    /// The most keys that one producer and one consumer can move.
    pub(crate) const SATURATED: Self = Self::Flow {
        keys: Keys::U64,
        crowd: Crowd::of(1, 1),
    };

    pub(crate) fn is_of_strings(self) -> bool {
        match self {
            Self::Cycle { by } => by == By::Str,
            Self::Flow { keys, .. } => keys == Keys::Strings,
            _ => self == Self::Replay,
        }
    }

    /// What a contender in another process must have delivered, where that does not depend on
    /// chance.
    pub(crate) fn delivers(self, scale: &Scale) -> Option<Tally> {
        let (keys, times) = match self {
            Self::Cycle { .. } => (scale.recurring, scale.passes(scale.recurring)),
            Self::Recur => (scale.returning, scale.returns),
            Self::Start => (1, scale.starts),
            Self::Duplicate { .. } => (scale.recurring, 1),
            Self::Flow { .. } | Self::Memory => (scale.keys, 1),
            Self::Backlog => (scale.keys + scale.backlog_adds, 1),
            Self::Latency { .. } => (scale.paced, 1),
            Self::Wake { .. } => (scale.wakes, 1),
            Self::Delay { of: Delay::Fire } => (scale.fired, 1),
            Self::Hot { .. }
            | Self::Replay
            | Self::Reconcile
            | Self::Delay { .. }
            | Self::Limiter { .. } => return None,
        };
        let once = if self.is_of_strings() {
            Tally::of_first::<str>(keys)
        } else {
            Tally::of_first::<u64>(keys)
        };
        Some(once.times(times as u64))
    }
}

/// How much of everything.
#[derive(Serialize)]
pub(crate) struct Scale {
    /// Recurring keys of the single-threaded workloads.
    pub(crate) recurring: usize,
    pub(crate) cycles: usize,
    pub(crate) duplicates: usize,
    /// Keys of `recur`, and the number of adds of each.
    pub(crate) returning: usize,
    pub(crate) returns: usize,
    /// Distinct keys.
    pub(crate) keys: usize,
    pub(crate) hot_keys: usize,
    pub(crate) hot_adds: usize,
    pub(crate) backlog_workers: usize,
    pub(crate) backlog_adds: usize,
    /// Distinct keys of `reconcile`, and how many of them at a time.
    pub(crate) reconciled: usize,
    pub(crate) reconcilers: u16,
    /// Keys that are added at a pace, and the nanoseconds between two of them where the pace is
    /// the same for all contenders.
    pub(crate) paced: usize,
    pub(crate) common_interval: f64,
    pub(crate) starts: usize,
    pub(crate) wakes: usize,
    /// Delays that end in a burst.
    pub(crate) fired: usize,
    /// Real work on one key: 500 ns.
    #[serde(skip)]
    pub(crate) work: Work,
    pub(crate) work_ns: f64,
    #[serde(skip)]
    pub(crate) log: Log,
}

impl Scale {
    /// A divisor of 1 gives the numbers of keys for which the targets are set.
    pub(crate) fn divided_by(divisor: usize, log: Log) -> Self {
        const WORK: Duration = Duration::from_nanos(500);
        Self {
            recurring: 1024,
            cycles: 2_000_000 / divisor,
            duplicates: 4_000_000 / divisor,
            returning: 100_000,
            returns: (30 / divisor).max(1),
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

    /// How often each of `keys` recurring keys is added.
    pub(crate) fn passes(&self, keys: usize) -> usize {
        (self.cycles / keys).max(1)
    }
}

/// What the contenders of one round share.
pub(crate) struct Round {
    /// Nanoseconds that the work on one key takes on an undisturbed core, measured as the round
    /// starts.
    pub(crate) work_ns: f64,
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
