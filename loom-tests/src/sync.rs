//! What the files that are included from the crate take from its `sync` facade: loom's.

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
}

/// Waiting for what another thread is about to do.
pub(crate) struct Backoff;

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff
    }

    pub(crate) fn snooze(&self) {
        loom::thread::yield_now();
    }
}
