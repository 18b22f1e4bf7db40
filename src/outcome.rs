//! What the queue's operations answer.

/// What an add did (promise C6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key was idle and is queued now: it will be delivered.
    Queued,
    /// The key was queued already, or processing and to be delivered again already. Nothing
    /// changed: that delivery begins after this add and serves it, too.
    Merged,
    /// The key is being processed. It will be queued again, once, when that is done.
    Deferred,
    /// The add will happen when its delay is over.
    Delayed,
    /// The queue is shut down. Nothing changed, and the key will not be delivered for this add.
    ShutDown,
}

impl Added {
    /// Whether the add was accepted: a delivery that begins after it will follow.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::new();
    /// assert!(queue.add("a").is_accepted());
    /// queue.shut_down();
    /// assert!(!queue.add("a").is_accepted());
    /// ```
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self != Added::ShutDown
    }
}

/// What a shut-down found, or a drain that ran out of time left behind. Each key counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Remaining {
    /// Keys that wait to be handed out.
    pub queued: usize,
    /// Keys that workers hold, whether or not they will be handed out once more.
    pub processing: usize,
    /// Pending delays.
    pub delayed: usize,
}

impl Remaining {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Remaining::default()
    }
}
