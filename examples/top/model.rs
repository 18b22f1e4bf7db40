//! The data of a frame: figures from the queue's series, and keys from a snapshot.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use keyqueue::{State, WorkQueue};
use metrics_exporter_prometheus::PrometheusHandle;

use engine::Account;

/// The number of depths that are kept, and of keys that are shown.
const REMEMBERED: usize = 200;
const KEYS: usize = 64;

pub(crate) struct Model<'a> {
    queue: &'a WorkQueue<Account>,
    exported: &'a PrometheusHandle,
    /// The series by name, quantiles by name and quantile, and those of the frame before.
    now: HashMap<String, f64>,
    before: HashMap<String, f64>,
    refreshed: Instant,
    elapsed: Duration,
    pub(crate) depths: VecDeque<u64>,
    pub(crate) oldest: Vec<Key>,
    pub(crate) states: [usize; 4],
}

/// A row of the list of keys.
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) age: Duration,
    pub(crate) held: Option<Duration>,
    pub(crate) requeues: u32,
}

impl<'a> Model<'a> {
    pub(crate) fn new(queue: &'a WorkQueue<Account>, exported: &'a PrometheusHandle) -> Self {
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
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.queue.name().unwrap_or("-")
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
        self.look();
    }

    fn look(&mut self) {
        self.states = [0; 4];
        self.oldest.clear();
        for key in self.queue.snapshot() {
            self.states[key.state() as usize] += 1;
            self.oldest.push(Key {
                name: String::from_utf8_lossy(&key.key().name).into_owned(),
                state: key.state(),
                age: key.age().unwrap_or_default(),
                held: key.held(),
                requeues: key.requeues(),
            });
        }
        self.oldest
            .sort_by(|a, b| b.age.cmp(&a.age).then_with(|| a.name.cmp(&b.name)));
        self.oldest.truncate(KEYS);
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
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let quantile = labels
                .split_once("quantile=\"")
                .and_then(|(_, rest)| rest.split_once('"'));
            let name = match quantile {
                Some((quantile, _)) => format!("{name}:{quantile}"),
                None => name.to_owned(),
            };
            Some((name, value.parse().ok()?))
        })
        .collect()
}
