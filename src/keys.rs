//! The interned keys: a sharded table from hash to node, each shard with the slab its nodes
//! live in and the account by which it is swept.
//!
//! # Ground rules
//!
//! * A shard's table, slab and account are guarded by that shard's one lock; [`Shard`] is the
//!   right to all three. No thread holds two shards.
//! * Under the lock runs no user code but `K: Eq` (during a lookup, before anything was changed)
//!   and no other call of the queue. Keys are dropped after the lock.
//! * Everything that is not idle is in the table, so walking the shards finds it.
//!
//! * When a shard is rid of idle nodes: see [`sweep`].

mod sweep;
mod visit;

use crossbeam_utils::CachePadded;
pub(crate) use sweep::Swept;
use sweep::{CREDIT_PER_NEW_KEY, FEWEST_RESIDENTS, RESIDENTS};

use crate::ghosts::Ghosts;
use crate::node::{self, Added, Node, NodeRef, Pin, Queued};
use crate::overflow::Link;
use crate::slab::{NodeIndex, Slab};
use crate::state::{KeyState, Phase};
use crate::sync::atomic::{AtomicU64, AtomicUsize};
use crate::sync::{Locked, LockedGuard, prefetch};
use crate::table::{Hashes, ShortHash, Table};
use crate::timer::Delay;

pub(crate) struct Keys<K> {
    /// The locks have their lines to themselves: who waits for one takes nothing away from who holds it.
    shards: Box<[Locked<CachePadded<Store<K>>>]>,
    /// By so many bits a hash is shifted to be the number of a shard.
    shift: u32,
    /// A bit for each shard (modulo 64) that has the credit for a sweep by an idle consumer.
    due: AtomicU64,
    /// A bit for each shard (modulo 64) whose last idle sweep left many busy keys behind.
    unsettled: AtomicU64,
    /// How often consumers found nothing while a shard was unsettled.
    looks: AtomicUsize,
    /// How often consumers went to sleep.
    sleeps: AtomicUsize,
    /// A shard's part of [`RESIDENTS`].
    residents: usize,
}

/// A shard's nodes, and the account of its sweeps. What a lookup reads comes first, on one cache line.
#[repr(C)]
struct Store<K> {
    /// All indices in it are those of nodes of the slab.
    table: Table<NodeIndex>,
    /// An adder of a new key sweeps, or lets the shard grow, when it has this many nodes.
    limit: usize,
    slab: Slab<K>,
    credit: usize,
    ghosts: Ghosts,
    sweeps: u64,
}

/// One shard, locked.
pub(crate) struct Shard<'a, K> {
    keys: &'a Keys<K>,
    index: usize,
    store: LockedGuard<'a, CachePadded<Store<K>>>,
}

impl<K> Keys<K> {
    /// `shards` must be a power of two above one.
    /// `timed` is whether the nodes have times.
    pub(crate) fn new(shards: usize, timed: bool) -> Self {
        let residents = (RESIDENTS / shards).max(FEWEST_RESIDENTS);
        let store = || Store {
            table: Table::new(),
            slab: Slab::new(timed),
            limit: residents,
            credit: 0,
            ghosts: Ghosts::default(),
            sweeps: 0,
        };
        Keys {
            shards: (0..shards)
                .map(|_| Locked::new(CachePadded::new(store())))
                .collect(),
            shift: u64::BITS - shards.trailing_zeros(),
            due: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
            looks: AtomicUsize::new(0),
            sleeps: AtomicUsize::new(0),
            residents,
        }
    }

    /// Locks the shard that keys of this hash are in.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> Shard<'_, K> {
        self.shard(self.shard_of(hash))
    }

    /// By the uppermost bits, which a short hash leaves out.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    pub(crate) fn shard(&self, index: usize) -> Shard<'_, K> {
        Shard {
            keys: self,
            index,
            store: self.shards[index].lock(),
        }
    }

    /// The shards, locked one after the other.
    pub(crate) fn shards(&self) -> impl Iterator<Item = Shard<'_, K>> {
        (0..self.shards.len()).map(|index| self.shard(index))
    }

    /// Takes out every key that is idle and unpinned, and gives memory back.
    pub(crate) fn shrink(&self) {
        for mut shard in self.shards() {
            let swept = shard.sweep(true).0;
            let store = &mut **shard.store;
            store.table.shrink_to(0, &store.slab);
            store.slab.shrink();
            store.ghosts.clear();
            store.limit = self.residents;
            store.credit = 0;
            drop(shard);
            drop(swept);
        }
    }
}

