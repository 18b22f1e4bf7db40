//! What the stand-ins are made of under loom: few threads, every interleaving, weak memory.

pub(crate) use loom::sync::{Mutex, MutexGuard, Notify};
pub(crate) use loom::thread::{JoinHandle, spawn, yield_now};

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Time does not pass in a model: a deadline is over as soon as somebody waits for it.
pub(crate) fn pass_time() {}
