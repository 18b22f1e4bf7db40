//! What a membership tells.

use std::fmt;

use super::Fence;

/// What happened to a membership, from [`Fleet::events`](crate::Fleet::events). Each is also a tracing event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The replica has claimed a partition, and receives its messages.
    Acquired(Fence),
    /// The partition was given back: nothing of it runs here, and its messages are acknowledged.
    HandedOver(Fence),
    /// Another replica has taken the partition over. Deliveries of it that still run carry the
    /// lower epoch.
    Lost(Fence),
    /// The lease could not be renewed for three quarters of it: no delivery begins.
    Suspended,
    /// The lease was renewed after all, and nobody has owned the partitions meanwhile.
    Resumed,
    /// A key was given up. Its messages are dead letters, if the configuration has a subject for them.
    GivenUp {
        /// The key.
        key: String,
        /// The last error.
        error: String,
        /// The number of tries.
        attempts: u32,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Acquired(fence) => write!(f, "acquired {fence}"),
            Event::HandedOver(fence) => write!(f, "handed over {fence}"),
            Event::Lost(fence) => write!(f, "lost {fence}"),
            Event::Suspended => f.write_str("suspended"),
            Event::Resumed => f.write_str("resumed"),
            Event::GivenUp {
                key,
                error,
                attempts,
            } => write!(f, "gave up {key} after {attempts} tries: {error}"),
        }
    }
}

/// How a membership has ended: what [`Fleet::leave`](crate::Fleet::leave) returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// The number of partitions that were released.
    pub handed_over: usize,
    /// The partitions whose handlers still ran at the deadline, or that could not be released. Others
    /// take them when the lease has run out.
    pub abandoned: Vec<Fence>,
}
