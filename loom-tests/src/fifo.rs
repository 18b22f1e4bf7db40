//! The files of the ring themselves: they have no public names.

// rustfmt would go on to their unit tests, and look for them here.
#[rustfmt::skip]
#[allow(dead_code, reason = "the queue uses all of it")]
#[path = "../../src/fifo/overflow/mod.rs"]
pub(crate) mod overflow;

#[rustfmt::skip]
#[path = "../../src/fifo/ring/mod.rs"]
pub(crate) mod ring;
