//! The end of a queue: shutting down, draining, and what outlives it.

mod draining;
mod end;
mod forgotten;
mod guards;
mod left;
mod now;
mod random;
mod redelivery;
