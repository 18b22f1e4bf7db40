//! The worker loop.

#[path = "../common/mod.rs"]
mod common;

mod attempts;
mod dropped;
mod hooks;
mod outcomes;
mod panics;
mod reentry;
#[cfg(feature = "tokio")]
mod runtime;
mod tasks;
mod threads;
#[cfg(feature = "tracing")]
mod tracing;
mod verdicts;
