//! Every workload by its id, with its figures and the targets for them, in the order of the tables.

use crate::spec::{By, Crowd, Delay, Keys, Kind, Limiter, Pace, Waiter};

/// Workloads that one sentence describes.
pub(crate) struct Group(pub(crate) &'static str, pub(crate) &'static [Workload]);

/// An id, what it runs, and its figures in the order in which a round returns them.
pub(crate) struct Workload(
    pub(crate) &'static str,
    pub(crate) Kind,
    pub(crate) &'static [Figure],
);

/// A name, where the workload has several figures; a unit; the atomic read-modify-writes that one
/// operation of keyqueue takes, where one thread runs alone; and the targets.
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
    /// At most this many times the named contender's.
    Within(f64, &'static str),
    AtMost(f64),
}

use Target::{AtMost, Less, Within};

const GO: &str = "client-go";
const LOCK: &str = "single-lock";
const WHEEL: &str = "delay-queue";

pub(crate) fn all() -> impl Iterator<Item = &'static Workload> {
    GROUPS.iter().flat_map(|Group(_, workloads)| *workloads)
}

const fn flow(keys: Keys, threads: usize) -> Kind {
    let crowd = Crowd::of(threads, threads);
    Kind::Flow { keys, crowd }
}

const fn hot(threads: usize) -> Kind {
    let crowd = Crowd::of(threads, threads);
    Kind::Hot { crowd }
}

const fn duplicate(threads: usize, by: By) -> Kind {
    Kind::Duplicate { threads, by }
}

const fn limiter(limiter: Limiter, threads: usize) -> Kind {
    Kind::Limiter { limiter, threads }
}

