//! The series: their names, and what a report tells of them.
//!
//! Counters and histograms are told what is new since the last report, gauges what is. A report is made
//! by one thread at a time, under the queue's mutex.
//!
//! # Adds
//!
//! Nobody counts adds. Each add that made a key dirty is behind a delivery that was counted, or its key
//! is in the FIFO, or dirty in a worker's hands; and the deliveries are counted anyway. They are read
//! in this order, so that a key on its way through is overlooked, and found by the next report, rather
//! than counted twice.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Key, KeyName, Label, Level, Metadata, Recorder, Unit};

use super::histogram::Told;
use super::look::Look;
use super::recorder::Name;
use super::reporter::Report;
use super::tally::Counters;
use crate::core::Core;
use crate::queue::WorkQueue;
use crate::watch::Watch;

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every series: its kind, its name, and what it says. The first seven are client-go's.
#[rustfmt::skip]
const SERIES: [(Kind, &str, &str); 13] = [
    (Kind::Gauge, DEPTH, "Keys that are queued, or will be once their worker is done."),
    (Kind::Counter, ADDS, "Adds that made a key dirty: those that ended in a delivery of their own."),
    (Kind::Histogram, QUEUE_DURATION, "How long a key was queued before it was handed out."),
    (Kind::Histogram, WORK_DURATION, "How long a key was with its worker."),
    (Kind::Gauge, UNFINISHED, "How long all keys in flight have been with their workers, together. \
        A value that keeps rising tells of keys that are stuck."),
    (Kind::Gauge, LONGEST, "How long the key that has been in flight for the longest time has been there."),
    (Kind::Counter, RETRIES, "Accepted adds with a delay or a rate limit."),
    (Kind::Gauge, DELAYED, "Delays that are pending."),
    (Kind::Gauge, OLDEST, "The age of the key that has been queued, or dirty, for the longest time."),
    (Kind::Counter, MERGED, "Adds of keys that were queued or dirty already."),
    (Kind::Counter, CANCELLED, "Pending delays that were taken back."),
    (Kind::Counter, GIVEN_UP, "Keys that the worker loop gave up."),
    (Kind::Counter, SWEEPS, "Sweeps of idle keys out of a shard of the table."),
];

const DEPTH: &str = "workqueue_depth";
const ADDS: &str = "workqueue_adds_total";
const QUEUE_DURATION: &str = "workqueue_queue_duration_seconds";
const WORK_DURATION: &str = "workqueue_work_duration_seconds";
const UNFINISHED: &str = "workqueue_unfinished_work_seconds";
const LONGEST: &str = "workqueue_longest_running_processor_seconds";
const RETRIES: &str = "workqueue_retries_total";
const DELAYED: &str = "workqueue_delayed";
const OLDEST: &str = "workqueue_oldest_queued_seconds";
const MERGED: &str = "workqueue_merged_adds_total";
const CANCELLED: &str = "workqueue_cancelled_delays_total";
const GIVEN_UP: &str = "workqueue_given_up_total";
const SWEEPS: &str = "workqueue_sweeps_total";

/// A look at all keys may take one part in so many of the reporter's time.
const SHARE: u32 = 100;

/// What is exported of one queue.
pub(super) struct Series {
    name: Name,
    labels: Vec<Label>,
    queue: Told,
    work: Told,
    /// What has been told of each counter, in the order of `SERIES`.
    told: [u64; SERIES.len()],
    look: Look,
    /// When to look at all keys again.
    next_look: Option<Instant>,
}

