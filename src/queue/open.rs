//! What keeps a queue open: the queue itself, items that own their queue, and workers. When the last of them is
//! dropped, the queue is shut down. [`Source`] is how an item or a future refers to its queue: it borrows it, or is one
//! of these.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

use crate::engine::Core;
use crate::sync::Arc;

pub(crate) struct Open<K, V> {
    pub(crate) core: Arc<Core<K, V>>,
}

impl<K, V> Drop for Open<K, V> {
    fn drop(&mut self) {
        let core = &self.core;
        if let Some(watch) = core.watch() {
            watch.tally.end();
        }
        // No thread can be waiting, because those that wait keep the queue open. Handles may live on, and
        // their adds must be refused from now on; what is queued will not be delivered, and its
        // receipts end. The timer's thread has a reference, too, and is stopped by this.
        if Arc::strong_count(core) > 1 {
            core.abandon();
        }
        core.driver.stop(&core.timer);
        // Even if the thread has dropped its reference to the core: it may still be running.
        core.driver.join();
        if let Some(watch) = core.watch() {
            watch.tally.report_last(&**core);
        }
    }
}

/// The address of an [`Open`], and in its lowest bit whether this is one of those that keep the queue open: so an item
/// has two words, which a call returns in registers.
pub(crate) struct Source<'q, K, V> {
    at: NonNull<Open<K, V>>,
    of: PhantomData<&'q Arc<Open<K, V>>>,
}

/// The flag of a source that keeps the queue open.
const OWNED: usize = 1;

impl<'q, K, V> Source<'q, K, V> {
    #[inline]
    pub(crate) fn borrowed(open: &'q Arc<Open<K, V>>) -> Self {
        // The pointer of the `Arc`: one from a reference to the value may not reach the counts, as `to_owned` does.
        let at = Arc::as_ptr(open).cast_mut();
        let of = PhantomData;
        // SAFETY: not null, because it is the address of a value.
        let at = unsafe { NonNull::new_unchecked(at) };
        Source { at, of }
    }

    fn owned(open: Arc<Open<K, V>>) -> Self {
        const { assert!(align_of::<Open<K, V>>() > OWNED) };
        // Dropped by the drop of this.
        let open = ManuallyDrop::new(open);
        let at = Source::borrowed(&open).at.map_addr(|at| at | OWNED);
        let of = PhantomData;
        Source { at, of }
    }

    #[inline]
    pub(super) fn is_owned(&self) -> bool {
        self.at.addr().get() & OWNED != 0
    }

    #[inline]
    fn open(&self) -> *const Open<K, V> {
        self.at.as_ptr().map_addr(|at| at & !OWNED)
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<Core<K, V>> {
        // SAFETY: borrowed for 'q, or kept open by this.
        unsafe { &(*self.open()).core }
    }

    /// Returns one that keeps the queue open.
    pub(crate) fn to_owned<'a>(&self) -> Source<'a, K, V> {
        // SAFETY: as for `core`; what has an address that was that of an `Arc` is in one.
        let open = ManuallyDrop::new(unsafe { Arc::from_raw(self.open()) });
        Source::owned(Arc::clone(&open))
    }
}

impl<K, V> Clone for Source<'_, K, V> {
    fn clone(&self) -> Self {
        match self.is_owned() {
            true => self.to_owned(),
            false => Source { ..*self },
        }
    }
}

impl<K, V> Drop for Source<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        if self.is_owned() {
            // SAFETY: the address was that of an `Arc`, which this drops.
            drop(unsafe { Arc::from_raw(self.open()) });
        }
    }
}

// SAFETY: a source acts as a `&Open` or as an `Arc<Open>`, which need the same.
unsafe impl<K: Send + Sync, V: Send> Send for Source<'_, K, V> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send> Sync for Source<'_, K, V> {}

// As for `WorkQueue`, which stays consistent if user code panics.
impl<K, V> UnwindSafe for Source<'_, K, V> {}
impl<K, V> RefUnwindSafe for Source<'_, K, V> {}

#[cfg(test)]
mod tests {
    use crate::{Added, WorkQueue};

    #[test] // S6 C7, under Miri
    fn each_source_that_owns_its_queue_keeps_it_open() {
        let queue = WorkQueue::new();
        let handle = queue.handle(1);
        let owners = || std::sync::Arc::strong_count(&queue.open);
        let borrowed = queue.source();
        drop(borrowed.clone());
        assert_eq!(owners(), 1);
        let owned = borrowed.to_owned();
        assert_eq!(owners(), 2);
        let other = owned.clone();
        assert_eq!(owners(), 3);
        drop(borrowed);
        assert_eq!(owners(), 3);
        drop(owned);
        assert_eq!(owners(), 2);
        drop(queue);
        assert_eq!(handle.add(), Added::Queued);
        drop(other);
        assert_eq!(handle.add(), Added::ShutDown);
    }
}
