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
/// operation of keyqueue takes, where one thread runs alone; and the targets, for which BENCHMARKS.md has the reasons. A figure without
/// a target is only in `results.json`.
pub(crate) struct Figure(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) u32,
    pub(crate) &'static [Target],
);

/// What keyqueue's median should be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// This many times less than the named contender's.
    Less(f64, &'static str),
    AtMost(f64),
}

use Kind::*;
use Target::{AtMost, Less};

const GO: &str = "client-go";
const LOCK: &str = "single-lock";
const HAND: &str = "by-hand";
const SHARDED: &str = "sharded-channels";
const CHANNEL: &str = "crossbeam-channel";
const ONE: &str = "one-level";
const WHEEL: &str = "delay-queue";

const K: usize = 1_000;
const M: usize = 1_000_000;

#[rustfmt::skip] // A table.
pub(crate) static WORKLOADS: &[Workload] = &[
    Workload("cycle-u64", Cycle, 1, 2 * M, &[Figure("", "ns/key", 5, &[Less(6.0, GO), Less(1.7, LOCK)])]),
    Workload("cycle-string", CycleString, 1, 2 * M, &[Figure("", "ns/key", 5, &[Less(5.0, GO), Less(2.0, LOCK)])]),
    Workload("cycle-handle", CycleHandle, 1, 2 * M, &[
        Figure("", "ns/key", 5, &[Less(9.0, GO), Less(2.4, LOCK), Less(1.0 / 3.0, "array-queue")]),
    ]),
    Workload("duplicate-1", Duplicate, 1, 4 * M, &[Figure("", "ns/add", 1, &[Less(3.0, GO), Less(1.0, LOCK)])]),
    Workload("duplicate-4", Duplicate, 4, 4 * M, &[Figure("", "ns/add", 0, &[Less(3.0, GO), Less(1.5, LOCK)])]),
    Workload("duplicate-4-handle", DuplicateHandle, 4, 4 * M, &[Figure("", "ns/add", 0, &[Less(8.0, GO)])]),
    Workload("unique-1x1", Unique, 1, M, &[Figure("", "ns/key", 0, &[Less(6.0, GO), Less(1.5, LOCK)])]),
    Workload("unique-2x2", Unique, 2, M, &[Figure("", "ns/key", 0, &[Less(6.0, GO), Less(1.3, LOCK)])]),
    Workload("unique-8x8", Unique, 8, M, &[Figure("", "ns/key", 0, &[Less(8.0, GO), Less(2.5, LOCK)])]),
    Workload("unique-many-1x1", UniqueMany, 1, M, &[Figure("", "ns/key", 0, &[Less(1.5, LOCK)])]),
    Workload("unique-many-2x2", UniqueMany, 2, M, &[Figure("", "ns/key", 0, &[Less(1.3, LOCK)])]),
    Workload("burst-1k", Burst, 1, K, BURST),
    Workload("burst-100k", Burst, 1, 100 * K, BURST),
    Workload("burst-1m", Burst, 1, M, BURST),
    Workload("burst-100k-2", Burst, 2, 100 * K, BURST),
    Workload("work-8x8", Work, 8, M, WORK),
    Workload("string-8x8", UniqueString, 8, M, STRING),
    Workload("hot-8x8", Hot, 8, 2 * M, HOT),
    Workload("values-distinct-8x8", ValuesDistinct, 8, M, VALUES_DISTINCT),
    Workload("values-hot-8x8", ValuesHot, 8, 2 * M, &[Figure("", "ns/value", 0, &[Less(3.0, HAND), Less(3.0, LOCK)]), EACH]),
    Workload("values-even-2x2", ValuesEven, 2, M, &[Figure("", "ns/value", 0, &[Less(0.5, SHARDED)]), EACH]),
    Workload("values-skewed-2x2", ValuesSkewed, 2, M, &[Figure("", "ns/value", 0, &[Less(1.0, SHARDED)]), EACH]),
    Workload("values-even-many-1x1", ValuesEvenMany, 1, M, VALUES_MANY),
    Workload("values-even-many-2x2", ValuesEvenMany, 2, M, VALUES_MANY),
    Workload("values-skewed-many-1x1", ValuesSkewedMany, 1, M, VALUES_MANY),
    Workload("values-skewed-many-2x2", ValuesSkewedMany, 2, M, VALUES_MANY),
    Workload("values-even-work-2x2", ValuesEvenWork, 2, 200 * K, &[Figure("", "ns/value", 0, &[Less(1.0, SHARDED)]), EACH]),
    Workload("values-skewed-work-2x2", ValuesSkewedWork, 2, 200 * K, &[Figure("", "ns/value", 0, &[Less(1.0, SHARDED)]), EACH]),
    Workload("levels-cycle", LevelsCycle, 1, 2 * M, &[Figure("", "ns/key", 5, &[Less(1.0 / 1.3, ONE), Less(1.0, LOCK)])]),
    Workload("levels-8x8", Levels, 8, M, &[Figure("", "ns/key", 0, &[Less(1.0 / 1.3, ONE), Less(1.5, LOCK)])]),
    Workload("levels-backlog", LevelsBacklog, 1, M, &[
        Figure("", "ns/key", 0, &[Less(1.0, LOCK), Less(20.0, "priorityqueue")]),
    ]),
    Workload("groups-100-cycle", Groups100Cycle, 1, 2 * M, GROUPS),
    Workload("groups-100-1x1", Groups100, 1, M, GROUPS),
    Workload("groups-100-8x8", Groups100, 8, M, GROUPS),
    Workload("groups-100k-8x8", Groups100k, 8, M, GROUPS),
    Workload("recur-100k", Recur, 1, 3 * M, &[Figure("", "ns/key", 0, &[Less(1.0, LOCK)])]),
    Workload("replay", Replay, 1, M, &[Figure("", "ns/event", 0, &[Less(1.0, LOCK)])]),
    Workload("backlog", Backlog, 1, M, &[
        Figure("", "ns/add", 0, &[Less(3.0, GO), Less(1.5, LOCK), Less(10.0, "priorityqueue")]),
    ]),
    Workload("reconcile", Reconcile, 1, 50 * K, &[Figure("", "ns/key", 0, &[])]),
    Workload("latency", Latency, 1, 200 * K, &[
        Figure("interval", "ns/add", 0, &[]), Figure("p50", "ns", 0, &[]),
        Figure("p99", "ns", 0, &[Less(3.0, GO), Less(1.0, LOCK)]), Figure("p99.9", "ns", 0, &[]),
    ]),
    Workload("wake", Wake, 1, K, &[Figure("p50", "ns", 0, &[Less(1.0, LOCK)]), Figure("p99", "ns", 0, &[Less(1.0, LOCK)])]),
    Workload("wake-task", WakeTask, 1, K, &[Figure("p50", "ns", 0, &[Less(1.0, GO)]), Figure("p99", "ns", 0, &[])]),
    Workload("idle-cost-1", IdleCost, 1, K / 2, IDLE_COST),
    Workload("idle-cost-8", IdleCost, 8, K / 2, IDLE_COST),
    Workload("delay-insert", DelayInsert, 1, M, &[Figure("", "ns/key", 0, &[Less(8.0, GO), Less(2.0, WHEEL)])]),
    Workload("delay-reset", DelayReset, 1, M, &[
        Figure("moved", "ns/key", 0, &[Less(8.0, GO), Less(2.0, WHEEL)]),
        Figure("cancelled", "ns/key", 0, &[Less(2.0, WHEEL)]),
    ]),
    Workload("delay-memory", DelayMemory, 1, M, &[Figure("", "bytes/key", 0, &[Less(2.0, GO)])]),
    Workload("delay-fire", DelayFire, 1, 200 * K, &[
        Figure("late, p50", "us", 0, &[]),
        Figure("late, p99", "us", 0, &[AtMost(2000.0)]),
        Figure("late, most", "us", 0, &[]),
        Figure("processor", "ns/key", 0, &[Less(8.0, GO), Less(2.0, WHEEL)]),
    ]),
    Workload("limiter-exponential-1", LimiterExponential, 1, 2 * M, &[Figure("", "ns", 2, &[Less(3.0, GO)])]),
    Workload("limiter-controller-4", LimiterController, 4, 2 * M, &[Figure("", "ns", 0, &[Less(3.0, GO)])]),
    Workload("memory", Memory, 1, M, &[
        Figure("queued", "bytes/key", 0, &[Less(2.0, GO), AtMost(96.0)]),
        Figure("left when done", "bytes", 0, &[]),
        Figure("left when shrunk", "bytes", 0, &[]),
    ]),
    Workload("start", Start, 1, 10 * K, &[
        Figure("", "ns", 0, &[]),
        Figure("used", "ns", 0, &[]),
        Figure("threads", "threads", 0, &[]),
    ]),
];

