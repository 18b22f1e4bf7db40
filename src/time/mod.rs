//! Time: the clock, and durations in integer nanoseconds.

pub(crate) mod clock;
pub(crate) mod nanos;
pub(crate) mod rate;
