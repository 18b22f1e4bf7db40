//! The order of a queue, levels of urgency, and its bound.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod levels;
mod races;
mod room_races;
