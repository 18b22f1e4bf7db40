//! The four states, as users see them.

use std::fmt;

/// The state of a key; see [`WorkQueue::state`](crate::WorkQueue::state) and
/// [`snapshot`](crate::WorkQueue::snapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum State {
    // In the order of their bits in the word.
    /// Neither queued nor processing: the key waits for its delay.
    Idle,
    /// Queued.
    Queued,
    /// Processing: a worker holds the key.
    Processing,
    /// Processing, and added again meanwhile.
    Dirty,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Idle => "idle",
            State::Queued => "queued",
            State::Processing => "processing",
            State::Dirty => "dirty",
        })
    }
}
