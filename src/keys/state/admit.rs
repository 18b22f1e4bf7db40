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
    /// Notes that a retry has merged into a key: if that is dirty, its next delivery is a retry. One that is queued has its room
    /// as what has queued it.
    #[cold]
    pub(crate) fn turn(&self) {
        let turn = |word| {
            let seen = Word(word);
            (seen.phase() == State::Dirty && !seen.is(CLOSED)).then_some(word | RETRY)
        };
        // Ordering: Relaxed, both; the flag publishes nothing, and what adds have released goes on to the next delivery, as this
        // is a read-modify-write.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, turn);
    }

    /// Ends the retry whose delivery this thread has begun.
    pub(crate) fn clear_retry(&self) {
        // Ordering: Relaxed; read by the holder of the key, which this thread is, and for reports.
        self.0.fetch_and(!RETRY, Ordering::Relaxed);
    }

    /// Takes back that adds have made the key dirty: they wait for its retry, or their value is taken back. Does nothing if the
    /// key is queued, or once a shut-down has closed it. Returns the level of a key that was dirty. The caller has the lock of
    /// the shard, or that of the key's value, as these adds do.
    pub(crate) fn end_dirty(&self) -> Option<Level> {
        let end = |word| {
            let is_open = !Word(word).is(CLOSED);
            let is_dirty = Word(word).phase() == State::Dirty && is_open;
            is_dirty.then_some(word & !(DIRTY | RETRY))
        };
        // Ordering: Relaxed, both; the lock orders this after the adds, and before the end of the retry. What the adds have
        // released goes on to the next delivery, as this is a read-modify-write.
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
