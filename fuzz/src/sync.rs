//! What the files that are included from the crate take from its `sync` facade: a normal build's.

pub(crate) use crossbeam_utils::Backoff;
pub(crate) use std::sync::Mutex;

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
}
