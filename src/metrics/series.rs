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
//! report, and not counted twice. A report without a scan leaves out the dirty keys: those of the last scan may have been
//! delivered.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use metrics::{Key, Label, Level, Metadata, Recorder, Unit};

use super::event::Event;
use super::histogram::{self, Histogram, Sums};
use super::lock;
use super::recorder::Name;
use super::stripes::{Stripe, Stripes};
use super::tally::Tally;
use crate::keys::times::Ticks;
use crate::sync::catch_panic::catch_panic;

/// The queue that a report is about.
pub(crate) trait Source {
    fn tally(&self) -> Option<&Tally>;

    /// Returns whether the queue is shut down, and no key is processing.
    fn is_at_rest(&self) -> bool;

    /// Converts a duration to nanoseconds.
    fn nanos(&self, ticks: Ticks) -> u64;

    fn gauges(&self) -> Gauges;

    fn scan(&self) -> Scan;
}

/// What a scan of all keys has found. Ages are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Keys that are processing and will be queued again.
    pub(crate) dirty: u64,
    /// The age of the key that has been queued, or dirty, for the longest time.
    pub(crate) oldest: u64,
    /// The sum and the maximum of the times that the processing keys have been processing.
    pub(crate) unfinished: u64,
    pub(crate) longest: u64,
    /// Pending delays.
    pub(crate) delayed: u64,
    /// Keys that wait for a retry.
    pub(crate) retrying: u64,
    /// Sweeps since the queue was built.
    pub(crate) sweeps: u64,
    /// The queued keys of each level; empty if the queue has no levels.
    pub(crate) levels: Vec<usize>,
    /// Groups that wait for a time.
    pub(crate) parked: usize,
}

/// What a queue has, without a scan.
#[derive(Default)]
pub(crate) struct Gauges {
    pub(crate) queued: usize,
    /// Adds that wait for room.
    pub(crate) waiting: usize,
    /// Dead letters of the queue's workers, and the age of the oldest in nanoseconds.
    pub(crate) letters: usize,
    pub(crate) oldest_letter: u64,
}

/// The values that a report exports, apart from the histograms.
struct Totals<'a> {
    stripes: &'a Stripes,
    /// Deliveries, and keys that are not delivered yet.
    adds: u64,
    depth: u64,
    gauges: Gauges,
    scan: &'a Scan,
}

