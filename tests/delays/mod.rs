//! Keys that are added later.

mod clock;
mod rules;
mod shutdown;
mod threads;
