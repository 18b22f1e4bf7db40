//! The bytes on the heap, for the `memory` workload.
//!
//! A global allocator that passes everything on to the system's and adds up the sizes asked for
//! while a [`Meter`] exists. Without one it costs a predictable branch, so that the timed
//! workloads are not disturbed. Sizes as asked for, without the allocator's own rounding: the
//! same rule for every contender.
//!
//! Ground rule: at most one `Meter` at a time, in a program that allocates on one thread while it
//! exists, or at least frees no earlier block then. The harness runs one workload at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

static COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicIsize = AtomicIsize::new(0);

struct CountingHeap;

fn count(bytes: isize) {
    // Ordering: Relaxed; the meter is switched on and off by the thread whose allocations matter.
    if COUNTING.load(Ordering::Relaxed) {
        // Ordering: Relaxed; a sum, read after the threads that changed it were joined.
        BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to `System` unchanged; counting allocates nothing and cannot
// unwind.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps `dealloc`'s contract, and the block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps `realloc`'s contract, and the block came from `System`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Counts the bytes allocated, less those freed, since it was made.
pub(crate) struct Meter(());

impl Meter {
    pub(crate) fn start() -> Self {
        // Ordering: Relaxed, here and below; see `count`.
        BYTES.store(0, Ordering::Relaxed);
        let already = COUNTING.swap(true, Ordering::Relaxed);
        assert!(!already, "two meters at a time");
        Self(())
    }

    pub(crate) fn bytes(&self) -> f64 {
        // Ordering: Relaxed; see `count`.
        BYTES.load(Ordering::Relaxed) as f64
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Ordering: Relaxed; see `count`.
        COUNTING.store(false, Ordering::Relaxed);
    }
}
