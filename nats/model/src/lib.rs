//! Explores the ownership protocol of keyqueue-nats: real members, a simulated bucket, simulated drivers, clocks and faults.
//!
//! This is a package of its own because the profile for tests optimises it, and does not optimise keyqueue-nats: so the
//! exploration takes a third of the time.
//!
//! `world` is the state, `moves` what can happen. `explore` tries all faults at all points within a
//! horizon, up to a limited number of them. `walk` makes long random walks with many faults, and at
//! the end of each requires that everything is owned again.
//!
//! Moves that are no faults are prompt: true time advances only when all of them are made, in
//! `explore` in a fixed order, in `walk` in any order. A fault holds something back (a write, its
//! acknowledgement, a watcher, a replica), or ends a replica. What is held back goes on for free:
//! in `explore` when nothing prompt is left to do, in `walk` at any point.

#![cfg(test)]

mod bucket;
mod explore;
mod moves;
#[path = "../../src/ownership/mod.rs"]
mod ownership;
mod walk;
mod world;
