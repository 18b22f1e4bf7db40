//! The base of the stand-ins under loom: few threads, every interleaving, weak memory.

pub(crate) use loom::sync::{Mutex, MutexGuard, Notify};
pub(crate) use loom::thread::{JoinHandle, spawn, yield_now};

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Time does not pass in a model: a deadline has passed as soon as a thread waits for it.
pub(crate) fn pass_time() {}
