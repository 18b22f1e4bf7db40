//! The order of a queue: levels of urgency.

#[path = "../common/mod.rs"]
mod common;

mod levels;
mod races;
