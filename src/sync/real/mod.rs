//! The types of a normal build.

mod lock;
mod park;

pub(crate) use atomic_waker::AtomicWaker;
pub(crate) use crossbeam_queue::SegQueue;
pub(crate) use crossbeam_utils::Backoff;
pub(crate) use foldhash::fast::RandomState;
pub(crate) use lock::{SpinLock, SpinLockGuard};
pub(crate) use park::ThreadParker;
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, atomic};
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

/// The number of pauses before a consumer that found nothing checks the FIFO again.
///
/// Each check takes the cache line from the producer, so infrequent checks keep a producer and a
/// consumer on two cores fast; see the performance notes.
const PAUSES_PER_POLL: u32 = 64;

/// The checks after pauses, before the consumer yields instead.
const POLLS_SPINNING: u32 = 4;

/// The checks after a yield, before it sleeps.
const POLLS_YIELDING: u32 = 4;

/// Waits for a short time before each item: a consumer that found nothing checks again then.
pub(crate) fn polls() -> impl Iterator<Item = ()> {
    let pause = |_| (0..PAUSES_PER_POLL).for_each(|_| std::hint::spin_loop());
    let spinning = (0..POLLS_SPINNING).map(pause);
    spinning.chain((0..POLLS_YIELDING).map(|_| thread::yield_now()))
}
