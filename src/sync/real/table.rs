//! The sharded table: dashmap, entered through its raw API. No other file touches the map.
//!
//! A `Table` maps a hash to small `Copy` values (the nodes' indices), and keeps the hash beside
//! the value: a table that grows then moves its entries without a look at the nodes, which would be
//! a cache miss each (a million distinct keys took twice as long). Within a shard a hash of 32 bits
//! will do, so that an entry takes 8 bytes; beyond 2^25 keys in one shard they crowd, and a lookup
//! takes longer. Beside each shard it keeps a value of type `X` that the same lock guards. The caller
//! computes the hash once, locks the one shard it belongs to, and works on that shard through the
//! guard, so an operation costs one hash, one lock and one probe.
//!
//! The lock is ours, not dashmap's: see [`super::lock`] for why. dashmap's own locks are never
//! taken; the map is reachable through this type alone.

use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash};
use std::marker::PhantomData;

use crossbeam_utils::CachePadded;
use dashmap::{DashMap, SharedValue};
use hashbrown::raw::RawTable;

use super::lock::{Locked, LockedGuard};
use super::prefetch;

/// dashmap asks for a hasher; this table is always told the hash, so the hasher is never run.
type Unused = BuildHasherDefault<DefaultHasher>;

pub(crate) struct Table<T, X> {
    map: DashMap<Entry<T>, (), Unused>,
    /// The lock of each shard, with what the shard has beside its table.
    sides: Box<[CachePadded<Locked<X>>]>,
}

/// A value and its hash within the shard.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Entry<T> {
    hash: u32,
    value: T,
}

/// The hash as hashbrown wants it: by the topmost bits it tells the entries of a group apart, by the
/// lowest it places them.
#[inline]
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// A shard of the map.
type Shard<T> = RawTable<(Entry<T>, SharedValue<()>)>;

// SAFETY: a shard's table and what is beside it are reached only by the holder of its lock, one
// thread at a time, which may be any thread.
unsafe impl<T: Send, X: Send> Send for Table<T, X> {}
// SAFETY: as above.
unsafe impl<T: Send, X: Send> Sync for Table<T, X> {}

impl<T: Copy + Eq + Hash, X> Table<T, X> {
    /// `shards` must be a power of two above one. `beside` makes what each shard has beside it.
    pub(crate) fn new(shards: usize, beside: impl Fn() -> X) -> Self {
        let side = || CachePadded::new(Locked::new(beside()));
        Table {
            map: DashMap::with_hasher_and_shard_amount(Unused::default(), shards),
            sides: (0..shards).map(|_| side()).collect(),
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.sides.len()
    }

    /// The shard that `hash` belongs to.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        // On a 32-bit target the upper half is cut off, which costs spread, not correctness.
        self.map.determine_shard(hash as usize)
    }

    #[inline]
    pub(crate) fn lock(&self, shard: usize) -> ShardGuard<'_, T, X> {
        ShardGuard {
            side: self.sides[shard].lock(),
            table: self.map.shards()[shard].data_ptr(),
            _shard: PhantomData,
        }
    }
}

/// The right to look at one shard and to change it. Dropping it unlocks the shard.
pub(crate) struct ShardGuard<'a, T, X> {
    side: LockedGuard<'a, X>,
    table: *mut Shard<T>,
    _shard: PhantomData<&'a mut (T, X)>,
}

impl<T: Copy, X> ShardGuard<'_, T, X> {
    #[inline]
    fn table(&self) -> &Shard<T> {
        // SAFETY: the pointer is to a shard of the map that `'a` borrows, and the guard holds the
        // only lock through which it is reached.
        unsafe { &*self.table }
    }

    #[inline]
    fn parts(&mut self) -> (&mut Shard<T>, &mut X) {
        // SAFETY: as in `table`, and `&mut self` is exclusive.
        (unsafe { &mut *self.table }, &mut *self.side)
    }

    /// What the shard has beside its table.
    #[inline]
    pub(crate) fn beside(&self) -> &X {
        &self.side
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn beside_mut(&mut self) -> &mut X {
        &mut self.side
    }

    pub(crate) fn len(&self) -> usize {
        self.table().len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.table().capacity()
    }

    #[inline]
    pub(crate) fn find(&self, hash: u32, mut eq: impl FnMut(T) -> bool) -> Option<T> {
        let table = self.table();
        // In a table that the caches do not hold, the entry is as far away as the tags that say where
        // it is. Most keys are where their hash alone puts them, or beside it.
        let first = hash as usize & (table.buckets() - 1);
        prefetch(table.data_end().as_ptr().wrapping_sub(first + 1));
        table
            .get(wide(hash), |entry| {
                entry.0.hash == hash && eq(entry.0.value)
            })
            .map(|entry| entry.0.value)
    }

    /// Adds `value`, which must not be there yet.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, value: T) {
        let entry = (Entry { hash, value }, SharedValue::new(()));
        let table = self.parts().0;
        table.insert(wide(hash), entry, |entry| wide(entry.0.hash));
    }

    /// Removes the values for which `keep`, told the hash as well, is false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32, T, &mut X) -> bool) {
        let (table, beside) = self.parts();
        // SAFETY: the iterator does not outlive the table, which nobody else can change, and
        // erasing the bucket last yielded is allowed while iterating.
        unsafe {
            for bucket in table.iter() {
                let Entry { hash, value } = bucket.as_ref().0;
                if !keep(hash, value, beside) {
                    table.erase(bucket);
                }
            }
        }
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(T)) {
        let table = self.table();
        // SAFETY: the iterator does not outlive the table, which nobody else can change.
        unsafe {
            for bucket in table.iter() {
                f(bucket.as_ref().0.value);
            }
        }
    }

    /// Runs `f` over the values of up to `most` places from `place` on, and answers the next place if
    /// there is one. Places hold for as long as nobody changes the table.
    pub(crate) fn for_some(
        &self,
        place: usize,
        most: usize,
        mut f: impl FnMut(T),
    ) -> Option<usize> {
        let table = self.table();
        let end = place.saturating_add(most).min(table.buckets());
        for index in place..end {
            // SAFETY: below the number of buckets; a full one holds a value.
            unsafe {
                if table.is_bucket_full(index) {
                    f(table.bucket(index).as_ref().0.value);
                }
            }
        }
        (end < table.buckets()).then_some(end)
    }

    /// Gives memory back, down to room for `len` values.
    pub(crate) fn shrink_to(&mut self, len: usize) {
        self.parts().0.shrink_to(len, |entry| wide(entry.0.hash));
    }
}
