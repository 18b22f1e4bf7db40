//! The interned keys: a sharded table from hash to node. Each shard has the slab of its nodes, and
//! the state of its sweeps.
//!
//! # Ground rules
//!
//! * One lock per shard guards its table, its slab and the state of its sweeps; [`Shard`] gives
//!   access to all three. No thread locks two shards at the same time, nor the timer while it holds one.
//! * The only user code that runs under the lock is `K: Eq`, during a lookup, before any change. No
//!   thread calls the queue under the lock. Keys are dropped after unlocking.
//! * Every key that is not idle is in the table, so a walk over the shards finds it.
//! * [`sweep`] says when idle nodes leave a shard.

pub(crate) mod carried;
pub(crate) mod chunk;
pub(crate) mod delay;
mod ghosts;
pub(crate) mod hash;
pub(crate) mod hasher;
pub(crate) mod link;
pub(crate) mod node;
pub(crate) mod rule;
pub(crate) mod seat;
pub(crate) mod slab;
pub(crate) mod state;
mod sweep;
pub(crate) mod table;
pub(crate) mod times;
pub(crate) mod visit;

use std::mem::needs_drop;

use crossbeam_utils::CachePadded;
pub(crate) use sweep::Swept;
use sweep::{CLEAN, FEWEST_SWEPT, Next, RESIDENTS};

use crate::keys::ghosts::Ghosts;
use crate::keys::hash::ShortHash;
use crate::keys::node::{Added, Locked, Node, NodeRef, Pin, Queued};
use crate::keys::slab::{NodeIndex, SideData, Slab};
use crate::keys::state::State;
use crate::keys::table::{Table, Tables};
use crate::sync::atomic::AtomicUsize;
use crate::sync::{Mutex, SpinLock, SpinLockGuard, assert_locks_held};

pub(crate) struct Keys<K, V> {
    /// Each is guarded by the lock of the same shard below, and has the indices of the nodes there.
    tables: Tables,
    /// The locks are on separate cache lines from the values, so a waiting thread does not slow the
    /// holder down.
    shards: Box<[Lock<K, V>]>,
    /// The number of bits by which a hash is shifted to get the index of its shard.
    shift: u32,
    /// What adders have noted for the next look: `CLEAN`, `CROWDED` or `BURST`.
    litter: AtomicUsize,
    /// Locked during a look that makes a part of a pass.
    next: Mutex<Next>,
    /// A shard's part of [`RESIDENTS`].
    residents: usize,
}

/// A shard's nodes, and the state of its sweeps. The fields that an add reads come first, on one
/// cache line.
#[repr(C)]
struct Store<K, V> {
    /// The number of nodes at which an adder of a new key sweeps, or lets the shard grow.
    limit: usize,
    slab: Slab<K, V>,
    /// Nodes interned since the last sweep.
    fresh: usize,
    ghosts: Ghosts,
    sweeps: u64,
}

type Lock<K, V> = SpinLock<CachePadded<Store<K, V>>>;

type StoreGuard<'a, K, V> = SpinLockGuard<'a, CachePadded<Store<K, V>>>;

/// One shard, locked.
pub(crate) struct Shard<'a, K, V> {
    keys: &'a Keys<K, V>,
    table: Table<'a>,
    store: StoreGuard<'a, K, V>,
}

/// A locked shard in two words, which a call passes in registers.
pub(crate) struct PackedShard<'a, K, V> {
    index: usize,
    store: StoreGuard<'a, K, V>,
}

impl<K, V> Keys<K, V> {
    /// `shards` must be a power of two above one. The nodes have `side_data` beside them.
    pub(crate) fn new(shards: usize, side_data: SideData) -> Self {
        let residents = (RESIDENTS / shards).max(1);
        let store = |shard: usize| Store {
            slab: Slab::new(shard as u32, side_data),
            limit: residents.max(FEWEST_SWEPT),
            fresh: 0,
            ghosts: Ghosts::default(),
            sweeps: 0,
        };
        Keys {
            tables: Tables::new(shards),
            shards: (0..shards)
                .map(|shard| SpinLock::new(CachePadded::new(store(shard))))
                .collect(),
            shift: u64::BITS - shards.trailing_zeros(),
            litter: AtomicUsize::new(CLEAN),
            next: Mutex::new(Next::default()),
            residents,
        }
    }

