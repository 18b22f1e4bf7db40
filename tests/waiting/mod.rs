//! Getters that wait, and which of them are woken.

mod again;
mod batches;
mod kept;
mod linger;
mod races;
mod waking;
