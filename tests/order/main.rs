//! The order of a queue, levels of urgency, groups that take turns, a pace, and its bound.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod clear;
mod entries;
mod groups;
mod levels;
mod pace;
mod patience;
mod pause;
mod races;
mod reentry;
mod removed;
mod retries;
mod room_races;
mod settings;
mod times;
mod tracked;
mod waking;
