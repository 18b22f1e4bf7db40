//! Every workload by its id, what it measures, and what is asked of it.

use super::{By, Crowd, Keys, Kind, Limiter, Pace, Waiter, delay};

/// One id of the table: a row for each metric.
pub(crate) struct Workload {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    /// In a few words.
    pub(crate) what: &'static str,
    pub(crate) metrics: Vec<Metric>,
}

/// One figure of a workload.
pub(crate) struct Metric {
    /// What it is, where the workload has several.
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) targets: Vec<Target>,
}

/// What is asked of keyqueue's median.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// To be this many times less than the named contender's.
    Faster(f64, &'static str),
    /// To be at most this many times the named contender's.
    Within(f64, &'static str),
    /// To be at most this.
    AtMost(f64),
}

use Target::{AtMost, Within};

/// Faster than client-go, and than the single lock.
fn faster(client_go: f64, single_lock: f64) -> Vec<Target> {
    let single_lock = Target::Faster(single_lock, "single-lock");
    vec![Target::Faster(client_go, "client-go"), single_lock]
}

/// Every workload, in the order of the table.
pub(crate) fn all() -> Vec<Workload> {
    let mut all = vec![
        workload("cycle-u64", Kind::Cycle { by: By::U64 })
            .about("add, get, done of 1024 recurring keys, one thread")
            .measures("", "ns/key", faster(6.0, 1.7)),
        workload("cycle-string", Kind::Cycle { by: By::Str })
            .about("the same with keys like `namespace-7/object-123`, by reference")
            .measures("", "ns/key", faster(5.0, 2.0)),
        workload("cycle-handle", Kind::Cycle { by: By::Handle })
            .about("the same with `u64` keys through handles, where there are any")
            .measures("", "ns/key", {
                let mut targets = faster(9.0, 2.4);
                targets.push(Within(3.0, "array-queue"));
                targets
            }),
    ];
    all.extend(duplicates());
    all.extend(crowds());
    all.extend(waiting());
    all.extend(delays());
    all.extend(limiters());
    all.extend([
        workload("memory", Kind::Memory)
            .about("1M queued `u64` keys, and what is left when all are done")
            .measures("queued", "bytes/key", {
                vec![Target::Faster(2.0, "client-go"), AtMost(96.0)]
            })
            .measures("left when done", "bytes", vec![])
            .measures("left when shrunk", "bytes", vec![]),
        workload("start", Kind::Start)
            .about(
                "constructing and dropping a queue that nobody uses; one that a key goes through; and the \
                 threads (of Go: goroutines) of such a one",
            )
            .measures("", "ns", vec![])
            .measures("used", "ns", vec![])
            .measures("threads", "threads", vec![]),
    ]);
    all
}

fn duplicates() -> Vec<Workload> {
    let mut all = Vec::new();
    for (threads, single_lock) in [(1, 1.0), (4, 1.5)] {
        let of = |by| Kind::Duplicate { threads, by };
        all.push(
            workload(format!("duplicate-{threads}"), of(By::U64))
                .about("add of queued keys, so many threads")
                .measures("", "ns/add", faster(3.0, single_lock)),
        );
        all.push(
            workload(format!("duplicate-{threads}-handle"), of(By::Handle))
                .about("the same through handles")
                .measures("", "ns/add", vec![Target::Faster(8.0, "client-go")]),
        );
    }
    all
}

/// Producers and consumers.
fn crowds() -> Vec<Workload> {
    let mut all = Vec::new();
    let flow =
        |id: &str, keys, crowd| workload(format!("{id}-{crowd}"), Kind::Flow { keys, crowd });
    let unique = [(6.0, 1.5), (6.0, 1.3), (8.0, 2.5)];
    for (crowd, (client_go, single_lock)) in Crowd::ALL.into_iter().zip(unique) {
        all.push(
            flow("unique", Keys::U64, crowd)
                .about("1M distinct `u64` keys, producers x consumers, no work")
                .measures("", "ns/key", faster(client_go, single_lock)),
        );
    }
    for crowd in Crowd::ALL {
        all.push(
            flow("work", Keys::Worked, crowd)
                .about("the same with 500 ns of work a key; overhead over work / min(consumers, cores)")
                .measures("whole", "ns/key", vec![])
                .measures("overhead", "ns/key", faster(3.0, 2.0)),
        );
    }
    for crowd in Crowd::ALL {
        all.push(
            flow("string", Keys::Strings, crowd)
                .about("1M distinct strings, no work")
                .measures("", "ns/key", faster(3.0, 1.5)),
        );
    }
    for crowd in Crowd::ALL {
        all.push(
            workload(format!("hot-{crowd}"), Kind::Hot { crowd })
                .about("64 keys, 2M adds, 500 ns of work a delivery")
                .measures("adds", "ns/add", vec![])
                .measures("delivered", "ns/add", vec![]),
        );
    }
    all.push(
        workload("replay", Kind::Replay)
            .about("the events of a log by client address, 100 passes, one producer, one consumer")
            .measures("", "ns/event", vec![]),
    );
    all
}

/// Where somebody waits.
fn waiting() -> Vec<Workload> {
    let percentiles = |workload: Workload, asked: bool| {
        workload
            .measures("interval", "ns/add", vec![])
            .measures("p50", "ns", vec![])
            .measures("p99", "ns", if asked { faster(3.0, 1.0) } else { vec![] })
            .measures("p99.9", "ns", vec![])
    };
    let mut backlog = faster(3.0, 1.5);
    backlog.push(Target::Faster(10.0, "priorityqueue"));
    vec![
        workload("backlog", Kind::Backlog)
            .about("add of a new key while 1M wait for 1000 tasks that sleep 1 ms over each")
            .measures("", "ns/add", backlog),
        workload("reconcile", Kind::Reconcile)
            .about("50k distinct keys through the loop around the queue, 16 at a time, one task")
            .measures("", "ns/key", vec![]),
        percentiles(
            workload("latency", Kind::Latency { pace: Pace::Common })
                .about("open loop, add to get; the pace is half of what client-go can take"),
            true,
        ),
        percentiles(
            workload("latency-own", Kind::Latency { pace: Pace::Own })
                .about("the same, each at half of what it can take itself"),
            false,
        ),
        workload(
            "wake",
            Kind::Wake {
                waiter: Waiter::Thread,
            },
        )
        .about("a parked consumer: add to get")
        .measures("p50", "ns", vec![])
        .measures("p99", "ns", vec![]),
        workload(
            "wake-task",
            Kind::Wake {
                waiter: Waiter::Task,
            },
        )
        .about("the same of a waiting task")
        .measures("p50", "ns", vec![])
        .measures("p99", "ns", vec![]),
    ]
}

fn delays() -> Vec<Workload> {
    let asked = || {
        vec![
            Target::Faster(8.0, "client-go"),
            Target::Faster(2.0, "delay-queue"),
        ]
    };
    let delay = |id: &str, of| workload(id, Kind::Delay { of });
    vec![
        delay("delay-insert", delay::Kind::Insert)
            .about("1M delays of up to 10 minutes")
            .measures("", "ns/key", asked()),
        delay("delay-fire", delay::Kind::Fire)
            .about("200k delays that end within 200 ms: how late, and the processor time of it all")
            .measures("late, p50", "us", vec![])
            .measures("late, p99", "us", vec![AtMost(2000.0)])
            .measures("late, most", "us", vec![])
            .measures("processor", "ns/key", asked()),
        delay("delay-reset", delay::Kind::Reset)
            .about("1M delays, each moved earlier once, half of them cancelled")
            .measures("moved", "ns/key", asked())
            .measures(
                "cancelled",
                "ns/key",
                vec![Target::Faster(2.0, "delay-queue")],
            ),
        delay("delay-memory", delay::Kind::Memory)
            .about("1M delayed `u64` keys")
            .measures("", "bytes/key", vec![Target::Faster(2.0, "client-go")]),
    ]
}

fn limiters() -> impl Iterator<Item = Workload> {
    Limiter::ALL.into_iter().flat_map(|(limiter, name)| {
        [1, 4].map(|threads| {
            let kind = Kind::Limiter { limiter, threads };
            workload(format!("limiter-{name}-{threads}"), kind)
                .about("when and forget, 1024 keys, so many threads")
                .measures("", "ns", vec![Target::Faster(3.0, "client-go")])
        })
    })
}

fn workload(id: impl Into<String>, kind: Kind) -> Workload {
    Workload {
        id: id.into(),
        kind,
        what: "",
        metrics: Vec::new(),
    }
}

impl Workload {
    fn about(mut self, what: &'static str) -> Self {
        self.what = what;
        self
    }

    /// The next of the figures that a round returns.
    fn measures(mut self, name: &'static str, unit: &'static str, targets: Vec<Target>) -> Self {
        self.metrics.push(Metric {
            name,
            unit,
            targets,
        });
        self
    }
}
