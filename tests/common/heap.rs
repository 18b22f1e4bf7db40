//! A heap that counts. A test that uses it makes it its global allocator, and runs in a separate
//! process ([`alone`](super::alone)), so that nothing else disturbs the count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Bytes allocated and not freed, in the whole process.
static HELD: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// How often this thread has allocated. Needs neither allocation nor a destructor itself.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

pub(crate) struct CountingHeap;

fn count(bytes: isize) {
    // Ordering: Relaxed; a sum, read while no other thread allocates.
    HELD.fetch_add(bytes, Ordering::Relaxed);
    if bytes > 0 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    }
}

// SAFETY: every call is passed on to `System` unchanged; counting allocates nothing and cannot
// unwind. `realloc` is the trait's own, made of these two.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller keeps `dealloc`'s contract, and the block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

pub(crate) fn held() -> isize {
    // Ordering: Relaxed; as in `count`.
    HELD.load(Ordering::Relaxed)
}

pub(crate) fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// How often `work` allocates in this thread.
pub(crate) fn allocations_of(work: impl FnOnce()) -> usize {
    let before = allocations();
    work();
    allocations() - before
}