fn metadata() -> &'static Metadata<'static> {
    static METADATA: LazyLock<Metadata<'static>> =
        LazyLock::new(|| Metadata::new("keyqueue", Level::INFO, Some(module_path!())));
    &METADATA
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

impl Series {
    pub(super) fn new(name: Name) -> Self {
        Series {
            labels: vec![Label::new("name", name.as_str().to_owned())],
            name,
            queue: Told::new(),
            work: Told::new(),
            told: [0; SERIES.len()],
            look: Look::default(),
            next_look: None,
        }
    }

    fn key(&self, name: &'static str) -> Key {
        Key::from_parts(name, self.labels.clone())
    }

    fn gauge(&self, to: &dyn Recorder, name: &'static str, value: f64) {
        let gauge: Gauge = to.register_gauge(&self.key(name), metadata());
        gauge.set(value);
    }

    /// Raises a counter to `value`; it never goes down.
    fn counter(&mut self, to: &dyn Recorder, name: &'static str, value: u64) {
        let counter: Counter = to.register_counter(&self.key(name), metadata());
        let index = SERIES.iter().position(|series| series.1 == name);
        let told = &mut self.told[index.expect("every name is in the table")];
        counter.increment(value.saturating_sub(*told));
        *told = value.max(*told);
    }

    fn tell(
        &mut self,
        to: &dyn Recorder,
        watch: &Watch,
        counters: &Counters,
        look: impl FnOnce(&mut Self) -> u64,
    ) {
        for (kind, name, help) in SERIES {
            let unit = name.ends_with("_seconds").then_some(Unit::Seconds);
            let (name, help) = (KeyName::from(name), help.into());
            match kind {
                Kind::Counter => to.describe_counter(name, unit, help),
                Kind::Gauge => to.describe_gauge(name, unit, help),
                Kind::Histogram => to.describe_histogram(name, unit, help),
            }
        }
        let stripes = &counters.stripes;
        let waited = to.register_histogram(&self.key(QUEUE_DURATION), metadata());
        let delivered = self.queue.tell(
            stripes.each().map(|stripe| &stripe.queue),
            |ticks, count| {
                waited.record_many(seconds(watch.nanos(0, ticks)), count);
            },
        );
        let worked = to.register_histogram(&self.key(WORK_DURATION), metadata());
        self.work
            .tell(stripes.each().map(|stripe| &stripe.work), |ticks, count| {
                worked.record_many(seconds(watch.nanos(0, ticks)), count);
            });
        let depth = look(self);
        let look = self.look;
        self.gauge(to, DEPTH, depth as f64);
        self.counter(to, ADDS, delivered + depth);
        self.gauge(to, UNFINISHED, seconds(look.unfinished));
        self.gauge(to, LONGEST, seconds(look.longest));
        self.counter(to, RETRIES, stripes.sum(|stripe| &stripe.retries));
        self.gauge(to, DELAYED, look.delayed as f64);
        self.gauge(to, OLDEST, seconds(look.oldest));
        self.counter(to, MERGED, stripes.sum(|stripe| &stripe.merged));
        self.counter(to, CANCELLED, stripes.sum(|stripe| &stripe.cancelled));
        self.counter(to, GIVEN_UP, stripes.sum(|stripe| &stripe.given_up));
        self.counter(to, SWEEPS, look.sweeps);
    }
}

impl<K> Core<K> {
    /// Tells the recorder what there is to tell. With `now` the keys are looked at in any case, else
    /// only if that does not take too much of the reporter's time.
    pub(crate) fn report_now(&self, now: bool) {
        let Some(watch) = self.watch() else {
            return;
        };
        let Some(counters) = watch.tally().counters() else {
            return;
        };
        let mut series = counters.lock();
        let Some(series) = series.as_mut() else {
            return;
        };
        let recorder = series.name.recorder().clone();
        recorder.with(|to| {
            series.tell(to, watch, counters, |series| {
                let queued = self.len() as u64;
                let began = Instant::now();
                if now || series.next_look.is_none_or(|next| began >= next) {
                    series.look = self.look(watch);
                    series.next_look = began.checked_add(began.elapsed() * SHARE);
                }
                queued + series.look.dirty
            });
        });
    }

    /// The last report of a queue that is dropped.
    pub(super) fn report_last(&self, watch: &Watch, counters: &Counters) {
        // The name is free once the zeros are told.
        if let Some(mut series) = counters.lock().take() {
            let recorder = series.name.recorder().clone();
            recorder.with(|to| {
                series.tell(to, watch, counters, |series| {
                    let look = self.look(watch);
                    // What is left in the queue was added, too.
                    let depth = self.len() as u64 + look.dirty;
                    series.look = Look {
                        sweeps: look.sweeps,
                        ..Look::default()
                    };
                    depth
                });
                series.gauge(to, DEPTH, 0.0);
            });
        }
    }
}

impl<K, L, S> WorkQueue<K, L, S> {
    /// Brings the exported series up to date; nothing happens if the queue has no name.
    ///
    /// Without it that is done every [`INTERVAL`](crate::metrics::INTERVAL). Looks at every key, and
    /// calls the recorder.
    pub fn report(&self) {
        if let Some(core) = self.core.get() {
            core.report_now(true);
        }
    }
}

impl<K: Send + Sync> Report for Core<K> {
    fn report(&self, now: bool) -> bool {
        let at_rest = self.closing().has_begun() && self.closing().all_finished();
        self.report_now(now || at_rest);
        !at_rest
    }
}
