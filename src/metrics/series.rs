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

use metrics::{Key, Label, Level, Metadata, Recorder, Unit};

use super::histogram::{Histogram, LastReport};
use super::recorder::Name;
use super::reporter::Report;
use super::stripes::{Stripe, Stripes};
use super::tally::Counters;
use crate::engine::Core;
use crate::engine::scan::Scan;
use crate::engine::timing::{Event, Watch};
use crate::queue::WorkQueue;

/// The values that a report exports, apart from the histograms.
struct Totals<'a> {
    stripes: &'a Stripes,
    /// Deliveries, and keys that are not delivered yet.
    adds: u64,
    depth: u64,
    scan: Scan,
}

enum Read {
    Counter(fn(&Totals<'_>) -> u64),
    Gauge(fn(&Totals<'_>) -> f64),
}

use Read::{Counter, Gauge};

type Samples = fn(&Stripe) -> &Histogram;

/// The histograms: name, description, and where the samples are. They are client-go's.
const HISTOGRAMS: [(&str, &str, Samples); 2] = [
    (
        "workqueue_queue_duration_seconds",
        "How long a key was queued before it was delivered.",
        |stripe| &stripe.queue,
    ),
    (
        "workqueue_work_duration_seconds",
        "How long a key was processing.",
        |stripe| &stripe.work,
    ),
];

/// Every other series: name, value and description. The first five are client-go's.
#[rustfmt::skip]
const SERIES: [(&str, Read, &str); 11] = [
    ("workqueue_depth", Gauge(|totals| totals.depth as f64),
        "Keys that are queued, or will be once they are done."),
    ("workqueue_adds_total", Counter(|totals| totals.adds),
        "Adds that made a key dirty, and so caused a delivery."),
    ("workqueue_unfinished_work_seconds", Gauge(|totals| seconds(totals.scan.unfinished)),
        "How long all processing keys have been processing, in total. \
        A value that keeps rising indicates stuck keys."),
    ("workqueue_longest_running_processor_seconds", Gauge(|totals| seconds(totals.scan.longest)),
        "The longest time that a processing key has been processing."),
    ("workqueue_retries_total", Counter(|totals| totals.stripes.sum(Event::Retried)),
        "Accepted adds with a delay or a rate limit."),
    ("workqueue_delayed", Gauge(|totals| totals.scan.delayed as f64),
        "Delays that are pending."),
    ("workqueue_oldest_queued_seconds", Gauge(|totals| seconds(totals.scan.oldest)),
        "The age of the key that has been queued, or dirty, for the longest time."),
    ("workqueue_merged_adds_total", Counter(|totals| totals.stripes.sum(Event::Merged)),
        "Adds of keys that were queued or dirty already."),
    ("workqueue_cancelled_delays_total", Counter(|totals| totals.stripes.sum(Event::Cancelled)),
        "Pending delays that were cancelled."),
    ("workqueue_given_up_total", Counter(|totals| totals.stripes.sum(Event::GivenUp)),
        "Keys that the worker loop gave up."),
    ("workqueue_sweeps_total", Counter(|totals| totals.scan.sweeps),
        "Sweeps of idle keys out of a shard of the table."),
];

/// A scan of all keys may take one part in this many of the reporter's time.
const SHARE: u32 = 100;

/// The exported series of one queue.
pub(super) struct Series {
    name: Name,
    labels: Vec<Label>,
    histograms: [LastReport; HISTOGRAMS.len()],
    /// The reported value of each counter, in the order of `SERIES`.
    reported: [u64; SERIES.len()],
    scan: Scan,
    /// When to scan all keys again.
    next_scan: Option<Instant>,
    /// Whether the queue is being dropped.
    is_last: bool,
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
            histograms: [const { LastReport::new() }; HISTOGRAMS.len()],
            reported: [0; SERIES.len()],
            scan: Scan::default(),
            next_scan: None,
            is_last: false,
        }
    }

    fn key(&self, name: &'static str) -> Key {
        Key::from_parts(name, self.labels.clone())
    }

    /// Passes the samples since the last report to the recorder, and returns the number of all
    /// deliveries.
    fn report_durations(&mut self, to: &dyn Recorder, watch: &Watch, stripes: &Stripes) -> u64 {
        let [delivered, _] = std::array::from_fn(|index| {
            let (name, help, samples) = HISTOGRAMS[index];
            to.describe_histogram(name.into(), Some(Unit::Seconds), help.into());
            let exported = to.register_histogram(&self.key(name), metadata());
            self.histograms[index].report(stripes.each().map(samples), |ticks, count| {
                exported.record_many(seconds(watch.nanos(0, ticks)), count);
            })
        });
        delivered
    }

    /// Sets the gauges, and raises the counters; a counter is never lowered.
    fn report_totals(&mut self, to: &dyn Recorder, totals: &Totals<'_>) {
        for (index, (name, read, help)) in SERIES.iter().enumerate() {
            let key = self.key(name);
            let unit = name.ends_with("_seconds").then_some(Unit::Seconds);
            match read {
                Gauge(value) => {
                    to.describe_gauge((*name).into(), unit, (*help).into());
                    to.register_gauge(&key, metadata()).set(value(totals));
                }
                Counter(value) => {
                    to.describe_counter((*name).into(), unit, (*help).into());
                    let (value, reported) = (value(totals), &mut self.reported[index]);
                    let new = value.saturating_sub(*reported);
                    to.register_counter(&key, metadata()).increment(new);
                    *reported += new;
                }
            }
        }
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
    fn counters(&self) -> Option<(&Watch, &Counters)> {
        let watch = self.watch()?;
        Some((watch, watch.tally().counters()?))
    }

    /// Reports to the recorder. With `now` it always scans the keys, otherwise only if that does
    /// not take too much of the reporter's time.
    pub(crate) fn report_now(&self, now: bool) {
        // A recorder may call the queue, and even ask for a report.
        if let Some((watch, counters)) = self.counters()
            && let Some(_reporting) = Reporting::begin()
            && let Some(series) = counters.lock().as_mut()
        {
            self.report_series(series, watch, counters, |series| {
                let began = Instant::now();
                if now || series.next_scan.is_none_or(|next| began >= next) {
                    series.scan = self.scan(watch);
                    series.next_scan = began.checked_add(began.elapsed() * SHARE);
                }
                series.scan
            });
        }
    }

    /// Makes the last report of a queue that is dropped, and frees its name afterwards.
    pub(super) fn report_last(&self) {
        if let Some((watch, counters)) = self.counters()
            && let Some(mut series) = counters.lock().take()
        {
            series.is_last = true;
            self.report_series(&mut series, watch, counters, |_| self.scan(watch));
        }
    }

    fn report_series(
        &self,
        series: &mut Series,
        watch: &Watch,
        counters: &Counters,
        scan: impl FnOnce(&mut Series) -> Scan,
    ) {
        let stripes = &counters.stripes;
        series.name.recorder().clone().with(|to| {
            let delivered = series.report_durations(to, watch, stripes);
            // Read after the deliveries: see the header.
            let queued = self.len() as u64;
            let scan = scan(series);
            let depth = queued + scan.dirty;
            let mut totals = Totals {
                stripes,
                adds: delivered + depth,
                depth,
                scan,
            };
            if series.is_last {
                // Nothing is left of a dropped queue; the keys left in it were added all the same.
                totals.depth = 0;
                totals.scan = Scan {
                    sweeps: scan.sweeps,
                    ..Scan::default()
                };
            }
            series.report_totals(to, &totals);
        });
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
        let at_rest = self.closing.has_begun() && self.closing.all_finished();
        self.report_now(now || at_rest);
        !at_rest
    }
}
