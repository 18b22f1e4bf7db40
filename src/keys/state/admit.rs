//! What is decided about an add, and whether it is a retry.

use super::{CLOSED, DIRTY, KeyState, Level, RETRY, State, Word};
use crate::sync::atomic::Ordering;

/// What is decided about a change that an add is about to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    Yes,
    /// Yes, as a retry, if the key becomes queued or dirty.
    Retry,
    /// The key may be in another state by now: it is to be asked again.
    Again,
    /// The add makes no change.
    No,
}

impl Admit {
    /// Returns a yes, as a retry or not.
    pub(crate) fn of(retry: bool) -> Self {
        if retry { Admit::Retry } else { Admit::Yes }
    }
}

impl KeyState {
    /// Ends the retry whose delivery this thread has begun.
    pub(crate) fn clear_retry(&self) {
        // Ordering: Relaxed; read by the holder of the key, which this thread is, and for reports.
        self.0.fetch_and(!RETRY, Ordering::Relaxed);
    }

    /// Takes back that adds have made the key dirty, which wait for its retry. Does nothing once a shut-down has closed the
    /// key. Returns the level of a key that was dirty. The caller holds the key, and the lock of its shard, as these adds do.
    pub(crate) fn end_dirty(&self) -> Option<Level> {
        let end = |word| {
            let is_dirty = Word(word).is(DIRTY) && !Word(word).is(CLOSED);
            is_dirty.then_some(word & !(DIRTY | RETRY))
        };
        // Ordering: Relaxed, both; the lock orders this after the adds, and before the end of the retry.
        let was = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, end)
            .ok()?;
        Some(Word(was).level())
    }

    /// Returns whether the key is queued as a retry.
    pub(crate) fn is_queued_retry(&self) -> bool {
        // Ordering: Relaxed; a snapshot.
        let word = Word(self.0.load(Ordering::Relaxed));
        word.visible() == State::Queued && word.is(RETRY)
    }
}
