//! The order of a queue, levels of urgency, groups that take turns, a pace, and its bound.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod group_races;
mod groups;
mod hostile;
mod levels;
mod pace;
mod races;
mod room_races;
