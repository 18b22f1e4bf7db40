//! The bytes on the heap: a global allocator that passes everything on to the system's, and adds up
//! the sizes asked for while a [`Meter`] exists. Without one it costs a predictable branch, so that
//! the timed workloads are not disturbed.
//!
//! There is at most one `Meter` at a time, and no earlier block is freed while it exists.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

static COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicIsize = AtomicIsize::new(0);

struct CountingHeap;

fn count(bytes: isize) {
    // Ordering: Relaxed, in all of this file; the meter is switched by the thread whose allocations
    // matter, and read after others that changed the sum were joined.
    if COUNTING.load(Ordering::Relaxed) {
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
        BYTES.store(0, Ordering::Relaxed);
        let already = COUNTING.swap(true, Ordering::Relaxed);
        assert!(!already, "two meters at a time");
        Self(())
    }

    pub(crate) fn bytes(&self) -> f64 {
        BYTES.load(Ordering::Relaxed) as f64
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        COUNTING.store(false, Ordering::Relaxed);
    }
}
