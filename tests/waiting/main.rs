//! Getters that wait, and who is woken.

#[path = "../common/mod.rs"]
mod common;

mod kept;
mod races;
mod waking;
