//! controller-runtime's series, by its names, which dashboards know. The queue reports client-go's
//! `workqueue_*` itself.
//!
//! The recorder is the one that is installed when the stream of the controller is first polled.

use std::time::{Duration, Instant};

use keyqueue::worker::{Failed, Failure};
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::action::Next;

pub(crate) struct Metrics {
    success: Counter,
    requeue: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    panics: Counter,
    time: Histogram,
    active: Gauge,
}

impl Metrics {
    /// Registers the series of a controller.
    pub(crate) fn new(name: &str, workers: usize) -> Self {
        describe();
        let controller = || ("controller", name.to_owned());
        let total = |result| {
            let labels = [controller(), ("result", String::from(result))];
            counter!("controller_runtime_reconcile_total", &labels)
        };
        let counter = |series: &'static str| counter!(series, &[controller()]);
        let gauge = |series: &'static str| gauge!(series, &[controller()]);
        #[allow(clippy::cast_precision_loss, reason = "at most 65 536")]
        gauge("controller_runtime_max_concurrent_reconciles").set(workers as f64);
        Metrics {
            success: total("success"),
            requeue: total("requeue"),
            requeue_after: total("requeue_after"),
            error: total("error"),
            errors: counter("controller_runtime_reconcile_errors_total"),
            panics: counter("controller_runtime_reconcile_panics_total"),
            time: histogram!("controller_runtime_reconcile_time_seconds", &[controller()]),
            active: gauge("controller_runtime_active_workers"),
        }
    }

    /// Counts a reconciliation that begins. It ends when the returned value is dropped, also by a
    /// panic or a cancellation.
    pub(crate) fn begin(&self) -> Measured<'_> {
        self.active.increment(1.0);
        Measured {
            metrics: self,
            since: Instant::now(),
        }
    }

    pub(crate) fn succeeded(&self, next: Next) {
        let result = match next {
            Next::Change => &self.success,
            Next::After(Duration::ZERO) => &self.requeue,
            Next::After(_) => &self.requeue_after,
        };
        result.increment(1);
    }

    pub(crate) fn failed(&self, failed: &Failed<'_, String>) {
        self.error.increment(1);
        self.errors.increment(1);
        if let Failure::Panic(_) = failed.failure {
            self.panics.increment(1);
        }
    }
}

/// A reconciliation that runs.
pub(crate) struct Measured<'m> {
    metrics: &'m Metrics,
    since: Instant,
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.metrics.active.decrement(1.0);
        self.metrics.time.record(self.since.elapsed());
    }
}

fn describe() {
    describe_counter!(
        "controller_runtime_reconcile_total",
        "Total number of reconciliations per controller"
    );
    describe_counter!(
        "controller_runtime_reconcile_errors_total",
        "Total number of reconciliation errors per controller"
    );
    describe_counter!(
        "controller_runtime_reconcile_panics_total",
        "Total number of reconciliation panics per controller"
    );
    describe_histogram!(
        "controller_runtime_reconcile_time_seconds",
        metrics::Unit::Seconds,
        "Length of time per reconciliation per controller"
    );
    describe_gauge!(
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of concurrent reconciles per controller"
    );
    describe_gauge!(
        "controller_runtime_active_workers",
        "Number of currently used workers per controller"
    );
}
