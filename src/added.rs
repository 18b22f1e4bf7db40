//! What the queue's operations return.

use std::error::Error;
use std::fmt;

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key was idle and is queued now: it will be delivered, unless what waits is discarded or taken back (C5), or
    /// the queue has values and nothing was put for the key (V2).
    Queued,
    /// The key was already queued, or processing and to be delivered again. Nothing changed: that
    /// delivery begins after this add and serves it, too.
    Merged,
    /// The key is processing. It will be queued again, once, when it is done.
    Deferred,
    /// The add will happen when its delay is over, or the retry that it waits for
    /// ([`adds_wait_for_retries`](crate::Builder::adds_wait_for_retries)).
    Delayed,
    /// The queue is shut down. Nothing changed, and the key will not be delivered for this add.
    ShutDown,
}

impl Added {
    /// Returns whether the add was accepted: a delivery that begins after it will follow, with the exceptions of [`Queued`](Self::Queued).
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self != Added::ShutDown
    }

    /// Adds in another way if the queue is shut down.
    pub(crate) fn or_else(self, add: impl FnOnce() -> Added) -> Added {
        if self.is_accepted() { self } else { add() }
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
    /// [`drain_group`](crate::WorkQueue::drain_group) counts those that are pending instead. In a queue with values, a delay counts
    /// only if it has a value to deliver: one that no delivery takes before.
    pub delayed: usize,
    /// Retries and requeues that were refused, because the queue was shut down (S11). Later calls report those, too. A requeue
    /// after a value that the worker's function has taken, and that is done, is none of them (W9).
    pub refused: usize,
}

impl Remaining {
    /// Returns whether nothing is queued or processing. A drain that returns anything else was released by a
    /// [`shut_down`](crate::WorkQueue::shut_down), or its time was over (S7): if there are workers, they need more time;
    /// if there are none, nobody will get what is left.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.queued + self.processing == 0
    }

    /// Returns whether nothing is left: no key, no dropped delay, no refused retry.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Remaining::default()
    }
}

/// Why a key that was accepted is left: see [`take_left`](crate::WorkQueue::take_left).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LeftReason {
    /// Its delay was pending, or its retry, and was dropped.
    Delayed,
    /// It was queued, or dirty, and no delivery began any more.
    Queued,
    /// Its worker retried or requeued it, or was cancelled, and the queue refused it.
    Refused,
}

/// A key that was accepted and is not finished, when its queue has ended, or when its group is taken back: see
/// [`take_left`](crate::WorkQueue::take_left) and [`take_group`](crate::WorkQueue::take_group).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Left<K, V = ()> {
    /// The key.
    pub key: K,
    /// All that was put for it and is not finished, merged; `None` in a queue without values.
    pub value: Option<V>,
    /// Why it is left. If there are several reasons, the last in the order of [`LeftReason`].
    pub reason: LeftReason,
}

/// Writes every count: `keys left: 2 queued, 1 processing, 0 delayed, 0 refused`.
impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "keys left: {} queued, {} processing, {} delayed, {} refused",
            self.queued, self.processing, self.delayed, self.refused
        )
    }
}

/// For callers that return what is left as their error.
impl Error for Remaining {}
