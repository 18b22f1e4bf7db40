//! Without feature `metrics` nothing is counted.

use keyqueue::worker::Failed;

use crate::action::Next;

pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new(_name: &str, _workers: usize) -> Self {
        Metrics
    }

    pub(crate) fn begin(&self) -> Measured {
        Measured
    }

    pub(crate) fn succeeded(&self, _next: Next) {}

    pub(crate) fn failed(&self, _failed: &Failed<'_, String>) {}
}

/// A reconciliation that runs.
pub(crate) struct Measured;
