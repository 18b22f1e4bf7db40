//! The types of a normal build.

mod lock;
mod park;
mod poll;

pub(crate) use atomic_waker::AtomicWaker;
pub(crate) use crossbeam_queue::SegQueue;
pub(crate) use crossbeam_utils::Backoff;
pub(crate) use foldhash::fast::RandomState;
pub(crate) use lock::{SpinLock, SpinLockGuard};
pub(crate) use park::ThreadParker;
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, OnceLock, atomic};
pub(crate) use std::thread;

use std::sync::LazyLock;

/// A full fence for a thread whose last synchronising step was an atomic read-modify-write.
///
/// On x86 a locked instruction is a full barrier, so only the compiler has to be kept from
/// reordering; a second barrier would cost as much as the first. (Linux calls this
/// `smp_mb__after_atomic`.) Elsewhere it is a fence.
#[inline]
pub(crate) fn fence_after_rmw() {
    // Ordering: SeqCst; the caller names the partner.
    if cfg!(any(target_arch = "x86_64", target_arch = "x86")) && !cfg!(miri) {
        atomic::compiler_fence(atomic::Ordering::SeqCst);
    } else {
        atomic::fence(atomic::Ordering::SeqCst);
    }
}

/// Asks the processor for the line of memory at this address, if it can be asked: a hint, for any address.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction accesses no memory that the program can tell.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// The number of shards of a per-key limiter: well above the number of threads that call it at the
/// same time.
pub(crate) const LIMITER_SHARDS: usize = 32;

/// The number of shards of a queue: four for each processor, so that threads seldom meet in one.
pub(crate) fn default_shards() -> usize {
    // The number of processors is read from files.
    static SHARDS: LazyLock<usize> = LazyLock::new(|| {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        (4 * processors).next_power_of_two().min(1 << 16)
    });
    *SHARDS
}

pub(crate) const DEFAULT_RING: usize = 1024;

/// Keys are added in chunks if the nodes take this many bytes: below that, they are in the processor's caches, or near enough.
/// With debug assertions always, so that tests do.
pub(crate) static FAR: usize = if cfg!(debug_assertions) { 0 } else { 1 << 23 };

/// Fewer keys than this are added one by one.
pub(crate) const FEW: usize = if cfg!(debug_assertions) { 2 } else { 16 };
