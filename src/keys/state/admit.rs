//! What is decided about an add, and whether it is a retry.

use super::{KeyState, RETRY, State, Word};
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

    /// Returns whether the key is queued as a retry.
    pub(crate) fn is_queued_retry(&self) -> bool {
        // Ordering: Relaxed; a snapshot.
        let word = Word(self.0.load(Ordering::Relaxed));
        word.visible() == State::Queued && word.is(RETRY)
    }
}
