//! The data of a frame: figures from the queue's series, and keys from a snapshot.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::engine::{Lines, Name};
use keyqueue::{GroupCounts, KeySnapshot, WorkQueue};
use metrics_exporter_prometheus::PrometheusHandle;

/// A group of names.
pub(crate) type Letter = char;

/// The number of depths that are kept, and of keys and groups that are shown.
const REMEMBERED: usize = 200;
const KEYS: usize = 64;
const GROUPS: usize = 10;

pub(crate) struct Model<'a> {
    pub(crate) queue: &'a WorkQueue<Name, Lines>,
    exported: &'a PrometheusHandle,
    /// The series by name, quantiles by name and quantile, and those of the frame before.
    now: HashMap<String, f64>,
    before: HashMap<String, f64>,
    refreshed: Instant,
    elapsed: Duration,
    pub(crate) depths: VecDeque<u64>,
    pub(crate) oldest: Vec<KeySnapshot<'a, Name, Lines>>,
    pub(crate) states: [usize; 4],
    /// The number of keys that are queued at each level.
    pub(crate) levels: Vec<usize>,
    /// Those with the most keys.
    pub(crate) groups: Vec<GroupCounts<Letter>>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(queue: &'a WorkQueue<Name, Lines>, exported: &'a PrometheusHandle) -> Self {
        Model {
            queue,
            exported,
            now: HashMap::new(),
            before: HashMap::new(),
            refreshed: Instant::now(),
            elapsed: Duration::ZERO,
            depths: VecDeque::new(),
            oldest: Vec::new(),
            states: [0; 4],
            levels: Vec::new(),
            groups: Vec::new(),
        }
    }

    pub(crate) fn refresh(&mut self) {
        self.queue.report();
        self.elapsed = self.refreshed.elapsed();
        self.refreshed += self.elapsed;
        let now = parse(&self.exported.render());
        self.before = std::mem::replace(&mut self.now, now);
        if self.depths.len() == REMEMBERED {
            self.depths.pop_front();
        }
        self.depths.push_back(self.value("workqueue_depth") as u64);

        self.oldest = self.queue.snapshot();
        self.states = [0; 4];
        for key in &self.oldest {
            self.states[key.state() as usize] += 1;
        }
        self.oldest.sort_by(|a, b| {
            let by_age = b.age().cmp(&a.age());
            by_age.then_with(|| a.key().cmp(b.key()))
        });
        self.oldest.truncate(KEYS);

        self.levels = self.queue.len_by_level();
        self.groups = self.queue.groups();
        self.groups.truncate(GROUPS);
    }

    /// A counter or gauge, or `series:quantile`.
    pub(crate) fn value(&self, series: &str) -> f64 {
        self.now.get(series).copied().unwrap_or_default()
    }

    /// The increase of a counter per second.
    pub(crate) fn rate(&self, series: &str) -> f64 {
        let before = self.before.get(series).copied().unwrap_or_default();
        (self.value(series) - before) / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The exported text, line by line: `series{name="pipeline",quantile="0.5"} 0.25`.
fn parse(text: &str) -> HashMap<String, f64> {
    let lines = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let name = match labels
            .split('"')
            .skip_while(|label| !label.ends_with("quantile="))
            .nth(1)
        {
            Some(quantile) => format!("{name}:{quantile}"),
            None => name.to_owned(),
        };
        Some((name, value.parse().ok()?))
    });
    lines.collect()
}
