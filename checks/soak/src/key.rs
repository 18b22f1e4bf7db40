//! Keys that are counted as long as they live.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counted keys that are alive, copies included. Lives follow one another, so one counter will do.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// A key: its number in the ledger.
///
/// Not all lives count, because counting is an atomic read-modify-write between the operations of the queue,
/// which can hide that one of them has a fence too few.
pub(crate) struct Numbered {
    pub(crate) number: u64,
    counted: bool,
}

impl Numbered {
    pub(crate) fn new(number: u64, counted: bool) -> Self {
        // Ordering: Relaxed, here and below; read when all threads have been joined.
        ALIVE.fetch_add(usize::from(counted), Ordering::Relaxed);
        Numbered { number, counted }
    }
}

/// Counted keys that are alive.
pub(crate) fn alive() -> usize {
    ALIVE.load(Ordering::Relaxed)
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if self.counted {
            let before = ALIVE.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "key {} is dropped twice", self.number);
        }
    }
}

impl Clone for Numbered {
    fn clone(&self) -> Self {
        Numbered::new(self.number, self.counted)
    }
}

impl Hash for Numbered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialEq for Numbered {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Numbered {}

impl Borrow<u64> for Numbered {
    fn borrow(&self) -> &u64 {
        &self.number
    }
}
