//! The series: their names, and how a report updates them.
//!
//! A report passes to counters and histograms what is new since the last report, and sets gauges to
//! the current values. One thread at a time reports for a queue, under the queue's mutex.
//!
//! # Adds
//!
//! Adds are not counted directly. For each add that made a key dirty, either a delivery was
//! counted, or its key is in the FIFO, or processing and dirty; so their number is the sum of the
//! three. They are read in this order, so that a key that moves meanwhile is missed until the next
//! report, and not counted twice.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Key, KeyName, Label, Level, Metadata, Recorder, Unit};

use super::histogram::LastReport;
use super::recorder::Name;
use super::reporter::Report;
use super::tally::Counters;
use crate::engine::Core;
use crate::engine::scan::Scan;
use crate::engine::timing::Watch;
use crate::queue::WorkQueue;

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every series: its kind, name and description. The first seven are client-go's.
#[rustfmt::skip]
const SERIES: [(Kind, &str, &str); 13] = [
    (Kind::Gauge, DEPTH, "Keys that are queued, or will be once they are done."),
    (Kind::Counter, ADDS, "Adds that made a key dirty, and so caused a delivery."),
    (Kind::Histogram, QUEUE_DURATION, "How long a key was queued before it was delivered."),
    (Kind::Histogram, WORK_DURATION, "How long a key was processing."),
    (Kind::Gauge, UNFINISHED, "How long all processing keys have been processing, in total. \
        A value that keeps rising indicates stuck keys."),
    (Kind::Gauge, LONGEST, "The longest time that a processing key has been processing."),
    (Kind::Counter, RETRIES, "Accepted adds with a delay or a rate limit."),
    (Kind::Gauge, DELAYED, "Delays that are pending."),
    (Kind::Gauge, OLDEST, "The age of the key that has been queued, or dirty, for the longest time."),
    (Kind::Counter, MERGED, "Adds of keys that were queued or dirty already."),
    (Kind::Counter, CANCELLED, "Pending delays that were cancelled."),
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

/// A scan of all keys may take one part in this many of the reporter's time.
const SHARE: u32 = 100;

/// The exported series of one queue.
pub(super) struct Series {
    name: Name,
    labels: Vec<Label>,
    queue: LastReport,
    work: LastReport,
    /// The reported value of each counter, in the order of `SERIES`.
    reported: [u64; SERIES.len()],
    scan: Scan,
    /// When to scan all keys again.
    next_scan: Option<Instant>,
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
            queue: LastReport::new(),
            work: LastReport::new(),
            reported: [0; SERIES.len()],
            scan: Scan::default(),
            next_scan: None,
        }
    }

    fn key(&self, name: &'static str) -> Key {
        Key::from_parts(name, self.labels.clone())
    }

    fn gauge(&self, to: &dyn Recorder, name: &'static str, value: f64) {
        let gauge: Gauge = to.register_gauge(&self.key(name), metadata());
        gauge.set(value);
    }

    /// Raises a counter to `value`, and never lowers it.
    fn counter(&mut self, to: &dyn Recorder, name: &'static str, value: u64) {
        let counter: Counter = to.register_counter(&self.key(name), metadata());
        let index = SERIES.iter().position(|series| series.1 == name);
        let reported = &mut self.reported[index.expect("every name is in the table")];
        counter.increment(value.saturating_sub(*reported));
        *reported = value.max(*reported);
    }

    fn report(
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
        let delivered = self.queue.report(
            stripes.each().map(|stripe| &stripe.queue),
            |ticks, count| {
                waited.record_many(seconds(watch.nanos(0, ticks)), count);
            },
        );
        let worked = to.register_histogram(&self.key(WORK_DURATION), metadata());
        self.work
            .report(stripes.each().map(|stripe| &stripe.work), |ticks, count| {
                worked.record_many(seconds(watch.nanos(0, ticks)), count);
            });
        let depth = look(self);
        let scan = self.scan;
        self.gauge(to, DEPTH, depth as f64);
        self.counter(to, ADDS, delivered + depth);
        self.gauge(to, UNFINISHED, seconds(scan.unfinished));
        self.gauge(to, LONGEST, seconds(scan.longest));
        self.counter(to, RETRIES, stripes.sum(|stripe| &stripe.retries));
        self.gauge(to, DELAYED, scan.delayed as f64);
        self.gauge(to, OLDEST, seconds(scan.oldest));
        self.counter(to, MERGED, stripes.sum(|stripe| &stripe.merged));
        self.counter(to, CANCELLED, stripes.sum(|stripe| &stripe.cancelled));
        self.counter(to, GIVEN_UP, stripes.sum(|stripe| &stripe.given_up));
        self.counter(to, SWEEPS, scan.sweeps);
    }
}

thread_local! {
    static REPORTING: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as the maker of a report, until it is dropped.
struct Reporting(());

impl Reporting {
    /// Returns `None` if the thread makes one already: a second one would deadlock.
    fn begin() -> Option<Self> {
        (!REPORTING.replace(true)).then_some(Reporting(()))
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        REPORTING.set(false);
    }
}

impl<K> Core<K> {
    /// Reports to the recorder. With `now` it always scans the keys, otherwise only if that does
    /// not take too much of the reporter's time.
    pub(crate) fn report_now(&self, now: bool) {
        let Some(watch) = self.watch() else {
            return;
        };
        let Some(counters) = watch.tally().counters() else {
            return;
        };
        // A recorder may call the queue, and even ask for a report.
        let Some(_reporting) = Reporting::begin() else {
            return;
        };
        let mut series = counters.lock();
        let Some(series) = series.as_mut() else {
            return;
        };
        let recorder = series.name.recorder().clone();
        recorder.with(|to| {
            series.report(to, watch, counters, |series| {
                let queued = self.len() as u64;
                let began = Instant::now();
                if now || series.next_scan.is_none_or(|next| began >= next) {
                    series.scan = self.scan(watch);
                    series.next_scan = began.checked_add(began.elapsed() * SHARE);
                }
                queued + series.scan.dirty
            });
        });
    }

    /// Makes the last report of a queue that is dropped.
    pub(super) fn report_last(&self, watch: &Watch, counters: &Counters) {
        // The name is freed after the zeros are reported.
        if let Some(mut series) = counters.lock().take() {
            let recorder = series.name.recorder().clone();
            recorder.with(|to| {
                series.report(to, watch, counters, |series| {
                    let scan = self.scan(watch);
                    // Keys left in the queue were added, too.
                    let depth = self.len() as u64 + scan.dirty;
                    series.scan = Scan {
                        sweeps: scan.sweeps,
                        ..Scan::default()
                    };
                    depth
                });
                series.gauge(to, DEPTH, 0.0);
            });
        }
    }
}

impl<K, L, S> WorkQueue<K, L, S> {
    /// Updates the exported series. Does nothing if the queue has no name.
    ///
    /// The reporter does so every [`INTERVAL`](crate::metrics::INTERVAL). Visits every key, and
    /// calls the recorder. Does nothing if a recorder calls it during a report.
    pub fn report(&self) {
        self.core.report_now(true);
    }
}

impl<K: Send + Sync> Report for Core<K> {
    fn report(&self, now: bool) -> bool {
        let at_rest = self.closing().has_begun() && self.closing().all_finished();
        self.report_now(now || at_rest);
        !at_rest
    }
}