    /// Returns the fewest nodes at which an adder sweeps a shard.
    fn fewest_swept(&self) -> usize {
        self.residents.max(FEWEST_SWEPT)
    }

    /// Locks the shard of keys with this hash.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> Shard<'_, K, V> {
        let (index, lock) = self.shard_of(hash);
        self.locked(index, lock.lock())
    }

    /// Locks the shard of a pinned key.
    pub(crate) fn lock_of(&self, pin: &Pin<K>) -> Shard<'_, K, V> {
        // SAFETY: the key is pinned, so its node is interned.
        self.shard(unsafe { Slab::<K, V>::shard_of(pin.node()) })
    }

    /// Like [`lock`](Self::lock), unless another thread has locked the shard.
    #[inline]
    pub(crate) fn try_lock(&self, hash: u64) -> Option<Shard<'_, K, V>> {
        let (index, lock) = self.shard_of(hash);
        Some(self.locked(index, lock.try_lock()?))
    }

    /// Returns the index and the lock of a shard, by the uppermost bits of the hash, which are not
    /// part of a short hash.
    #[inline]
    fn shard_of(&self, hash: u64) -> (usize, &Lock<K, V>) {
        let index = (hash >> self.shift) as usize;
        // SAFETY: the hash is shifted to as many bits as the greatest index has.
        (index, unsafe { self.shards.get_unchecked(index) })
    }

    #[inline]
    pub(crate) fn shard(&self, index: usize) -> Shard<'_, K, V> {
        self.locked(index, self.shards[index].lock())
    }

    /// Returns the shard, unless another thread has locked it.
    fn try_shard(&self, index: usize) -> Option<Shard<'_, K, V>> {
        let store = self.shards[index].try_lock()?;
        Some(self.locked(index, store))
    }

    /// Returns the shard that [`Shard::pack`] was called with.
    #[inline]
    pub(crate) fn unpack<'a>(&'a self, packed: PackedShard<'a, K, V>) -> Shard<'a, K, V> {
        self.locked(packed.index, packed.store)
    }

    #[inline]
    fn locked<'a>(&'a self, index: usize, store: StoreGuard<'a, K, V>) -> Shard<'a, K, V> {
        Shard {
            keys: self,
            // SAFETY: the guard is that of this shard, so it is locked while the `Shard` exists.
            table: unsafe { Table::new(&self.tables, index) },
            store,
        }
    }

    /// Locks one shard after the other.
    pub(crate) fn shards(&self) -> impl Iterator<Item = Shard<'_, K, V>> {
        (0..self.shards.len()).map(|index| self.shard(index))
    }

    /// Removes every key that is idle and unpinned, and frees memory.
    pub(crate) fn shrink(&self) {
        for mut shard in self.shards() {
            let swept = shard.sweep(true);
            shard.shrink_table(0);
            let store = &mut **shard.store;
            store.slab.shrink();
            store.ghosts = Ghosts::default();
            store.limit = self.fewest_swept();
            store.fresh = 0;
            drop(shard);
            drop(swept);
        }
    }
}

impl<K, V> Drop for Keys<K, V> {
    fn drop(&mut self) {
        for mut shard in self.shards() {
            // SAFETY: no token is used any more.
            let swept = unsafe { shard.remove_if(|_| true) };
            drop(shard);
            drop(swept);
        }
    }
}

/// # Safety
///
/// The index is that of a node in the slab, whose shard is locked.
#[inline]
unsafe fn hash_of<K, V>(slab: &Slab<K, V>, index: NodeIndex) -> ShortHash {
    // SAFETY: by the caller's promise.
    unsafe { slab.node(index).get() }.state.hash()
}

