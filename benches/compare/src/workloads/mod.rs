//! The workloads: what a round of each does.
//!
//! A round returns one figure for each metric of its workload, lower is always better, and panics
//! with the values when a count is wrong. Figures that a contender cannot have are left out at the
//! end, or are not a number.

pub(crate) mod backlog;
mod burst;
pub(crate) mod delay;
pub(crate) mod groups;
mod hot;
pub(crate) mod levels;
pub(crate) mod limiter;
pub(crate) mod paced;
pub(crate) mod reconcile;
mod recurring;
mod unique;
pub(crate) mod values;

use tokio::runtime::{Builder, Runtime};

use crate::keys::Key;
use crate::queue::Queue;
use crate::work::Work;
use crate::workload::{Kind, Round};

/// Recurring keys of one thread, hot keys, and the keys of `recur`.
const RECURRING: usize = 1024;
const HOT: usize = 64;
const RETURNING: usize = 100_000;

/// Many at a time: keys added or events put, and keys got and finished.
const CHUNK: usize = 128;
const BATCH: usize = 64;

/// The keys that a pipeline lets its workers be behind.
const BACKLOG: usize = 8192;

/// Runs a round on a new queue of `u64` keys; `None` if the workload is not for every such queue.
pub(crate) fn run_u64<C: Queue<u64>>(round: &Round<'_>) -> Option<Vec<f64>> {
    let Round { threads, count, .. } = *round;
    Some(match round.kind {
        Kind::Cycle | Kind::CycleHandle => recurring::cycle::<u64, C>(round),
        Kind::Duplicate | Kind::DuplicateHandle => recurring::duplicate::<C>(round),
        Kind::Recur => recurring::recur::<C>(count),
        Kind::Unique => vec![unique::flow::<u64, C>(count, threads, Work::NONE)],
        Kind::UniqueMany => vec![unique::many::<C>(count, threads)],
        Kind::Burst => burst::run::<C>(count, threads),
        Kind::Work => unique::work::<C>(round),
        Kind::Memory => unique::memory::<C>(count),
        Kind::Start => unique::start::<C>(count),
        Kind::Hot => hot::run::<u64, C>(&u64::first(HOT), count, threads, round.work),
        Kind::Latency => paced::latency::<C>(count, round.interval),
        Kind::Wake => paced::wake::<C>(count),
        Kind::IdleCost => paced::idle_cost::<C>(count, threads),
        _ => return None,
    })
}

/// The same with strings.
pub(crate) fn run_str<C: Queue<str>>(round: &Round<'_>) -> Option<Vec<f64>> {
    let Round { threads, count, .. } = *round;
    Some(match round.kind {
        Kind::CycleString => recurring::cycle::<str, C>(round),
        Kind::UniqueString => vec![unique::flow::<str, C>(count, threads, Work::NONE)],
        Kind::Replay => hot::run::<str, C>(round.events, count, threads, Work::NONE)[1..].into(),
        _ => return None,
    })
}

/// How often each of a number of keys is added, in `count` adds by each of the threads together.
fn passes(count: usize, keys: usize, threads: usize) -> usize {
    (count / keys / threads).max(1)
}

fn quantiles<const N: usize>(mut values: Vec<u64>, at: [f64; N]) -> [f64; N] {
    values.sort_unstable();
    let last = values.len() - 1;
    at.map(|at| values[((at * values.len() as f64) as usize).min(last)] as f64)
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

/// A runtime for tasks with this number of threads.
pub(crate) fn runtime(threads: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).enable_time().build();
    runtime.expect("a runtime")
}

/// Hardware threads of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