#[rustfmt::skip] // A table.
pub(crate) static GROUPS: &[Group] = &[
    Group("add, get and done of 1024 recurring keys, one thread; strings are like `namespace-7/object-123`", &[
        Workload("cycle-u64", Kind::Cycle { by: By::U64 }, &[Figure("", "ns/key", 5, &[Less(6.0, GO), Less(1.7, LOCK)])]),
        Workload("cycle-string", Kind::Cycle { by: By::Str }, &[Figure("", "ns/key", 5, &[Less(5.0, GO), Less(2.0, LOCK)])]),
        Workload("cycle-handle", Kind::Cycle { by: By::Handle }, &[
            Figure("", "ns/key", 5, &[Less(9.0, GO), Less(2.4, LOCK), Within(3.0, "array-queue")]),
        ]),
    ]),
    Group("add of queued keys by 1 or 4 threads", &[
        Workload("duplicate-1", duplicate(1, By::U64), &[Figure("", "ns/add", 1, &[Less(3.0, GO), Less(1.0, LOCK)])]),
        Workload("duplicate-1-handle", duplicate(1, By::Handle), &[Figure("", "ns/add", 1, &[Less(8.0, GO)])]),
        Workload("duplicate-4", duplicate(4, By::U64), &[Figure("", "ns/add", 0, &[Less(3.0, GO), Less(1.5, LOCK)])]),
        Workload("duplicate-4-handle", duplicate(4, By::Handle), &[Figure("", "ns/add", 0, &[Less(8.0, GO)])]),
    ]),
    Group("1M distinct `u64` keys, producers x consumers, no work", &[
        Workload("unique-1x1", flow(Keys::U64, 1), &[Figure("", "ns/key", 0, &[Less(6.0, GO), Less(1.5, LOCK)])]),
        Workload("unique-2x2", flow(Keys::U64, 2), &[Figure("", "ns/key", 0, &[Less(6.0, GO), Less(1.3, LOCK)])]),
        Workload("unique-8x8", flow(Keys::U64, 8), &[Figure("", "ns/key", 0, &[Less(8.0, GO), Less(2.5, LOCK)])]),
    ]),
    Group("the same with 500 ns of work for each key; the overhead is what exceeds work / min(consumers, cores)", &[
        Workload("work-1x1", flow(Keys::Worked, 1), WORK),
        Workload("work-2x2", flow(Keys::Worked, 2), WORK),
        Workload("work-8x8", flow(Keys::Worked, 8), WORK),
    ]),
    Group("1M distinct strings, no work", &[
        Workload("string-1x1", flow(Keys::Strings, 1), STRING),
        Workload("string-2x2", flow(Keys::Strings, 2), STRING),
        Workload("string-8x8", flow(Keys::Strings, 8), STRING),
    ]),
    Group("2M adds of 64 keys, 500 ns of work for each delivery", &[
        Workload("hot-1x1", hot(1), HOT),
        Workload("hot-2x2", hot(2), HOT),
        Workload("hot-8x8", hot(8), HOT),
    ]),
    Group("100k keys added round and round, 3M adds; the queue runs empty after every thousand", &[
        Workload("recur-100k", Kind::Recur, &[Figure("", "ns/key", 0, &[])]),
    ]),
    Group("100 passes over a log; the key of an event is its client address; one producer, one consumer", &[
        Workload("replay", Kind::Replay, &[Figure("", "ns/event", 0, &[])]),
    ]),
    Group("add of a new key while 1M wait for 1000 tasks that sleep 1 ms for each key", &[
        Workload("backlog", Kind::Backlog, &[
            Figure("", "ns/add", 0, &[Less(3.0, GO), Less(1.5, LOCK), Less(10.0, "priorityqueue")]),
        ]),
    ]),
    Group("50k distinct keys through the worker loop, 16 at a time, one task", &[
        Workload("reconcile", Kind::Reconcile, &[Figure("", "ns/key", 0, &[])]),
    ]),
    Group("from add to get in an open loop; the pace is half of what client-go, or the contender itself (own), can take", &[
        Workload("latency", Kind::Latency { pace: Pace::Common }, &[
            Figure("interval", "ns/add", 0, &[]),
            Figure("p50", "ns", 0, &[]),
            Figure("p99", "ns", 0, &[Less(3.0, GO), Less(1.0, LOCK)]),
            Figure("p99.9", "ns", 0, &[]),
        ]),
        Workload("latency-own", Kind::Latency { pace: Pace::Own }, &[
            Figure("interval", "ns/add", 0, &[]),
            Figure("p50", "ns", 0, &[]),
            Figure("p99", "ns", 0, &[]),
            Figure("p99.9", "ns", 0, &[]),
        ]),
    ]),
    Group("from add to get of a consumer that sleeps: a thread, a task", &[
        Workload("wake", Kind::Wake { waiter: Waiter::Thread }, &[
            Figure("p50", "ns", 0, &[]),
            Figure("p99", "ns", 0, &[Less(1.0, LOCK)]),
        ]),
        Workload("wake-task", Kind::Wake { waiter: Waiter::Task }, &[
            Figure("p50", "ns", 0, &[]),
            Figure("p99", "ns", 0, &[]),
        ]),
    ]),
    Group("1M delays of up to 10 minutes: set; each moved earlier once and half of them cancelled; memory", &[
        Workload("delay-insert", Kind::Delay { of: Delay::Insert }, &[Figure("", "ns/key", 0, &[Less(8.0, GO), Less(2.0, WHEEL)])]),
        Workload("delay-reset", Kind::Delay { of: Delay::Reset }, &[
            Figure("moved", "ns/key", 0, &[Less(8.0, GO), Less(2.0, WHEEL)]),
            Figure("cancelled", "ns/key", 0, &[Less(2.0, WHEEL)]),
        ]),
        Workload("delay-memory", Kind::Delay { of: Delay::Memory }, &[Figure("", "bytes/key", 0, &[Less(2.0, GO)])]),
    ]),
    Group("200k delays that end within 200 ms: lateness, and processor time for each key", &[
        Workload("delay-fire", Kind::Delay { of: Delay::Fire }, &[
            Figure("late, p50", "us", 0, &[]),
            Figure("late, p99", "us", 0, &[AtMost(2000.0)]),
            Figure("late, most", "us", 0, &[]),
            Figure("processor", "ns/key", 0, &[Less(8.0, GO), Less(2.0, WHEEL)]),
        ]),
    ]),
    Group("when and forget, 1024 keys, 1 or 4 threads", &[
        Workload("limiter-exponential-1", limiter(Limiter::Exponential, 1), &[Figure("", "ns", 2, &[Less(3.0, GO)])]),
        Workload("limiter-exponential-4", limiter(Limiter::Exponential, 4), &[Figure("", "ns", 0, &[Less(3.0, GO)])]),
        Workload("limiter-fast-slow-1", limiter(Limiter::FastSlow, 1), &[Figure("", "ns", 2, &[Less(3.0, GO)])]),
        Workload("limiter-fast-slow-4", limiter(Limiter::FastSlow, 4), &[Figure("", "ns", 0, &[Less(3.0, GO)])]),
        Workload("limiter-bucket-1", limiter(Limiter::Bucket, 1), &[Figure("", "ns", 1, &[Less(3.0, GO)])]),
        Workload("limiter-bucket-4", limiter(Limiter::Bucket, 4), &[Figure("", "ns", 0, &[Less(3.0, GO)])]),
        Workload("limiter-controller-1", limiter(Limiter::Controller, 1), &[Figure("", "ns", 3, &[Less(3.0, GO)])]),
        Workload("limiter-controller-4", limiter(Limiter::Controller, 4), &[Figure("", "ns", 0, &[Less(3.0, GO)])]),
    ]),
    Group("1M queued `u64` keys, and what is left when all are done", &[
        Workload("memory", Kind::Memory, &[
            Figure("queued", "bytes/key", 0, &[Less(2.0, GO), AtMost(96.0)]),
            Figure("left when done", "bytes", 0, &[]),
            Figure("left when shrunk", "bytes", 0, &[]),
        ]),
    ]),
    Group("making and dropping a queue: unused; after one key; and the threads (in Go: goroutines) that it starts", &[
        Workload("start", Kind::Start, &[
            Figure("", "ns", 0, &[]),
            Figure("used", "ns", 0, &[]),
            Figure("threads", "threads", 0, &[]),
        ]),
    ]),
];

const WORK: &[Figure] = &[
    Figure("whole", "ns/key", 0, &[]),
    Figure("overhead", "ns/key", 0, &[Less(3.0, GO), Less(2.0, LOCK)]),
];
const STRING: &[Figure] = &[Figure("", "ns/key", 0, &[Less(3.0, GO), Less(1.5, LOCK)])];
const HOT: &[Figure] = &[
    Figure("adds", "ns/add", 0, &[]),
    Figure("delivered", "ns/add", 0, &[]),
];
