//! Keys that are added later.

#[path = "../common/mod.rs"]
mod common;

mod clock;
mod rules;
mod shutdown;
mod threads;