impl<K> Drop for Keys<K> {
    fn drop(&mut self) {
        for mut shard in self.shards() {
            let swept = shard.take_all();
            drop(shard);
            drop(swept);
        }
    }
}

impl<K> Hashes<NodeIndex> for Slab<K> {
    #[inline]
    unsafe fn hash(&self, index: NodeIndex) -> ShortHash {
        // SAFETY: what is in a shard's table is the index of a node in its slab.
        unsafe { self.node(index).get() }.state.hash()
    }

    #[inline]
    unsafe fn expect(&self, index: NodeIndex) {
        // SAFETY: as above.
        prefetch(unsafe { self.node(index) }.as_ptr().as_ptr());
    }
}

impl<K> Shard<'_, K> {
    /// The node that an entry of the table is for.
    #[inline]
    fn node(&self, index: NodeIndex) -> NodeRef<K> {
        // SAFETY: what is in the table is an index of the shard's slab.
        unsafe { self.store.slab.node(index) }
    }

    #[inline]
    fn find(&self, hash: u64, mut eq: impl FnMut(&K) -> bool) -> Option<NodeRef<K>> {
        let hash = ShortHash::of(hash);
        let index = self.store.table.find(hash, |index| {
            // SAFETY: in the table of a shard whose lock is held.
            let node = unsafe { self.node(index).get() };
            node.state.hash() == hash && eq(&node.key)
        });
        index.map(|index| self.node(index))
    }

    /// Adds the key for which `eq` holds, if it is interned.
    #[inline]
    pub(crate) fn add(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Added<K>> {
        // SAFETY: found under the lock, which is held during the call.
        self.find(hash, eq)
            .map(|node| unsafe { node::add_locked(node) })
    }

    /// Ends the pending delay of the key for which `eq` holds; true if there was one.
    pub(crate) fn cancel_delay(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> bool {
        // SAFETY: found under the lock, which is held during the call.
        self.find(hash, eq)
            .is_some_and(|node| unsafe { node.get() }.delay.cancel())
    }

    /// Whether a delay is pending of the key for which `eq` holds.
    pub(crate) fn is_delayed(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> bool {
        // SAFETY: found under the lock, which is held during the call.
        self.find(hash, eq)
            .is_some_and(|node| unsafe { node.get() }.delay.serves())
    }

    /// Pins the key for which `eq` holds, if it is interned.
    pub(crate) fn pin(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Pin<K>> {
        // SAFETY: found under the lock, which is held during the call.
        self.find(hash, eq).map(|node| unsafe { Pin::new(node) })
    }

    /// Interns a key that is not there as queued.
    #[inline]
    pub(crate) fn insert_queued(&mut self, hash: u64, key: K) -> (Queued<K>, Swept<K>) {
        let swept = self.make_room();
        let node = self.insert(hash, key, Phase::Queued, false);
        (Queued::of_new(node), swept)
    }

    /// Interns a key that is not there as idle, and pins it.
    pub(crate) fn insert_pinned(&mut self, hash: u64, key: K, closed: bool) -> (Pin<K>, Swept<K>) {
        let swept = self.make_room();
        let node = self.insert(hash, key, Phase::Idle, closed);
        // SAFETY: just interned, under the lock.
        (unsafe { Pin::new(node) }, swept)
    }

    #[inline]
    fn insert(&mut self, hash: u64, key: K, phase: Phase, closed: bool) -> NodeRef<K> {
        let hash = ShortHash::of(hash);
        let store = &mut **self.store;
        store.ghosts.came(hash);
        let node = store.slab.insert(Node {
            state: KeyState::new(hash, phase, closed),
            delay: Delay::new(closed),
            link: Link::new(),
            key,
        });
        // SAFETY: just inserted.
        let index = unsafe { store.slab.index_of(node) };
        store.table.insert(hash, index, &store.slab);
        self.earn(CREDIT_PER_NEW_KEY);
        node
    }
}

#[cfg(test)]
mod tests;
