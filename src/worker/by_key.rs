//! What workers keep of keys, found by the key.
//!
//! An entry that no worker will take out is *stale*; the module that has the map says which one is. Each call of
//! [`ByKey::take_stale`] looks at one entry, in turn, so stale entries go while workers finish keys.

use std::collections::BTreeMap;
use std::ptr;

use crate::KeyHandle;

/// Entries by the address of the interned key, which the handle keeps in its place.
pub(super) struct ByKey<K, V, T> {
    pub(super) entries: BTreeMap<usize, Entry<K, V, T>>,
    /// Where to look for the next stale entry.
    next: usize,
}

pub(super) type Entry<K, V, T> = (KeyHandle<K, V>, T);

/// What was taken out, to be dropped without the lock: the last handle of a queue drops its keys.
pub(super) type Gone<K, V, T> = [Option<Entry<K, V, T>>; 2];

pub(super) fn address<K>(key: &K) -> usize {
    ptr::from_ref(key).addr()
}

impl<K, V, T> ByKey<K, V, T> {
    pub(super) fn new() -> Self {
        ByKey {
            entries: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn insert(&mut self, key: KeyHandle<K, V>, value: T) -> Option<Entry<K, V, T>> {
        self.entries.insert(address(key.key()), (key, value))
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<Entry<K, V, T>> {
        self.entries.remove(&address(key))
    }

    /// Takes out the next entry if it is stale.
    pub(super) fn take_stale(
        &mut self,
        is_stale: impl FnOnce(&Entry<K, V, T>) -> bool,
    ) -> Option<Entry<K, V, T>> {
        let seen = self.entries.range(self.next..).next();
        let seen = seen.map(|(at, entry)| (*at, is_stale(entry)));
        self.next = seen.map_or(0, |(at, _)| at + 1);
        let (at, _) = seen.filter(|(_, is_stale)| *is_stale)?;
        self.entries.remove(&at)
    }
}
