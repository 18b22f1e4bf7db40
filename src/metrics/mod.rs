//! Metrics of named queues, reported through the [`metrics`](https://docs.rs/metrics) facade.
//!
//! Requires feature `metrics`. See [`docs::metrics`](crate::docs::metrics) for the series, their
//! cost and how to view them; this module has the items that a program needs to set them up.
//!
//! ```
//! use keyqueue::WorkQueue;
//! use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let recorder = PrometheusBuilder::new()
//!     .set_buckets_for_metric(
//!         Matcher::Suffix("_duration_seconds".into()),
//!         &keyqueue::metrics::BUCKETS,
//!     )?
//!     .build_recorder();
//! let exported = recorder.handle();
//!
//! let queue = WorkQueue::builder()
//!     .name("pods")
//!     .recorder(std::sync::Arc::new(recorder)) // default: the recorder installed for the process
//!     .build()?;
//! queue.add("a");
//!
//! queue.report(); // otherwise: within half a second
//! assert!(exported.render().contains(r#"workqueue_depth{name="pods"} 1"#));
//! # Ok(())
//! # }
//! ```
//!
//! One thread reports for all queues of the process, every [`INTERVAL`]. The first add to a named
//! queue, now or after a delay, starts it. It ends when every such queue is dropped, or shut down and at rest. A queue
//! with [`manual_timers`](crate::Builder::manual_timers) starts no thread: call
//! [`report`](crate::WorkQueue::report).

mod event;
mod histogram;
mod recorder;
mod reporter;
mod series;
mod stripes;
mod tally;
mod totals;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use event::Event;
pub(crate) use recorder::Recorder;
pub use reporter::report_all;
pub(crate) use series::{Gauges, Scan, Source};
pub(crate) use tally::Tally;
pub use totals::Totals;

/// The interval of reports, unless [`report`](crate::WorkQueue::report) is called.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// Upper bounds for the buckets of the duration histograms, in seconds: a millisecond to an hour.
pub const BUCKETS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0, 3600.0,
];

/// Locks a mutex. What is under the mutexes of this module is valid after a panic: a recorder that
/// panics leaves a report incomplete, which the next one completes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