impl<'a, K, V> Shard<'a, K, V> {
    #[inline]
    pub(crate) fn pack(self) -> PackedShard<'a, K, V> {
        PackedShard {
            index: self.table.shard(),
            store: self.store,
        }
    }
}

impl<K, V> Shard<'_, K, V> {
    #[inline]
    fn node(&self, index: NodeIndex) -> NodeRef<K> {
        // SAFETY: a shard's table contains only indices of nodes in its slab.
        unsafe { self.store.slab.node(index) }
    }

    #[inline]
    fn locked(&self, index: NodeIndex) -> Locked<'_, K> {
        // SAFETY: in the table of this shard, which stays locked while it is borrowed.
        unsafe { Locked::new(self.node(index)) }
    }

    /// Whether comparing two keys takes no longer than comparing their hashes first.
    const SMALL: bool = size_of::<K>() <= size_of::<u64>() && !needs_drop::<K>();

    /// Returns the node of the key for which `eq` holds, if it is interned.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, mut eq: impl FnMut(&K) -> bool) -> Option<Locked<'_, K>> {
        // `eq` is user code, under the one lock that it may run under.
        assert_locks_held(1);
        let hash = ShortHash::of(hash);
        let index = self.table.find(hash, |index| {
            let locked = self.locked(index);
            let node = locked.get();
            (Self::SMALL || node.state.hash() == hash) && eq(&node.key)
        });
        index.map(|index| self.locked(index))
    }

    /// Adds the key for which `eq` holds, if it is interned.
    #[inline(always)]
    pub(crate) fn add(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Added<K>> {
        self.find(hash, eq).map(|found| found.add())
    }

    /// Calls `f` with the node of the key for which `eq` holds, if it is interned.
    pub(crate) fn read<T>(
        &self,
        hash: u64,
        eq: impl FnMut(&K) -> bool,
        f: impl FnOnce(&Node<K>) -> T,
    ) -> Option<T> {
        self.find(hash, eq).map(|found| f(found.get()))
    }

    /// Pins the key for which `eq` holds, if it is interned.
    pub(crate) fn pin(&self, hash: u64, eq: impl FnMut(&K) -> bool) -> Option<Pin<K>> {
        self.find(hash, eq).map(|found| found.pin())
    }

    /// Interns a new key as queued.
    #[inline]
    pub(crate) fn insert_queued(
        &mut self,
        hash: u64,
        key: K,
    ) -> (Queued<K>, Option<Box<Swept<K, V>>>) {
        let (node, swept) = self.insert(hash, key, State::Queued, false);
        (Queued::of_new(node), swept)
    }

    /// Interns a new key as idle, and pins it.
    pub(crate) fn insert_pinned(
        &mut self,
        hash: u64,
        key: K,
        closed: bool,
    ) -> (Pin<K>, Option<Box<Swept<K, V>>>) {
        let (node, swept) = self.insert(hash, key, State::Idle, closed);
        // SAFETY: just interned, under the lock.
        (unsafe { Locked::new(node) }.pin(), swept)
    }

    fn shrink_table(&mut self, len: usize) {
        let slab = &self.store.slab;
        self.table.shrink_to(len, |index| {
            // SAFETY: a shard's table contains only indices of nodes in its slab.
            unsafe { hash_of(slab, index) }
        });
    }

    #[inline]
    fn insert(
        &mut self,
        hash: u64,
        key: K,
        phase: State,
        closed: bool,
    ) -> (NodeRef<K>, Option<Box<Swept<K, V>>>) {
        let swept = self.make_room();
        let hash = ShortHash::of(hash);
        let store = &mut **self.store;
        store.ghosts.on_insert(hash);
        let node = store.slab.insert(Node::new(hash, phase, closed, key));
        // SAFETY: just inserted.
        let index = unsafe { store.slab.index_of(node) };
        self.table.insert(hash, index, |index| {
            // SAFETY: a shard's table contains only indices of nodes in its slab.
            unsafe { hash_of(&store.slab, index) }
        });
        self.note_interned();
        (node, swept)
    }
}

#[cfg(test)]
mod tests;
