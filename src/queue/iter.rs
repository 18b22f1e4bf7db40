//! The public face of iterating: over delivered keys, and from an iterator of keys.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::iter::FusedIterator;

use crate::queue::open::Source;
use crate::{Item, WorkQueue};

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns an iterator that takes keys by [`get`](Self::get): it waits for each, and ends when
    /// the queue is shut down and empty. `for item in &queue` is the same.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// queue.add_all(["a", "b"]);
    /// queue.shut_down();
    /// let mut keys = String::new();
    /// for item in &queue {
    ///     keys += item.key();
    /// } // the drop of the item is "done"
    /// assert_eq!(keys, "ab");
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter {
            queue: self.source(),
        }
    }
}

/// The iterator of [`WorkQueue::iter`].
#[must_use = "iterators do nothing unless consumed"]
pub struct Iter<'q, K, V = ()> {
    queue: Source<'q, K, V>,
}

impl<'q, K, V> Iterator for Iter<'q, K, V> {
    type Item = Item<'q, K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        let taken = self.queue.core().take_wait(None);
        Item::new(self.queue.clone(), taken).ok()
    }
}

impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

impl<'q, K, V, S> IntoIterator for &'q WorkQueue<K, V, S> {
    type Item = Item<'q, K, V>;
    type IntoIter = Iter<'q, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Adds every key, as [`WorkQueue::add_all`] does, which needs no `&mut`.
impl<K: Hash + Eq + Send + Sync + 'static, V: Send + 'static, S: BuildHasher> Extend<K>
    for WorkQueue<K, V, S>
{
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        self.add_all(keys);
    }
}

/// Creates a queue with the default settings, and adds every key.
impl<K: Hash + Eq + Send + Sync + 'static> FromIterator<K> for WorkQueue<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let queue = WorkQueue::new();
        queue.add_all(keys);
        queue
    }
}
