//! The table: from the hash of a key to the index of its node. It is a `DashMap`, used through its
//! raw API.
//!
//! The map's values are empty, and its keys are [`NodeIndex`]es, so an entry takes four bytes, and
//! a control byte beside it. The hash is kept in the node; the table asks for it when it grows.
//!
//! A shard's own [`SpinLock`](crate::sync::SpinLock) guards the table's shard together with the
//! nodes, so the lock that dashmap has for each shard is never taken. That one takes a second
//! read-modify-write to unlock: an add of a queued key took 13.8 ns with it instead of 7.6
//! (`benches/NOTES.md`). And loom does not know it.

use std::hash::BuildHasherDefault;

use dashmap::{DashMap, SharedValue};

use crate::keys::hash::ShortHash;
use crate::keys::slab::NodeIndex;
use crate::sync::prefetch;

/// The shards of the table. The map itself never hashes a key.
pub(crate) struct Tables(DashMap<NodeIndex, (), BuildHasherDefault<std::hash::DefaultHasher>>);

impl Tables {
    /// Creates `shards` empty tables, which allocate nothing. `shards` must be a power of two above
    /// one.
    pub(crate) fn new(shards: usize) -> Self {
        let hasher = BuildHasherDefault::default();
        Tables(DashMap::with_hasher_and_shard_amount(hasher, shards))
    }
}

/// One shard of the table, held exclusively.
pub(crate) struct Table<'a> {
    tables: &'a Tables,
    shard: usize,
}

/// The shard's hash table, whose type dashmap does not name.
macro_rules! raw {
    ($table:expr, $($mutable:tt)?) => {{
        // SAFETY: by the contract of `Table::new` there is such a shard, and this is the only access
        // to it.
        unsafe { &$($mutable)? *$table.tables.0.shards().get_unchecked($table.shard).data_ptr() }
    }};
}

impl<'a> Table<'a> {
    /// # Safety
    ///
    /// `shard` is below the number of shards, and no other `Table` of this shard exists while this
    /// one does.
    #[inline]
    pub(crate) unsafe fn new(tables: &'a Tables, shard: usize) -> Self {
        Table { tables, shard }
    }

    /// Returns the number of the shard.
    #[inline]
    pub(crate) fn shard(&self) -> usize {
        self.shard
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        raw!(self,).len()
    }

    /// Returns how many nodes fit into the memory that the table has allocated.
    pub(crate) fn capacity(&self) -> usize {
        let places = raw!(self,).buckets();
        places - places.div_ceil(8)
    }

    /// Asks for the place of this hash: for its tags, and its entry.
    #[inline]
    pub(crate) fn prefetch(&self, hash: ShortHash) {
        let table = raw!(self,);
        let place = hash.spread() as usize & (table.buckets() - 1);
        // The tags follow the entries, which are in reverse order.
        let end = table.data_end().as_ptr();
        prefetch(end.cast::<u8>().wrapping_add(place));
        prefetch(end.wrapping_sub(place + 1));
    }