type Value = fn(&Totals<'_>) -> u64;

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

/// Every other series: name, value and description. Names that end with `_total` are counters, the
/// others gauges; values of `_seconds` are in nanoseconds. The first five are client-go's.
#[rustfmt::skip]
const SERIES: [(&str, Value, &str); 16] = [
    ("workqueue_depth", |totals| totals.depth,
        "Keys that are queued, or will be once they are done."),
    ("workqueue_adds_total", |totals| totals.adds,
        "Adds that made a key dirty, and so caused a delivery."),
    ("workqueue_unfinished_work_seconds", |totals| totals.scan.unfinished,
        "How long all processing keys have been processing, in total. \
        A value that keeps rising indicates stuck keys."),
    ("workqueue_longest_running_processor_seconds", |totals| totals.scan.longest,
        "The longest time that a processing key has been processing."),
    ("workqueue_retries_total", |totals| totals.stripes.sum(Event::Retried),
        "Accepted adds with a delay or a rate limit."),
    ("workqueue_delayed", |totals| totals.scan.delayed,
        "Delays that are pending."),
    ("workqueue_retrying", |totals| totals.scan.retrying,
        "Keys that have failed, and wait for their retry or are queued for it."),
    ("workqueue_oldest_queued_seconds", |totals| totals.scan.oldest,
        "The age of the key that has been queued, or dirty, for the longest time."),
    ("workqueue_merged_adds_total", |totals| totals.stripes.sum(Event::Merged),
        "Adds of keys that were queued or dirty already, and adds that wait for a retry."),
    ("workqueue_cancelled_delays_total", |totals| totals.stripes.sum(Event::Cancelled),
        "Pending delays that were cancelled."),
    ("workqueue_waiting_adds", |totals| totals.gauges.waiting as u64,
        "Adds and puts that wait for room in a queue with a capacity."),
    ("workqueue_throttled_groups", |totals| totals.scan.parked as u64,
        "Groups that have queued keys, and are held or without a token."),
    ("workqueue_dead_letters", |totals| totals.gauges.letters as u64,
        "Keys that were given up, in the stores of dead letters of the queue's workers."),
    ("workqueue_oldest_dead_letter_seconds", |totals| totals.gauges.oldest_letter,
        "How long ago the oldest of these was given up first."),
    ("workqueue_dead_letters_lost_total", |totals| totals.stripes.sum(Event::LetterLost),
        "Keys that a full store did not keep, and letters that it dropped for others."),
    ("workqueue_sweeps_total", |totals| totals.scan.sweeps,
        "Sweeps of idle keys out of a shard of the table."),
];

/// The series of the worker loop (M5), and the values of its label `result`.
const RESULTS: (&str, &str) = (
    "workqueue_worker_results_total",
    "Runs of the worker loop's function by their result, and keys that were given up.",
);
const RESULT: [(&str, Event); 5] = [
    ("done", Event::Done),
    ("requeue_after", Event::RequeueAfter),
    ("error", Event::Error),
    ("panic", Event::Panic),
    ("given_up", Event::GivenUp),
];

/// The depth of each level (P4), with the level as the label `level`.
const LEVELS: (&str, &str) = (
    "workqueue_level_depth",
    "Keys that are queued at a level; 0 is the most urgent.",
);

/// A scan of all keys may take one part in this many of the reporter's time.
const SHARE: u32 = 100;

/// The exported series of one queue.
pub(super) struct Series {
    name: Name,
    /// The reported samples, in the order of `HISTOGRAMS`.
    histograms: [Sums; HISTOGRAMS.len()],
    /// The reported value of each counter, in the order of `SERIES` and `RESULT`.
    reported: [u64; SERIES.len() + RESULT.len()],
    scan: Scan,
    /// When to scan all keys again.
    next_scan: Option<Instant>,
}

static METADATA: Metadata<'static> = Metadata::new("keyqueue", Level::INFO, Some(module_path!()));

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

impl Series {
    pub(super) fn new(name: Name) -> Self {
        Series {
            name,
            histograms: [histogram::NO_SUMS; HISTOGRAMS.len()],
            reported: [0; SERIES.len() + RESULT.len()],
            scan: Scan::default(),
            next_scan: None,
        }
    }

    fn key(&self, name: &'static str) -> Key {
        Key::from_parts(name, vec![Label::new("name", self.name.name.clone())])
    }

    /// Raises the counter at `index` to `value`; never lowers it.
    fn count(&mut self, to: &dyn Recorder, key: &Key, index: usize, value: u64) {
        let new = value.saturating_sub(self.reported[index]);
        to.register_counter(key, &METADATA).increment(new);
        self.reported[index] += new;
    }

    /// Passes the samples since the last report to the recorder, and returns the number of all
    /// deliveries.
    fn report_durations(&mut self, to: &dyn Recorder, of: &dyn Source, stripes: &Stripes) -> u64 {
        let [delivered, _] = std::array::from_fn(|index| {
            let (name, help, samples) = HISTOGRAMS[index];
            to.describe_histogram(name.into(), Some(Unit::Seconds), help.into());
            let exported = to.register_histogram(&self.key(name), &METADATA);
            let samples = stripes.each().map(samples);
            histogram::report(&mut self.histograms[index], samples, |ticks, count| {
                exported.record_many(seconds(of.nanos(ticks)), count);
            })
        });
        delivered
    }

    /// Sets the gauges, and raises the counters.
    fn report_totals(&mut self, to: &dyn Recorder, totals: &Totals<'_>) {
        for (index, (name, value, help)) in SERIES.into_iter().enumerate() {
            let (key, value) = (self.key(name), value(totals));
            if name.ends_with("_total") {
                to.describe_counter(name.into(), None, help.into());
                self.count(to, &key, index, value);
            } else {
                let unit = name.ends_with("_seconds").then_some(Unit::Seconds);
                let value = unit.map_or(value as f64, |_| seconds(value));
                to.describe_gauge(name.into(), unit, help.into());
                to.register_gauge(&key, &METADATA).set(value);
            }
        }
        let (name, help) = LEVELS;
        for (level, depth) in totals.scan.levels.iter().enumerate() {
            to.describe_gauge(name.into(), None, help.into());
            let label = vec![Label::new("level", level.to_string())];
            let key = self.key(name).with_extra_labels(label);
            to.register_gauge(&key, &METADATA).set(*depth as f64);
        }
        let (name, help) = RESULTS;
        to.describe_counter(name.into(), None, help.into());
        for (index, (result, event)) in RESULT.into_iter().enumerate() {
            let label = vec![Label::new("result", result)];
            let key = self.key(name).with_extra_labels(label);
            self.count(to, &key, SERIES.len() + index, totals.stripes.sum(event));
        }
    }

    /// Reports the current values. With `now` it always scans the keys, otherwise only if that does
    /// not take too much of the reporter's time.
    fn report(&mut self, of: &dyn Source, stripes: &Stripes, now: bool) {
        self.name.recorder.clone().with(|to| {
            let delivered = self.report_durations(to, of, stripes);
            // Read after the deliveries: see the header.
            let gauges = of.gauges();
            let began = Instant::now();
            let queued = gauges.queued as u64;
            let mut adds = delivered + queued;
            if now || self.next_scan.is_none_or(|next| began >= next) {
                self.scan = of.scan();
                self.next_scan = began.checked_add(began.elapsed() * SHARE);
                adds += self.scan.dirty;
            }
            let scan = self.scan.clone();
            let totals = Totals {
                stripes,
                adds,
                depth: queued + scan.dirty,
                gauges,
                scan: &scan,
            };
            self.report_totals(to, &totals);
        });
    }
}

thread_local! {
    /// Whether this thread makes a report: a second one within it would deadlock.
    static REPORTING: Cell<bool> = const { Cell::new(false) };
}

impl Tally {
    /// Reports to the recorder; with `now` from a scan of all keys.
    pub(crate) fn report(&self, of: &dyn Source, now: bool) {
        // A recorder may call the queue, and even ask for a report.
        if let Some(counters) = &self.0
            && !REPORTING.replace(true)
        {
            let report = || {
                if let Some(series) = lock(&counters.series).as_mut() {
                    series.report(of, &counters.stripes, now);
                }
            };
            let outcome = catch_unwind(AssertUnwindSafe(report));
            REPORTING.set(false);
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
    }

    /// Reports if it is due, or `now`, and returns whether there will be more to report.
    pub(super) fn report_due(&self, of: &dyn Source, now: bool) -> bool {
        let at_rest = of.is_at_rest();
        self.report(of, now || at_rest);
        !at_rest
    }

    /// Makes the last report of a queue that is being dropped, sets its gauges to zero, and frees
    /// its name.
    pub(crate) fn report_last(&self, of: &dyn Source) {
        if let Some(counters) = &self.0
            && let Some(mut series) = lock(&counters.series).take()
        {
            let stripes = &counters.stripes;
            // The recorder is user code, which may panic, and this runs in a drop.
            let _ = catch_panic(move || {
                series.report(of, stripes, true);
                let scan = Scan {
                    levels: vec![0; series.scan.levels.len()],
                    ..Scan::default()
                };
                let nothing = Totals {
                    stripes,
                    adds: 0,
                    depth: 0,
                    gauges: Gauges::default(),
                    scan: &scan,
                };
                let recorder = series.name.recorder.clone();
                recorder.with(|to| series.report_totals(to, &nothing));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that counts how often its keys are scanned.
    struct Large {
        stripes: Stripes,
        dirty: Cell<u64>,
        scans: Cell<usize>,
    }

    impl Source for Large {
        fn tally(&self) -> Option<&Tally> {
            None
        }

        fn is_at_rest(&self) -> bool {
            false
        }

        fn nanos(&self, ticks: Ticks) -> u64 {
            ticks
        }

        fn gauges(&self) -> Gauges {
            Gauges::default()
        }

        fn scan(&self) -> Scan {
            self.scans.set(self.scans.get() + 1);
            Scan {
                dirty: self.dirty.get(),
                ..Scan::default()
            }
        }
    }

    // M2
    #[test]
    fn a_key_that_was_dirty_at_the_last_scan_and_is_delivered_since_counts_once() {
        let of = Large {
            stripes: Stripes::new(),
            dirty: Cell::new(5),
            scans: Cell::new(0),
        };
        let mut series = Series::new(Name::take("large", Default::default()));
        let adds = |series: &mut Series, now| {
            series.report(&of, &of.stripes, now);
            let at = SERIES
                .iter()
                .position(|(name, ..)| *name == "workqueue_adds_total");
            series.reported[at.unwrap()]
        };
        assert_eq!((adds(&mut series, false), of.scans.get()), (5, 1));
        // As if that had taken long.
        series.next_scan = Instant::now().checked_add(Duration::from_secs(3600));
        of.dirty.set(0);
        for _ in 0..5 {
            of.stripes.mine().0.queue.record(1, false);
        }
        assert_eq!((adds(&mut series, false), of.scans.get()), (5, 1));
        of.dirty.set(1);
        assert_eq!((adds(&mut series, false), of.scans.get()), (5, 1));
        assert_eq!((adds(&mut series, true), of.scans.get()), (6, 2));
    }
}
