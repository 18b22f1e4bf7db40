//! Every workload by its id, what it measures, and what is asked of it.

use super::{By, Crowd, Keys, Kind, delay};

/// One id of the table: a row for each metric.
pub(crate) struct Workload {
    pub(crate) id: String,
    pub(crate) kind: Kind,
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
    /// To be this many times less than the single lock's.
    Faster(f64),
    /// To be at most this many times the named contender's.
    Within(f64, &'static str),
    /// To be at most this.
    AtMost(f64),
}

use Target::{AtMost, Faster, Within};

/// Every workload, in the order of the table.
pub(crate) fn all() -> Vec<Workload> {
    let near_the_limit = Within(3.0, "array-queue");
    let mut all = vec![
        workload("cycle-u64", Kind::Cycle(By::U64)).measures("", "ns/key", &[Faster(1.7)]),
        workload("cycle-string", Kind::Cycle(By::Str)).measures("", "ns/key", &[Faster(2.0)]),
        workload("cycle-handle", Kind::Cycle(By::Handle)).measures(
            "",
            "ns/key",
            &[Faster(2.4), near_the_limit],
        ),
    ];
    for (threads, faster) in [(1, 1.0), (4, 1.5)] {
        let by_key = workload(
            format!("duplicate-{threads}"),
            Kind::Duplicate(threads, By::U64),
        );
        let by_handle = workload(
            format!("duplicate-{threads}-handle"),
            Kind::Duplicate(threads, By::Handle),
        );
        all.push(by_key.measures("", "ns/add", &[Faster(faster)]));
        all.push(by_handle.measures("", "ns/add", &[]));
    }
    for (crowd, faster) in Crowd::ALL.into_iter().zip([1.5, 1.3, 2.5]) {
        let unique = workload(format!("unique-{crowd}"), Kind::Flow(Keys::U64, crowd));
        all.push(unique.measures("", "ns/key", &[Faster(faster)]));
    }
    for crowd in Crowd::ALL {
        let work = workload(format!("work-{crowd}"), Kind::Flow(Keys::Worked, crowd));
        let work = work.measures("whole", "ns/key", &[]);
        all.push(work.measures("overhead", "ns/key", &[Faster(2.0)]));
    }
    for crowd in Crowd::ALL {
        let string = workload(format!("string-{crowd}"), Kind::Flow(Keys::Strings, crowd));
        all.push(string.measures("", "ns/key", &[Faster(1.5)]));
    }
    for crowd in Crowd::ALL {
        let hot = workload(format!("hot-{crowd}"), Kind::Hot(crowd));
        let hot = hot.measures("adds", "ns/add", &[]);
        all.push(hot.measures("deliveries", "ns/key", &[]));
    }
    all.extend([
        workload("memory", Kind::Memory)
            .measures("queued", "bytes/key", &[AtMost(96.0)])
            .measures("left when done", "bytes", &[])
            .measures("left when shrunk", "bytes", &[]),
        workload("start", Kind::Start).measures("", "ns", &[]),
        workload("wake", Kind::Wake)
            .measures("p50", "ns", &[])
            .measures("p99", "ns", &[]),
        workload("delay-insert", Kind::Delay(delay::Kind::Insert)).measures("", "ns/key", &[]),
        workload("delay-fire", Kind::Delay(delay::Kind::Fire))
            .measures("late, p50", "us", &[])
            .measures("late, p99", "us", &[])
            .measures("late, most", "us", &[]),
        workload("delay-reset", Kind::Delay(delay::Kind::Reset))
            .measures("moved", "ns/key", &[])
            .measures("cancelled", "ns/key", &[]),
        workload("delay-memory", Kind::Delay(delay::Kind::Memory)).measures("", "bytes/key", &[]),
    ]);
    all
}

fn workload(id: impl Into<String>, kind: Kind) -> Workload {
    Workload {
        id: id.into(),
        kind,
        metrics: Vec::new(),
    }
}

impl Workload {
    /// The next of the figures that a round returns.
    fn measures(mut self, name: &'static str, unit: &'static str, targets: &[Target]) -> Self {
        let targets = targets.to_vec();
        self.metrics.push(Metric {
            name,
            unit,
            targets,
        });
        self
    }
}
