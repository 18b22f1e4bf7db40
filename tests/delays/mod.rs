//! Keys that are added later.

mod clock;
mod debounce;
mod held;
mod rules;
mod shutdown;
mod threads;
