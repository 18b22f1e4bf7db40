//! A heap that counts: a global allocator that passes everything on to the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

// Ordering: Relaxed, in all of this file. The sum is read while no other thread allocates, or after those that changed it were
// joined; the meter is switched by the thread whose allocations matter.

/// Whether heaps that count for a meter only do so now.
static METERED: AtomicBool = AtomicBool::new(false);
/// Bytes allocated and not freed, in the whole process.
static HELD: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// How often this thread has allocated. Needs neither allocation nor a destructor itself.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts always, or only while a [`Meter`] exists: without one it costs a predictable branch, so that what is timed
/// is not disturbed.
#[derive(Debug)]
pub struct CountingHeap<const ALWAYS: bool = true>;

impl<const ALWAYS: bool> CountingHeap<ALWAYS> {
    fn count(&self, bytes: isize, allocations: usize) {
        if ALWAYS || METERED.load(Ordering::Relaxed) {
            HELD.fetch_add(bytes, Ordering::Relaxed);
            if allocations > 0 {
                ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
            }
        }
    }
}

// SAFETY: every call is passed on to `System` unchanged; counting allocates nothing and cannot unwind.
unsafe impl<const ALWAYS: bool> GlobalAlloc for CountingHeap<ALWAYS> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size().cast_signed(), 1);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size().cast_signed(), 1);
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.count(-layout.size().cast_signed(), 0);
        // SAFETY: the caller keeps `dealloc`'s contract, and the block came from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count(size.cast_signed() - layout.size().cast_signed(), 1);
        // SAFETY: the caller keeps `realloc`'s contract, and the block came from `System`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// The bytes that the process holds now.
pub fn held() -> isize {
    HELD.load(Ordering::Relaxed)
}

/// How often this thread has allocated.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// How often `work` allocates in this thread.
pub fn allocations_of(work: impl FnOnce()) -> usize {
    let before = allocations();
    work();
    allocations() - before
}

/// Counts the bytes allocated, less those freed, since it was made. There is at most one at a time, and no earlier
/// block is freed while it exists.
#[derive(Debug)]
pub struct Meter(());

impl Meter {
    pub fn start() -> Self {
        HELD.store(0, Ordering::Relaxed);
        let already = METERED.swap(true, Ordering::Relaxed);
        assert!(!already, "two meters at a time");
        Self(())
    }

    pub fn bytes(&self) -> f64 {
        held() as f64
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        METERED.store(false, Ordering::Relaxed);
    }
}
