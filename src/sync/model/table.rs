//! The sharded table: a list behind a mutex for each shard.

use std::hash::Hash;
use std::sync::PoisonError;

use super::checker::{Mutex, MutexGuard};

pub(crate) struct Table<T, X>(Box<[Mutex<Contents<T, X>>]>);

struct Contents<T, X> {
    entries: Vec<(u32, T)>,
    beside: X,
}

impl<T: Copy + Eq + Hash, X> Table<T, X> {
    pub(crate) fn new(shards: usize, beside: impl Fn() -> X) -> Self {
        let contents = || Contents {
            entries: Vec::new(),
            beside: beside(),
        };
        Table((0..shards).map(|_| Mutex::new(contents())).collect())
    }

    pub(crate) fn shards(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        hash as usize % self.0.len()
    }

    pub(crate) fn lock(&self, shard: usize) -> ShardGuard<'_, T, X> {
        ShardGuard(self.0[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct ShardGuard<'a, T, X>(MutexGuard<'a, Contents<T, X>>);

impl<T: Copy, X> ShardGuard<'_, T, X> {
    pub(crate) fn beside(&self) -> &X {
        &self.0.beside
    }

    pub(crate) fn beside_mut(&mut self) -> &mut X {
        &mut self.0.beside
    }

    pub(crate) fn len(&self) -> usize {
        self.0.entries.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.entries.capacity()
    }

    pub(crate) fn find(&self, hash: u32, mut eq: impl FnMut(T) -> bool) -> Option<T> {
        let found = |entry: &&(u32, T)| entry.0 == hash && eq(entry.1);
        self.0.entries.iter().find(found).map(|entry| entry.1)
    }

    pub(crate) fn insert(&mut self, hash: u32, value: T) {
        self.0.entries.push((hash, value));
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32, T, &mut X) -> bool) {
        let contents = &mut *self.0;
        contents
            .entries
            .retain(|entry| keep(entry.0, entry.1, &mut contents.beside));
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(T)) {
        self.0.entries.iter().for_each(|entry| f(entry.1));
    }

    pub(crate) fn for_some(
        &self,
        place: usize,
        most: usize,
        mut f: impl FnMut(T),
    ) -> Option<usize> {
        let entries = &self.0.entries;
        let end = place.saturating_add(most).min(entries.len());
        entries[place.min(end)..end]
            .iter()
            .for_each(|entry| f(entry.1));
        (end < entries.len()).then_some(end)
    }

    pub(crate) fn shrink_to(&mut self, len: usize) {
        self.0.entries.shrink_to(len);
    }
}
