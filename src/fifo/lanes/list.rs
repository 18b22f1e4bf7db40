//! A list of queued keys, linked through their places.

use crate::keys::node::NodeRef;
use crate::keys::place::{Laned, Place};
use crate::keys::state::Level;

/// A lane: the keys of one level, first in, first out. Its owner holds the scheduler's lock in all
/// calls.
pub(super) struct List<K> {
    first: Option<NodeRef<K>>,
    last: Option<NodeRef<K>>,
    len: usize,
}

// SAFETY: a list owns no key; the lock of its owner orders all accesses to the places.
unsafe impl<K: Send + Sync> Send for List<K> {}

/// Returns a node's place, to be accessed under the scheduler's lock.
pub(super) fn place<K>(node: NodeRef<K>, laned: Laned) -> *mut Place<K> {
    node.place(&laned).as_ptr()
}

impl<K> List<K> {
    pub(super) const NEW: Self = List {
        first: None,
        last: None,
        len: 0,
    };

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts a key at the end.
    ///
    /// # Safety
    ///
    /// The key is in no list, and stays interned while it is in this one.
    pub(super) unsafe fn push(&mut self, node: NodeRef<K>, lane: Level, laned: Laned) {
        let last = self.last.replace(node);
        // SAFETY: interned; the lock is held.
        unsafe {
            let own = place(node, laned);
            (*own).before = last;
            (*own).behind = None;
            (*own).lane = Some(lane);
            match last {
                None => self.first = Some(node),
                Some(last) => (*place(last, laned)).behind = Some(node),
            }
        }
        self.len += 1;
    }

    /// Takes the first key.
    pub(super) fn pop(&mut self, laned: Laned) -> Option<NodeRef<K>> {
        let first = self.first?;
        // SAFETY: it is in this list.
        unsafe { self.remove(first, laned) };
        Some(first)
    }

    /// Takes a key out.
    ///
    /// # Safety
    ///
    /// The key is in this list.
    pub(super) unsafe fn remove(&mut self, node: NodeRef<K>, laned: Laned) {
        // SAFETY: the keys in the list are interned; the lock is held.
        unsafe {
            let own = place(node, laned);
            let (before, behind) = ((*own).before, (*own).behind);
            (*own).lane = None;
            match before {
                None => self.first = behind,
                Some(before) => (*place(before, laned)).behind = behind,
            }
            match behind {
                None => self.last = before,
                Some(behind) => (*place(behind, laned)).before = before,
            }
        }
        self.len -= 1;
    }
}
