//! A recorder that keeps what was recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

type Id = (&'static str, String, String);

type Values = Arc<Mutex<BTreeMap<Id, Vec<f64>>>>;

#[derive(Default)]
struct Series {
    values: Values,
    help: Mutex<BTreeMap<String, String>>,
    called_back: Mutex<Option<CallBack>>,
}

type CallBack = Box<dyn Fn() + Send>;

/// Everything that was recorded.
#[derive(Clone, Default)]
pub(crate) struct Recorded(Arc<Series>);

impl Recorded {
    pub(crate) fn recorder(&self) -> Arc<dyn Recorder + Send + Sync> {
        // Every call returns the same recorder.
        Arc::<Series>::clone(&self.0)
    }

    /// Kind, series and queue of everything there is; with a second label `pods, done`.
    pub(crate) fn series(&self) -> Vec<Id> {
        self.0.values.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn help(&self, series: &str) -> String {
        let help = self.0.help.lock().unwrap();
        help.get(series).cloned().unwrap_or_default()
    }

    /// The samples of a histogram, in order.
    pub(crate) fn samples(&self, series: &str, name: &str) -> Vec<f64> {
        let values = self.0.values.lock().unwrap();
        let mut all = values.iter();
        let found = all.find(|(id, _)| id.1 == series && id.2 == name);
        found.map(|(_, values)| values.clone()).unwrap_or_default()
    }

    pub(crate) fn try_value(&self, series: &str, name: &str) -> Option<f64> {
        self.samples(series, name).first().copied()
    }

    /// The value of a counter or a gauge.
    #[track_caller]
    pub(crate) fn value(&self, series: &str, name: &str) -> f64 {
        match self.try_value(series, name) {
            Some(value) => value,
            None => panic!("no {series} of {name} in {:?}", self.series()),
        }
    }

    /// What to call when the next gauge is registered, in the middle of a report.
    pub(crate) fn call_back(&self, f: impl Fn() + Send + 'static) {
        *self.0.called_back.lock().unwrap() = Some(Box::new(f));
    }
}

impl Recorder for Series {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(key, help);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(key, help);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(key, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one("counter", key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let call_back = self.called_back.lock().unwrap().take();
        if let Some(f) = call_back {
            f();
        }
        Gauge::from_arc(self.one("gauge", key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one("histogram", key))
    }
}

impl Series {
    fn describe(&self, key: KeyName, help: SharedString) {
        let mut all = self.help.lock().unwrap();
        all.insert(key.as_str().to_owned(), help.to_string());
    }

    fn one(&self, kind: &'static str, key: &Key) -> Arc<One> {
        let labels: Vec<_> = key.labels().collect();
        assert_eq!(labels[0].key(), "name");
        let mut name = labels[0].value().to_owned();
        let second = match key.name() {
            "workqueue_worker_results_total" => Some("result"),
            "workqueue_level_depth" => Some("level"),
            _ => None,
        };
        assert_eq!(labels.get(1).map(|label| label.key()), second, "{key}");
        if second.is_some() {
            name = format!("{name}, {}", labels[1].value());
        }
        let id = (kind, key.name().to_owned(), name);
        // A histogram has a list of samples, any other series one value.
        let first = vec![0.0; usize::from(kind != "histogram")];
        let mut values = self.values.lock().unwrap();
        values.entry(id.clone()).or_insert(first);
        Arc::new(One {
            values: Arc::clone(&self.values),
            id,
        })
    }
}

/// One series.
struct One {
    values: Values,
    id: Id,
}

impl One {
    fn change(&self, change: impl FnOnce(&mut Vec<f64>)) {
        change(self.values.lock().unwrap().get_mut(&self.id).unwrap());
    }
}

impl CounterFn for One {
    fn increment(&self, by: u64) {
        self.change(|value| value[0] += by as f64);
    }

    fn absolute(&self, _: u64) {
        unreachable!("another queue may have used the name before");
    }
}

impl GaugeFn for One {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn set(&self, now: f64) {
        self.change(|value| value[0] = now);
    }
}

impl HistogramFn for One {
    fn record(&self, sample: f64) {
        self.change(|samples| samples.push(sample));
    }
}
