//! What a normal build runs on.

mod lock;
mod park;
mod thread;

pub(crate) use crossbeam_queue::SegQueue;
pub(crate) use crossbeam_utils::Backoff;
pub(crate) use lock::{Locked, LockedGuard};
pub(crate) use park::ThreadParker;
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
pub(crate) use thread::Thread;

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

pub(crate) use atomic_waker::AtomicWaker;

/// Whether a queue's core is built by the first call that needs it; if not, with the queue.
pub(crate) const BUILDS_LAZILY: bool = true;

/// A full fence for a thread whose last synchronising step was an atomic read-modify-write.
///
/// On x86 a locked instruction is a full barrier by itself, so only the compiler has to be held
/// back; a second barrier would cost as much as the first. (Linux calls this
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

/// Has the processor fetch what is at an address, valid or not, where there is a way to tell it.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse", not(miri))))]
    let _ = at;
}

/// One look at a spinning processor's clock: tells it that this is a busy wait.
#[inline]
pub(crate) fn pause() {
    std::hint::spin_loop();
}

/// Gives the processor to another thread that can run.
pub(crate) fn yield_now() {
    std::thread::yield_now();
}

/// How often a consumer that found nothing pauses before it looks at the FIFO again.
///
/// Each look takes the producer's cache line away, so looking rarely is what makes a
/// producer and a consumer on two cores fast; see the performance notes.
pub(crate) const PAUSES_PER_LOOK: u32 = 64;

/// How many looks, each after [`PAUSES_PER_LOOK`], a consumer takes before it yields.
pub(crate) const LOOKS_SPINNING: u32 = 4;

/// How many looks, each after giving the processor away, it takes before it sleeps.
pub(crate) const LOOKS_YIELDING: u32 = 4;
