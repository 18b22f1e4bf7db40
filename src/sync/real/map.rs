//! A map from hashes to values, in shards with a lock each: a `DashMap` whose keys are hashes
//! already.
//!
//! Every closure runs under the lock of the hash's shard.

use std::hash::{BuildHasherDefault, Hasher};

use dashmap::DashMap;

pub(crate) struct HashedMap<V>(DashMap<u64, V, BuildHasherDefault<Identity>>);

impl<V> HashedMap<V> {
    /// A power of two, well above the number of threads that access the map at the same time.
    pub(crate) const SHARDS: usize = 32;

    pub(crate) fn new() -> Self {
        let hasher = BuildHasherDefault::default();
        HashedMap(DashMap::with_hasher_and_shard_amount(hasher, Self::SHARDS))
    }

    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        self.0.determine_shard(hash as usize)
    }

    /// Changes the value of a hash, or inserts one.
    #[inline]
    pub(crate) fn upsert(
        &self,
        hash: u64,
        change: impl FnOnce(&mut V),
        insert: impl FnOnce() -> V,
    ) {
        self.0.entry(hash).and_modify(change).or_insert_with(insert);
    }

    /// Changes the value of a hash, if it has one.
    #[inline]
    pub(crate) fn update<R>(&self, hash: u64, change: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.0.get_mut(&hash).map(|mut value| change(&mut value))
    }

    /// Drops the values of one shard that `keep` refuses, moves the others to a table of the
    /// smallest sufficient size, and passes their number to `kept`.
    pub(crate) fn rebuild(
        &self,
        shard: usize,
        keep: impl Fn(&V) -> bool,
        kept: impl FnOnce(usize),
    ) {
        let mut table = self.0.shards()[shard].write();
        for entry in std::mem::take(&mut *table) {
            if keep(entry.1.get()) {
                table.insert(entry.0, entry, |(hash, _)| *hash);
            }
        }
        kept(table.len());
    }
}

/// The hash of a hash: itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is hashed as one u64")
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
