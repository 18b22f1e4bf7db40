//! Keys that are added later.

mod clock;
mod debounce;
mod rules;
mod shutdown;
mod threads;
