//! The queued keys of a group at one level: a list through the keys' links and
//! [seats](crate::keys::seat).
//!
//! It allocates nothing, and a key in the middle can be taken out: it does so when its level rises. All
//! calls are made under the group's lock, with keys that are queued, so their nodes stay interned.

use std::ptr::{self, NonNull};

use crate::fifo::overflow::Link;
use crate::keys::node::NodeRef;
use crate::keys::seat::{Seat, Seated};
use crate::sync::atomic::{AtomicPtr, Ordering};

pub(super) struct List<K> {
    first: Option<NodeRef<K>>,
    last: Option<NodeRef<K>>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        List {
            first: None,
            last: None,
        }
    }
}

/// Where the address of the next key is.
///
/// # Safety
///
/// The key is queued.
unsafe fn next<'a, K: 'a>(node: NodeRef<K>) -> &'a AtomicPtr<Link> {
    // SAFETY: a queued node stays interned.
    unsafe { node.get() }.link.next()
}

/// # Safety
///
/// The key is queued.
unsafe fn seat<'a, K: 'a>(node: NodeRef<K>, seated: &Seated) -> &'a Seat {
    // SAFETY: a queued node stays interned.
    unsafe { node.behind(seated) }
}

fn address<K, T>(node: Option<NodeRef<K>>) -> *mut T {
    node.map_or(ptr::null_mut(), |node| node.0.as_ptr().cast())
}

fn node<K, T>(address: *mut T) -> Option<NodeRef<K>> {
    NonNull::new(address.cast()).map(NodeRef)
}

impl<K> List<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// # Safety
    ///
    /// The key is queued, and in no list.
    pub(super) unsafe fn push(&mut self, pushed: NodeRef<K>, seated: &Seated) {
        let before = self.last.replace(pushed);
        // Ordering: Relaxed, here and below; accessed under the group's lock alone.
        // SAFETY: by the caller's promise.
        unsafe {
            next(pushed).store(ptr::null_mut(), Ordering::Relaxed);
            let previous = &seat(pushed, seated).previous;
            // Ordering: Relaxed; accessed under the group's lock.
            previous.store(address(before), Ordering::Relaxed);
        }
        match before {
            None => self.first = Some(pushed),
            Some(before) => {
                // SAFETY: a key in a list is queued.
                // Ordering: Relaxed; accessed under the group's lock.
                unsafe { next(before) }.store(address(Some(pushed)), Ordering::Relaxed);
            }
        }
    }

    pub(super) fn pop(&mut self, seated: &Seated) -> Option<NodeRef<K>> {
        let first = self.first?;
        // SAFETY: it is in this list.
        unsafe { self.remove(first, seated) };
        Some(first)
    }

    /// # Safety
    ///
    /// The key is in this list.
    pub(super) unsafe fn remove(&mut self, removed: NodeRef<K>, seated: &Seated) {
        // SAFETY: a key in a list is queued.
        let (before, after) = unsafe {
            let previous = &seat(removed, seated).previous;
            // Ordering: Relaxed; accessed under the group's lock.
            let before = node::<K, _>(previous.load(Ordering::Relaxed));
            (before, node(next(removed).load(Ordering::Relaxed)))
        };
        match before {
            None => self.first = after,
            // SAFETY: as above.
            // Ordering: Relaxed; accessed under the group's lock.
            Some(before) => unsafe { next(before) }.store(address(after), Ordering::Relaxed),
        }
        match after {
            None => self.last = before,
            Some(after) => {
                // SAFETY: as above.
                let previous = unsafe { &seat(after, seated).previous };
                // Ordering: Relaxed; accessed under the group's lock.
                previous.store(address(before), Ordering::Relaxed);
            }
        }
    }
}
