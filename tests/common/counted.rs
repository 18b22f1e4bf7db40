//! What is counted while it lives.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many of something are alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alive(Arc<AtomicUsize>);

impl Alive {
    pub(crate) fn of<T>(&self, what: T) -> Counted<T> {
        // Ordering: SeqCst, here and below; a test's counter.
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(what, self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A key, a group or a value that is counted while it lives. A second drop would make the count wrap around.
#[derive(Debug)]
pub(crate) struct Counted<T = ()>(pub(crate) T, Alive);

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.1.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: Clone> Clone for Counted<T> {
    fn clone(&self) -> Self {
        self.1.of(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for Counted<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq> Eq for Counted<T> {}

impl<T: Hash> Hash for Counted<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
