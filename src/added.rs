//! What the queue's operations return.

use std::error::Error;
use std::fmt;

/// What an add did (promise C6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key was idle and is queued now: it will be delivered, unless a `clear` or a
    /// `shut_down_now` discards it.
    Queued,
    /// The key was already queued, or processing and to be delivered again. Nothing changed: that
    /// delivery begins after this add and serves it, too.
    Merged,
    /// The key is processing. It will be queued again, once, when it is done.
    Deferred,
    /// The add will happen when its delay is over.
    Delayed,
    /// The queue is shut down. Nothing changed, and the key will not be delivered for this add.
    ShutDown,
}

impl Added {
    /// Returns whether the add was accepted: a delivery that begins after it will follow.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self != Added::ShutDown
    }
}

/// What a shut-down found, or a drain left behind. Each key counts once, and each delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Remaining {
    /// Keys that are queued, or that [`shut_down_now`](crate::WorkQueue::shut_down_now) discarded.
    pub queued: usize,
    /// Keys that are processing, dirty or not.
    pub processing: usize,
    /// Delays, retries included, that the shut-down dropped. Later calls report the same number.
    pub delayed: usize,
}

impl Remaining {
    /// Returns whether nothing is left.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Remaining::default()
    }
}

/// How a drain ended, and what it left (promises S5, S7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Drained {
    /// How it ended.
    pub end: DrainEnd,
    /// What was left then. After [`DrainEnd::Finished`] nothing is queued or processing, and
    /// `delayed` is the number of delays that the shut-down dropped.
    pub left: Remaining,
}

/// Why a drain returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DrainEnd {
    /// Nothing is queued or processing any more.
    Finished,
    /// A [`shut_down`](crate::WorkQueue::shut_down), or the drop of a
    /// [`ShutDownOnDrop`](crate::ShutDownOnDrop), released it.
    Released,
    /// Its time was over. If there are workers, they need more time; if there are none, nobody
    /// will get what is left.
    TimedOut,
}

/// Writes every count: `keys left: 2 queued, 1 processing, 0 delayed`.
impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "keys left: {} queued, {} processing, {} delayed",
            self.queued, self.processing, self.delayed
        )
    }
}

/// For callers that return what is left as their error.
impl Error for Remaining {}
