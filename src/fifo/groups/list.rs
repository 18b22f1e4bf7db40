//! The queued keys of a group: a list for each level, through the keys' links and
//! [seats](crate::keys::seat).
//!
//! A key's `previous` says nothing while it is the first of its list, so that whoever takes the first one does not
//! write to the next.
//!
//! The lists own the entries of their keys, so the nodes stay interned. They allocate nothing, and a key
//! in the middle can be moved when its level rises. All calls are made under the lock of the groups.

use std::ptr::{self, NonNull};

use crate::keys::node::{NodeRef, Pin, Queued};
use crate::keys::seat::Seated;
use crate::keys::state::Level;
use crate::sync::atomic::Ordering;

/// The lists of one group.
pub(super) struct Levels<K> {
    /// Of level 0: most queues have no other, and need no allocation for it.
    first: List<K>,
    /// Of the levels from 1 on.
    others: Box<[List<K>]>,
    /// The levels that have keys, a bit for each.
    filled: u8,
}

struct List<K> {
    first: Option<NodeRef<K>>,
    last: Option<NodeRef<K>>,
}

impl<K> Levels<K> {
    pub(super) fn new(levels: usize) -> Self {
        Levels {
            first: List::new(),
            others: (1..levels).map(|_| List::new()).collect(),
            filled: 0,
        }
    }

    pub(super) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// Returns the levels that have keys, a bit for each.
    pub(super) fn filled(&self) -> u8 {
        self.filled
    }

    fn list(&mut self, level: Level) -> &mut List<K> {
        match level {
            0 => &mut self.first,
            level => &mut self.others[usize::from(level) - 1],
        }
    }

    /// Puts a key at the tail of the list of its level.
    pub(super) fn push(&mut self, entry: Queued<K>, seated: &Seated) {
        // SAFETY: the key is queued, and in no list: this was its one entry.
        unsafe { self.put(entry.level().unwrap_or(0), entry.node(), seated) };
    }

    /// # Safety
    ///
    /// The key is queued, and in no list.
    unsafe fn put(&mut self, level: Level, pushed: NodeRef<K>, seated: &Seated) {
        self.filled |= 1 << level;
        // SAFETY: by the caller's promise; and a queued key's node stays interned.
        unsafe {
            pushed.seat(seated).set_listed(Some(level));
            self.list(level).push(pushed, seated);
        }
    }

    /// Takes the first key of a level.
    pub(super) fn pop(&mut self, level: Level, seated: &Seated) -> Option<Queued<K>> {
        let first = self.list(level).first?;
        // SAFETY: it is in this list, which has its one entry.
        let entry = unsafe {
            self.remove(level, first, seated);
            Queued::again(first)
        };
        entry.seat(seated).set_listed(None);
        Some(entry)
    }

    /// # Safety
    ///
    /// The key is in the list of this level.
    unsafe fn remove(&mut self, level: Level, removed: NodeRef<K>, seated: &Seated) {
        let list = self.list(level);
        // SAFETY: by the caller's promise.
        unsafe { list.remove(removed, seated) };
        if list.first.is_none() {
            self.filled &= !(1 << level);
        }
    }

    /// Moves a key to the tail of the list of its level, if it is in the list of a less urgent one. It is
    /// in none if its entry is not pushed yet, or taken already.
    ///
    /// # Safety
    ///
    /// The key belongs to this group.
    pub(super) unsafe fn raise(&mut self, pin: &Pin<K>, seated: &Seated) {
        let seat = pin.seat(seated);
        let Some((from, to)) = seat.listed().zip(pin.level()) else {
            return;
        };
        if to < from {
            // SAFETY: by the caller's promise, it is in that list. Its one entry moves.
            unsafe {
                self.remove(from, pin.node(), seated);
                self.put(to, pin.node(), seated);
            }
        }
    }
}

fn address<K, T>(node: Option<NodeRef<K>>) -> *mut T {
    node.map_or(ptr::null_mut(), |node| node.0.as_ptr().cast())
}

fn node<K, T>(address: *mut T) -> Option<NodeRef<K>> {
    NonNull::new(address.cast()).map(NodeRef)
}

impl<K> List<K> {
    fn new() -> Self {
        List {
            first: None,
            last: None,
        }
    }

    /// # Safety
    ///
    /// The key is queued, and in no list.
    unsafe fn push(&mut self, pushed: NodeRef<K>, seated: &Seated) {
        let before = self.last.replace(pushed);
        // SAFETY: keys in lists are queued, so their nodes stay interned, here and below.
        unsafe {
            // Ordering: Relaxed; accessed under the lock of the groups, here and below.
            pushed.next().store(ptr::null_mut(), Ordering::Relaxed);
            match before {
                None => self.first = Some(pushed),
                Some(other) => {
                    let previous = &pushed.seat(seated).previous;
                    // Ordering: Relaxed; as above.
                    previous.store(address(before), Ordering::Relaxed);
                    // Ordering: Relaxed; as above.
                    other.next().store(address(Some(pushed)), Ordering::Relaxed);
                }
            }
        }
    }

    /// # Safety
    ///
    /// The key is in this list.
    unsafe fn remove(&mut self, removed: NodeRef<K>, seated: &Seated) {
        // SAFETY: as in `push`.
        unsafe {
            // Ordering: Relaxed; as in `push`, here and below.
            let after = node::<K, _>(removed.next().load(Ordering::Relaxed));
            if self.first.is_some_and(|first| first.0 == removed.0) {
                self.first = after;
                if after.is_none() {
                    self.last = None;
                }
                return;
            }
            // Ordering: Relaxed; as in `push`.
            let before = removed.seat(seated).previous.load(Ordering::Relaxed);
            match after {
                None => self.last = node(before),
                // Ordering: Relaxed; as in `push`.
                Some(after) => after.seat(seated).previous.store(before, Ordering::Relaxed),
            }
            if let Some(before) = node::<K, _>(before) {
                // Ordering: Relaxed; as in `push`.
                before.next().store(address(after), Ordering::Relaxed);
            }
        }
    }
}
