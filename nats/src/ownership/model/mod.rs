//! Explores the protocol: real members, a simulated bucket, simulated drivers, clocks and faults.
//!
//! `world` is the state, `moves` what can happen. `explore` tries every order of moves within a horizon, with
//! a limited number of faults; `walk` makes long random walks with many faults, and at the end of
//! each requires that everything is owned again.
//!
//! Moves that are no faults are prompt: true time advances only when all of them are made. A
//! fault holds something back (a write, its acknowledgement, a watcher, a replica), or ends a
//! replica; what is held back goes on at any later time, for free.

mod bucket;
mod explore;
mod moves;
mod walk;
mod world;