const IDLE_COST: &[Figure] = &[
    Figure("", "us/add", 0, &[Less(1.0, CHANNEL), Less(1.0, LOCK)]),
    Figure("without getters", "us/add", 0, &[]),
];
const GROUPS: &[Figure] = &[Figure("", "ns/key", 0, &[Less(0.5, ONE), Less(1.0, LOCK)])];

const WORK: &[Figure] = &[
    Figure("whole", "ns/key", 0, &[]),
    Figure("overhead", "ns/key", 0, &[Less(3.0, GO), Less(2.0, LOCK)]),
];
const STRING: &[Figure] = &[Figure("", "ns/key", 0, &[Less(3.0, GO), Less(1.5, LOCK)])];
const VALUES_DISTINCT: &[Figure] = &[
    Figure("", "ns/value", 0, &[Less(2.0, HAND), Less(2.0, LOCK)]),
    EACH,
];
const VALUES_MANY: &[Figure] = &[
    Figure("", "ns/value", 0, &[Less(1.5, LOCK), Less(0.5, SHARDED)]),
    EACH,
];
const BURST: &[Figure] = &[
    Figure("fresh", "ns/key", 0, &[Less(1.0, LOCK)]),
    Figure("third", "ns/key", 0, &[Less(0.8, LOCK)]),
    Figure("fresh, many", "ns/key", 0, &[Less(1.2, LOCK)]),
    Figure("third, many", "ns/key", 0, &[Less(0.8, LOCK)]),
];
const EACH: Figure = Figure("events of a delivery", "events", 0, &[]);
const HOT: &[Figure] = &[
    Figure("adds", "ns/add", 0, &[]),
    Figure("delivered", "ns/add", 0, &[Less(1.0, LOCK)]),
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
