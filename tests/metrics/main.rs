//! Observation of a queue: series and snapshots.

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "metrics")]
mod recorder;
#[cfg(feature = "metrics")]
mod series;
mod snapshot;
