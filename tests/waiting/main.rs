//! Getters that wait, and which of them are woken.

#[path = "../common/mod.rs"]
mod common;

mod kept;
mod races;
mod waking;
