//! The end of a queue: shutting down, draining, and what outlives it.

#[path = "../common/mod.rs"]
mod common;

mod draining;
mod end;
mod forgotten;
mod guards;
mod left;
mod now;
mod random;
