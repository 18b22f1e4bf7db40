//! Getters that wait, and which of them are woken.

mod batches;
mod kept;
mod races;
mod waking;
