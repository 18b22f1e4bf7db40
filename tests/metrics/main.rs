//! Observation of a queue: series and snapshots.

#[path = "../common/mod.rs"]
mod common;

mod recorder;
mod reports;
mod series;
mod snapshot;