    /// Returns the node with this hash for which `eq` holds. `eq` is also called with some nodes
    /// that have other hashes.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: ShortHash,
        mut eq: impl FnMut(NodeIndex) -> bool,
    ) -> Option<NodeIndex> {
        let found = raw!(self,).get(hash.spread(), |(node, _)| eq(*node));
        found.map(|(node, _)| *node)
    }

    /// Inserts a node, which must not be in the table. `hash_of` returns the hash of a node that
    /// is.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        hash: ShortHash,
        node: NodeIndex,
        hash_of: impl Fn(NodeIndex) -> ShortHash,
    ) {
        let hasher = |entry: &(NodeIndex, _)| hash_of(entry.0).spread();
        raw!(self, mut).insert(hash.spread(), (node, SharedValue::new(())), hasher);
    }

    pub(crate) fn remove_if(&mut self, mut leaves: impl FnMut(NodeIndex) -> bool) {
        let table = raw!(self, mut);
        // SAFETY: the table outlives the iterator, and an entry may be erased when it was returned.
        unsafe {
            for entry in table.iter() {
                if leaves(entry.as_ref().0) {
                    table.erase(entry);
                }
            }
        }
    }

    /// Calls `f` with the nodes in `most` places, starting at place `from`. Returns the next place,
    /// if there is one, which is valid until the table changes.
    pub(crate) fn for_some(
        &self,
        from: usize,
        most: usize,
        mut f: impl FnMut(NodeIndex),
    ) -> Option<usize> {
        let table = raw!(self,);
        // A table that has allocated nothing has one place, which is free.
        let places = table.buckets();
        let end = from.saturating_add(most).min(places);
        for place in from..end {
            // SAFETY: the place is below the number of places, and its entry is only read if there
            // is one.
            unsafe {
                if table.is_bucket_full(place) {
                    f(table.bucket(place).as_ref().0);
                }
            }
        }
        (end < places).then_some(end)
    }

    /// Shrinks the table to room for `len` nodes, or for its nodes if they are more.
    pub(crate) fn shrink_to(&mut self, len: usize, hash_of: impl Fn(NodeIndex) -> ShortHash) {
        raw!(self, mut).shrink_to(len, |entry| hash_of(entry.0).spread());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::scaled::scaled;

    /// The nodes in a table, and the hash of each.
    type Model = BTreeMap<u32, ShortHash>;

    fn hash_in(model: &Model) -> impl Fn(NodeIndex) -> ShortHash {
        |node| *model.get(&node.0).expect("the table asks for nodes in it")
    }

    fn insert(table: &mut Table<'_>, model: &mut Model, hash: ShortHash) {
        let node = model.last_key_value().map_or(0, |(last, _)| last + 1);
        table.insert(hash, NodeIndex(node), hash_in(model));
        model.insert(node, hash);
    }

    fn assert_consistent(table: &Table<'_>, model: &Model) {
        assert_eq!(table.len(), model.len());
        assert!(table.len() <= table.capacity());
        for most in [1, 12, 13, usize::MAX] {
            let mut nodes = Vec::new();
            let mut place = Some(0);
            while let Some(from) = place {
                place = table.for_some(from, most, |node| nodes.push(node.0));
            }
            nodes.sort_unstable();
            assert!(nodes.iter().eq(model.keys()), "in steps of {most}");
        }
        for (node, hash) in model {
            let found = table.find(*hash, |other| other.0 == *node);
            assert_eq!(found, Some(NodeIndex(*node)));
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert(Vec<u32>),
        RemoveMultiples(u32),
        Shrink(usize),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        // Hashes that are spread, that share their place, that share their tag, and that are the
        // same.
        let hash = prop_oneof![
            4 => any::<u32>(),
            2 => any::<u8>().prop_map(|tag| u32::from(tag) << 20 | 3),
            2 => any::<u16>().prop_map(u32::from),
            1 => Just(7),
        ];
        let op = prop_oneof![
            5 => prop::collection::vec(hash, 1..60).prop_map(Op::Insert),
            2 => (1..5_u32).prop_map(Op::RemoveMultiples),
            1 => (0..300_usize).prop_map(Op::Shrink),
        ];
        prop::collection::vec(op, 1..if cfg!(miri) { 4 } else { 30 })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(scaled(128) as u32))]

        #[test]
        fn the_table_holds_what_was_inserted_and_not_removed(ops in ops()) {
            let tables = Tables::new(2);
            // SAFETY: the only `Table` of this shard.
            let mut table = unsafe { Table::new(&tables, 1) };
            let mut model = Model::new();
            prop_assert_eq!(table.capacity(), 0);
            prop_assert_eq!(table.find(ShortHash::of(1), |_| true), None);
            assert_consistent(&table, &model);
            for op in ops {
                match op {
                    Op::Insert(hashes) => for bits in hashes {
                        insert(&mut table, &mut model, ShortHash::from_bits(bits));
                    },
                    Op::RemoveMultiples(of) => {
                        let leaves = |node: u32| node.is_multiple_of(of);
                        table.remove_if(|node| leaves(node.0));
                        model.retain(|node, _| !leaves(*node));
                    }
                    Op::Shrink(to) => {
                        table.shrink_to(to, hash_in(&model));
                        prop_assert!(table.capacity() <= 4 * to.max(table.len()).max(4));
                    }
                }
                assert_consistent(&table, &model);
            }
            table.remove_if(|_| true);
            table.shrink_to(0, |_| unreachable!("the table is empty"));
            prop_assert_eq!((table.len(), table.capacity()), (0, 0));
        }
    }
}
