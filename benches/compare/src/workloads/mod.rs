//! The workloads: what a round of each does.
//!
//! | file | workloads |
//! | --- | --- |
//! | `one_thread` | cycle, memory, start |
//! | `duplicate` | adding queued keys |
//! | `flow` | producers and consumers, each key once: unique, string, work |
//! | `hot` | producers and consumers, a few keys over and over |
//! | `recur` | a large working set that returns |
//! | `replay` | the events of a log |
//! | `backlog` | a million keys waiting, a thousand workers |
//! | `reconcile` | the loop around the queue |
//! | `latency` | adds at a set pace, from add to get |
//! | `wake` | a parked consumer |
//! | `delay` | delays: insert, fire, reset, memory |
//! | `limiter` | rate limiters |
//!
//! A round returns one figure for each metric of its workload, lower is always better, and panics
//! with the values when a count is wrong. A figure that is not a number stands for what a
//! contender cannot do.

pub(crate) mod backlog;
pub(crate) mod delay;
mod duplicate;
mod flow;
mod hot;
mod latency;
pub(crate) mod limiter;
mod one_thread;
pub(crate) mod reconcile;
mod recur;
mod replay;
pub(crate) mod wake;

use crate::keys::Key;
use crate::queue::Queue;
use crate::spec::{By, Keys, Kind, Round, Scale, Waiter, cores};
use crate::work::Work;

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
        Kind::Recur => recur::run::<Q, C>(scale),
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
