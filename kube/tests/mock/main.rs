//! The promises of `docs/promises.md`, on an API server within the test.
//!
//! No assertion depends on how long something takes. What is waited for has a limit of a minute, so
//! that a lost event is a failure instead of a test that hangs.

mod changes;
mod election;
mod ending;
mod failures;
mod lists;
mod pace;
mod probe;
mod review;
mod same;
mod series;
mod server;
