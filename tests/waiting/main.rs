//! Getters that wait, and which of them are woken.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod kept;
mod races;
mod waking;
