//! The queued keys of a group at one level: a list through the keys' [seats](crate::keys::seat).
//!
//! It allocates nothing, and a key in the middle can be taken out: it does so when its level rises. All
//! calls are made under the group's lock, with keys that are queued, so their nodes stay interned.

use std::ptr::{self, NonNull};

use crate::keys::node::NodeRef;
use crate::keys::seat::{Seat, Seated};
use crate::sync::atomic::Ordering;

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

/// # Safety
///
/// The key is queued.
unsafe fn seat<'a, K>(node: NodeRef<K>, seated: &Seated) -> &'a Seat {
    // SAFETY: a queued node stays interned.
    unsafe { node.behind(seated) }
}

fn address<K>(node: Option<NodeRef<K>>) -> *mut () {
    node.map_or(ptr::null_mut(), |node| node.0.as_ptr().cast())
}

fn node<K>(address: *mut ()) -> Option<NodeRef<K>> {
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
        let own = unsafe { seat(pushed, seated) };
        own.next.store(ptr::null_mut(), Ordering::Relaxed);
        own.previous.store(address(before), Ordering::Relaxed);
        match before {
            None => self.first = Some(pushed),
            // SAFETY: a key in a list is queued.
            Some(before) => unsafe { seat(before, seated) }
                .next
                .store(address(Some(pushed)), Ordering::Relaxed),
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
        let own = unsafe { seat(removed, seated) };
        let previous = node::<K>(own.previous.load(Ordering::Relaxed));
        let next = node::<K>(own.next.load(Ordering::Relaxed));
        match previous {
            None => self.first = next,
            // SAFETY: as above.
            Some(previous) => unsafe { seat(previous, seated) }
                .next
                .store(address(next), Ordering::Relaxed),
        }
        match next {
            None => self.last = previous,
            // SAFETY: as above.
            Some(next) => unsafe { seat(next, seated) }
                .previous
                .store(address(previous), Ordering::Relaxed),
        }
    }
}
