//! Every workload in the order of the tables, and what a round of one is.

use serde::Serialize;

use crate::work::Work;

/// What a workload does; the modules under `workloads` say more. A contender in another process
/// receives the name in kebab case.
#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[rustfmt::skip] // A line for each module.
pub(crate) enum Kind {
    Cycle, CycleString, CycleHandle, Duplicate, DuplicateHandle, Recur,
    Unique, UniqueMany, UniqueString, Work, Memory, Start,
    Burst,
    Hot, Replay,
    ValuesDistinct, ValuesHot, ValuesEven, ValuesSkewed, ValuesEvenWork, ValuesSkewedWork,
    ValuesEvenMany, ValuesSkewedMany,
    LevelsCycle, Levels, LevelsBacklog,
    Backlog,
    Reconcile,
    Groups100Cycle, Groups100, Groups100k,
    Latency, Wake, WakeTask, IdleCost,
    DelayInsert, DelayReset, DelayMemory, DelayFire,
    LimiterExponential, LimiterController,
}

/// An id; what it runs; the threads, or the producers and as many consumers; the keys, adds, delays
/// or queues of a full run; and the figures, in the order in which a round returns them.
pub(crate) struct Workload(
    pub(crate) &'static str,
    pub(crate) Kind,
    pub(crate) usize,
    pub(crate) usize,
    pub(crate) &'static [Figure],
);

/// A name, where the workload has several figures; a unit; the atomic read-modify-writes that one
/// operation of keyqueue takes, where one thread runs alone; and the rival: the contender that a user would take instead, for which
/// BENCHMARKS.md has the reasons. A figure without one is only in `results.json`.
pub(crate) struct Figure(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) u32,
    pub(crate) &'static str,
);

use Kind::*;

const GO: &str = "client-go";
const LOCK: &str = "single-lock";
const SHARDED: &str = "sharded-channels";
const CHANNEL: &str = "crossbeam-channel";
const WHEEL: &str = "delay-queue";

const K: usize = 1_000;
const M: usize = 1_000_000;

