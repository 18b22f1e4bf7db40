//! Several keys at once: shard by shard, each locked once, with what their lookups read asked for before.
//!
//! A lookup waits for three lines of memory, one after the other: the tags of its place in the table, the index in the
//! place, the node. Of several keys in a shard, all of the first two are prefetched, then all of the third: so the
//! processor waits for each kind once, and not for each key. The addresses are read under the shard's lock, since a
//! table that grows moves. A prefetch is a hint, and may be in vain.

use std::mem;

use super::{Keys, Shard};
use crate::keys::hash::ShortHash;
use crate::sync::FAR;

/// The most keys at once.
pub(crate) const CHUNK: usize = 128;

/// Shards are told apart by this many values of their number when a chunk is put into their order. If there are more,
/// one may have several turns.
const LISTS: usize = 64;

impl<K, V> Keys<K, V> {
    /// Returns whether the nodes are too many for the processor's caches, so that chunks save time; with fewer they only cost some.
    /// Looks at one shard, since hashes are spread.
    pub(crate) fn are_far(&self) -> bool {
        let len = self
            .try_shard(0)
            .map_or(0, |shard| shard.table.len() * shard.store.slab.stride());
        len * self.shards.len() >= FAR
    }

    /// Calls `f` with each item, its place and its shard, which is locked and has prefetched: shard by shard, and the items
    /// of one in their order. There are at most [`CHUNK`].
    #[inline]
    pub(crate) fn for_each_in_shards<T>(
        &self,
        items: &mut [T],
        hash_of: impl Fn(&T) -> u64,
        mut f: impl FnMut(&mut Shard<'_, K, V>, usize, &mut T),
    ) {
        const { assert!(CHUNK <= u8::MAX as usize) };
        let shard_of = |item: &T| self.shard_of(hash_of(item)).0;
        let mut places = [0_u8; CHUNK];
        // A counting sort: the number of items in each list, then its first place, and then the next one.
        let mut nexts = [0_u8; LISTS];
        for item in &*items {
            nexts[shard_of(item) % LISTS] += 1;
        }
        let mut before = 0;
        for next in &mut nexts {
            before += mem::replace(next, before);
        }
        for (place, item) in items.iter().enumerate() {
            let next = &mut nexts[shard_of(item) % LISTS];
            places[usize::from(*next) % CHUNK] = place as u8;
            *next += 1;
        }
        let mut places = &places[..items.len()];
        while let [first, ..] = *places {
            let index = shard_of(&items[usize::from(first)]);
            let is_other = |place: &u8| shard_of(&items[usize::from(*place)]) != index;
            let len = places.iter().position(is_other).unwrap_or(places.len());
            let (mine, others) = places.split_at(len);
            let mut shard = self.shard(index);
            shard.prefetch(
                mine.iter()
                    .map(|place| hash_of(&items[usize::from(*place)])),
            );
            for &place in mine {
                f(&mut shard, place.into(), &mut items[usize::from(place)]);
            }
            places = others;
        }
    }
}

impl<K, V> Shard<'_, K, V> {
    /// Prefetches what lookups of these hashes read.
    fn prefetch(&self, hashes: impl Iterator<Item = u64> + Clone) {
        let hashes = hashes.map(ShortHash::of);
        hashes.clone().for_each(|hash| self.table.prefetch(hash));
        for hash in hashes {
            // Another key may have the same tag: then this one is not prefetched.
            if let Some(index) = self.table.find(hash, |_| true) {
                self.store.slab.prefetch(index);
            }
        }
    }
}
