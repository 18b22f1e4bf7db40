//! The types of a normal build.

mod lock;
mod park;
mod thread;

pub(crate) use crossbeam_queue::SegQueue;
pub(crate) use crossbeam_utils::Backoff;
pub(crate) use lock::{SpinLock, SpinLockGuard};
pub(crate) use park::ThreadParker;
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
pub(crate) use thread::Thread;

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

pub(crate) use atomic_waker::AtomicWaker;

/// A full fence for a thread whose last synchronising step was an atomic read-modify-write.
///
/// On x86 a locked instruction is a full barrier, so only the compiler has to be kept from
/// reordering; a second barrier would cost as much as the first. (Linux calls this
/// `smp_mb__after_atomic`.) Elsewhere it is a fence.
#[inline]
pub(crate) fn fence_after_rmw() {
    // Ordering: SeqCst; the caller names the partner.
    if cfg!(any(target_arch = "x86_64", target_arch = "x86")) && !cfg!(miri) {
        std::sync::atomic::compiler_fence(atomic::Ordering::SeqCst);
    } else {
        atomic::fence(atomic::Ordering::SeqCst);
    }
}

/// Tells the processor that this is a busy wait.
#[inline]
pub(crate) fn pause() {
    std::hint::spin_loop();
}

/// Yields the processor to another thread.
pub(crate) fn yield_now() {
    std::thread::yield_now();
}

/// The number of shards of a per-key limiter: well above the number of threads that call it at the
/// same time.
pub(crate) const LIMITER_SHARDS: usize = 32;

/// The number of pauses before a consumer that found nothing checks the FIFO again.
///
/// Each check takes the cache line from the producer, so infrequent checks keep a producer and a
/// consumer on two cores fast; see the performance notes.
pub(crate) const PAUSES_PER_POLL: u32 = 64;

/// The number of checks, each after [`PAUSES_PER_POLL`], before a consumer yields.
pub(crate) const POLLS_SPINNING: u32 = 4;

/// The number of checks, each after a yield, before it sleeps.
pub(crate) const POLLS_YIELDING: u32 = 4;