#[rustfmt::skip] // A table.
pub(crate) static WORKLOADS: &[Workload] = &[
    Workload("cycle-u64", Cycle, 1, 2 * M, &[Figure("", "ns/key", 5, LOCK)]),
    Workload("cycle-string", CycleString, 1, 2 * M, &[Figure("", "ns/key", 5, LOCK)]),
    Workload("cycle-handle", CycleHandle, 1, 2 * M, &[
        Figure("", "ns/key", 5, LOCK),
    ]),
    Workload("duplicate-1", Duplicate, 1, 4 * M, &[Figure("", "ns/add", 1, LOCK)]),
    Workload("duplicate-4", Duplicate, 4, 4 * M, &[Figure("", "ns/add", 0, LOCK)]),
    Workload("duplicate-4-handle", DuplicateHandle, 4, 4 * M, &[Figure("", "ns/add", 0, LOCK)]),
    Workload("unique-1x1", Unique, 1, M, &[Figure("", "ns/key", 0, LOCK)]),
    Workload("unique-2x2", Unique, 2, M, &[Figure("", "ns/key", 0, LOCK)]),
    Workload("unique-8x8", Unique, 8, M, &[Figure("", "ns/key", 0, LOCK)]),
    Workload("unique-many-1x1", UniqueMany, 1, M, &[Figure("", "ns/key", 0, LOCK)]),
    Workload("unique-many-2x2", UniqueMany, 2, M, &[Figure("", "ns/key", 0, LOCK)]),
    Workload("burst-1k", Burst, 1, K, BURST),
    Workload("burst-100k", Burst, 1, 100 * K, BURST),
    Workload("burst-1m", Burst, 1, M, BURST),
    Workload("burst-100k-2", Burst, 2, 100 * K, BURST),
    Workload("work-8x8", Work, 8, M, WORK),
    Workload("string-8x8", UniqueString, 8, M, STRING),
    Workload("hot-8x8", Hot, 8, 2 * M, HOT),
    Workload("values-distinct-8x8", ValuesDistinct, 8, M, VALUES_DISTINCT),
    Workload("values-hot-8x8", ValuesHot, 8, 2 * M, &[Figure("", "ns/value", 0, LOCK), EACH]),
    Workload("values-even-2x2", ValuesEven, 2, M, &[Figure("", "ns/value", 0, SHARDED), EACH]),
    Workload("values-skewed-2x2", ValuesSkewed, 2, M, &[Figure("", "ns/value", 0, SHARDED), EACH]),
    Workload("values-even-many-1x1", ValuesEvenMany, 1, M, VALUES_MANY),
    Workload("values-even-many-2x2", ValuesEvenMany, 2, M, VALUES_MANY),
    Workload("values-skewed-many-1x1", ValuesSkewedMany, 1, M, VALUES_MANY),
    Workload("values-skewed-many-2x2", ValuesSkewedMany, 2, M, VALUES_MANY),
    Workload("values-even-work-2x2", ValuesEvenWork, 2, 200 * K, &[Figure("", "ns/value", 0, SHARDED), EACH]),
    Workload("values-skewed-work-2x2", ValuesSkewedWork, 2, 200 * K, &[Figure("", "ns/value", 0, SHARDED), EACH]),
    Workload("levels-cycle", LevelsCycle, 1, 2 * M, &[Figure("", "ns/key", 6, LOCK)]),
    Workload("levels-8x8", Levels, 8, M, &[Figure("", "ns/key", 0, LOCK)]),
    Workload("levels-backlog", LevelsBacklog, 1, M, &[
        Figure("", "ns/key", 0, LOCK),
    ]),
    Workload("groups-100-cycle", Groups100Cycle, 1, 2 * M, GROUPS),
    Workload("groups-100-1x1", Groups100, 1, M, GROUPS),
    Workload("groups-100-8x8", Groups100, 8, M, GROUPS),
    Workload("groups-100k-8x8", Groups100k, 8, M, GROUPS),
    Workload("recur-100k", Recur, 1, 3 * M, &[Figure("", "ns/key", 0, LOCK)]),
    Workload("replay", Replay, 1, M, &[Figure("", "ns/event", 0, LOCK)]),
    Workload("backlog", Backlog, 1, M, &[
        Figure("", "ns/add", 0, LOCK),
    ]),
    Workload("reconcile", Reconcile, 1, 50 * K, &[Figure("", "ns/key", 0, "")]),
    Workload("latency", Latency, 1, 200 * K, &[
        Figure("interval", "ns/add", 0, ""), Figure("p50", "ns", 0, ""),
        Figure("p99", "ns", 0, LOCK), Figure("p99.9", "ns", 0, ""),
    ]),
    Workload("wake", Wake, 1, K, &[Figure("p50", "ns", 0, LOCK), Figure("p99", "ns", 0, LOCK)]),
    Workload("wake-task", WakeTask, 1, K, &[Figure("p50", "ns", 0, GO), Figure("p99", "ns", 0, "")]),
    Workload("idle-cost-1", IdleCost, 1, K / 2, IDLE_COST),
    Workload("idle-cost-8", IdleCost, 8, K / 2, IDLE_COST),
    Workload("delay-insert", DelayInsert, 1, M, &[Figure("", "ns/key", 0, WHEEL)]),
    Workload("delay-reset", DelayReset, 1, M, &[
        Figure("moved", "ns/key", 0, WHEEL),
        Figure("cancelled", "ns/key", 0, WHEEL),
    ]),
    Workload("delay-memory", DelayMemory, 1, M, &[Figure("", "bytes/key", 0, WHEEL)]),
    Workload("delay-fire", DelayFire, 1, 200 * K, &[
        Figure("late, p50", "us", 0, ""),
        Figure("late, p99", "us", 0, WHEEL),
        Figure("late, most", "us", 0, ""),
        Figure("processor", "ns/key", 0, WHEEL),
    ]),
    Workload("limiter-exponential-1", LimiterExponential, 1, 2 * M, &[Figure("", "ns", 2, LOCK)]),
    Workload("limiter-controller-4", LimiterController, 4, 2 * M, &[Figure("", "ns", 0, LOCK)]),
    Workload("memory", Memory, 1, M, &[
        Figure("queued", "bytes/key", 0, GO),
        Figure("left when done", "bytes", 0, ""),
        Figure("left when shrunk", "bytes", 0, ""),
    ]),
    Workload("start", Start, 1, 10 * K, &[
        Figure("", "ns", 0, ""),
        Figure("used", "ns", 0, ""),
        Figure("threads", "threads", 0, ""),
    ]),
];

const IDLE_COST: &[Figure] = &[
    Figure("", "us/add", 0, CHANNEL),
    Figure("without getters", "us/add", 0, ""),
];
const GROUPS: &[Figure] = &[Figure("", "ns/key", 0, LOCK)];

const WORK: &[Figure] = &[
    Figure("whole", "ns/key", 0, ""),
    Figure("overhead", "ns/key", 0, LOCK),
];
const STRING: &[Figure] = &[Figure("", "ns/key", 0, LOCK)];
const VALUES_DISTINCT: &[Figure] = &[Figure("", "ns/value", 0, LOCK), EACH];
const VALUES_MANY: &[Figure] = &[Figure("", "ns/value", 0, SHARDED), EACH];
const BURST: &[Figure] = &[
    Figure("fresh", "ns/key", 0, LOCK),
    Figure("third", "ns/key", 0, LOCK),
    Figure("fresh, many", "ns/key", 0, LOCK),
    Figure("third, many", "ns/key", 0, LOCK),
];
const EACH: Figure = Figure("events of a delivery", "events", 0, "");
const HOT: &[Figure] = &[
    Figure("adds", "ns/add", 0, ""),
    Figure("delivered", "ns/add", 0, LOCK),
];

/// What each contender runs once.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Round<'a> {
    pub(crate) kind: Kind,
    pub(crate) threads: usize,
    pub(crate) count: usize,
    /// Nanoseconds between two adds of `latency`.
    pub(crate) interval: f64,
    /// The keys of the events of `replay`; otherwise none.
    pub(crate) events: &'a [String],
    /// Real work on one key, and the nanoseconds that it takes as the round starts.
    #[serde(skip)]
    pub(crate) work: Work,
    #[serde(skip)]
    pub(crate) work_ns: f64,
}
