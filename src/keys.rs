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
//! # Sweeping (C10)
//!
//! `done` leaves an idle node where it is: for a recurring key the next add is then one lookup.
//! Idle nodes are taken out in bulk, by whoever has the lock anyway or has nothing else to do:
//!
//! * an adder of a new key, when the shard has doubled since its last sweep: a stream of unique
//!   keys pays for its own removal, a constant amount per key. (If a sample of the nodes is busy
//!   it lets the shard double again; what is idle then is at most a quarter, or nearly.)
//! * a consumer that found the queue empty, when a shard has run up enough *credit*: a burst is
//!   cleared away as soon as it has been worked off.
//!
//! Credit is what keeps idle sweeps from costing more than the work that made them due. A sweep
//! of `n` nodes wants `4 n` credit. It is earned
//!
//! * by a new key: 8;
//! * by a key that an adder's sweep found busy, for it will have to be visited once more: 8;
//! * by a consumer that finds nothing, for each shard whose last idle sweep left many busy keys
//!   behind: 16. That is what an empty look may cost while a large batch is being worked on;
//! * by a consumer that goes to sleep: 1, for one of the shards in turn, so that keys that
//!   recurred and never will again go in the end, too.
//!
//! A sweep spares keys that recurred since the one before. A shard that sees half of its new
//! keys return after they were swept keeps them and grows instead ([`crate::ghosts`]). And the
//! first [`RESIDENTS`] nodes, shared out among the shards, are not swept at all but by `shrink`:
//! that is the fixed cache of C10.

use crossbeam_utils::CachePadded;

use crate::caught::caught;
use crate::ghosts::Ghosts;
use crate::node::{self, Added, Node, NodeRef, Pin, Queued};
use crate::overflow::Link;
use crate::slab::{NodeIndex, Slab};
use crate::state::{KeyState, Phase, Residence};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Locked, LockedGuard, prefetch};
use crate::table::{Hashes, ShortHash, Table};
use crate::timer::Delay;

/// Up to this many nodes are kept without looking, as many in each shard.
const RESIDENTS: usize = 8192;
/// But no fewer than this in a shard.
const FEWEST_RESIDENTS: usize = 32;

/// An adder looks at so many nodes first, or a few more, and sweeps if over a quarter are idle.
const SAMPLE: usize = 24;

const CREDIT_PER_NEW_KEY: usize = 8;
const CREDIT_PER_NODE_SWEPT: usize = 4;
const CREDIT_PER_EMPTY_LOOK: usize = 16;
/// Empty looks are credited in portions of this size.
const LOOKS_PER_CREDIT: usize = 64;
/// The sleeps of consumers are credited to the shards in turn, in portions of this size.
const SLEEPS_PER_CREDIT: usize = 1024;

pub(crate) struct Keys<K> {
    shards: Box<[CachePadded<Locked<Store<K>>>]>,
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

/// A shard's nodes, and the account of its sweeps.
struct Store<K> {
    /// All indices in it are those of nodes of the slab.
    table: Table<NodeIndex>,
    slab: Slab<K>,
    /// An adder of a new key sweeps, or lets the shard grow, when it has this many nodes.
    limit: usize,
    credit: usize,
    ghosts: Ghosts,
    sweeps: u64,
}

/// One shard, locked.
pub(crate) struct Shard<'a, K> {
    keys: &'a Keys<K>,
    index: usize,
    store: LockedGuard<'a, Store<K>>,
}

/// Keys that a sweep took out, to be dropped once no lock is held.
#[must_use]
pub(crate) struct Swept<K>(Vec<K>);

impl<K> Swept<K> {
    /// Drops the keys one by one. A key whose `Drop` panics takes nobody with it: the panic hook
    /// has reported it, and the caller, who may work for another key altogether, goes on.
    fn bury(&mut self) {
        for key in self.0.drain(..) {
            let _ = caught(|| drop(key));
        }
    }
}

impl<K> Drop for Swept<K> {
    fn drop(&mut self) {
        self.bury();
    }
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
                .map(|_| CachePadded::new(Locked::new(store())))
                .collect(),
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
        (hash >> (u64::BITS - self.shards.len().trailing_zeros())) as usize
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

    /// Sweeps the shards that have the credit for it. Called by consumers with nothing to do.
    #[inline]
    pub(crate) fn sweep_if_due(&self) {
        // Ordering: Relaxed; a hint, as below.
        if self.unsettled.load(Ordering::Relaxed) != 0 {
            self.note_look();
        }
        // Ordering: Relaxed; a hint, what it is about is guarded by the shards' locks.
        if self.due.load(Ordering::Relaxed) != 0 {
            self.sweep_due();
        }
    }

    #[cold]
    fn sweep_due(&self) {
        // Ordering: Relaxed; as above. A bit that is set meanwhile is left for the next time.
        let due = self.due.swap(0, Ordering::Relaxed);
        for index in 0..self.shards.len() {
            if due & bit(index) != 0 {
                let mut shard = self.shard(index);
                let swept = shard.sweep_with_credit();
                drop(shard);
                drop(swept);
            }
        }
    }

    /// Notes that a consumer found nothing while a shard is unsettled.
    #[cold]
    fn note_look(&self) {
        // Ordering: Relaxed; a count.
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        if looks % LOOKS_PER_CREDIT == LOOKS_PER_CREDIT - 1 {
            // Ordering: Relaxed; a hint.
            let unsettled = self.unsettled.load(Ordering::Relaxed);
            for index in 0..self.shards.len() {
                if unsettled & bit(index) != 0 {
                    self.shard(index)
                        .earn(LOOKS_PER_CREDIT * CREDIT_PER_EMPTY_LOOK);
                }
            }
        }
    }

    /// Notes that a consumer goes to sleep.
    pub(crate) fn note_sleep(&self) {
        // Ordering: Relaxed; a count.
        let sleeps = self.sleeps.fetch_add(1, Ordering::Relaxed);
        if sleeps % SLEEPS_PER_CREDIT == SLEEPS_PER_CREDIT - 1 {
            let index = sleeps / SLEEPS_PER_CREDIT % self.shards.len();
            self.shard(index).earn(SLEEPS_PER_CREDIT);
        }
    }

    /// Takes out every key that is idle and unpinned, and gives memory back.
    pub(crate) fn shrink(&self) {
        for mut shard in self.shards() {
            let swept = shard.sweep(true).0;
            let store = &mut *shard.store;
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

fn bit(shard: usize) -> u64 {
    1 << (shard % 64)
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
        let store = &mut *self.store;
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

    /// Sweeps before an insertion that would double the shard.
    #[inline]
    fn make_room(&mut self) -> Swept<K> {
        if self.store.table.len() < self.store.limit {
            return Swept(Vec::new());
        }
        self.make_room_slow()
    }

    #[cold]
    fn make_room_slow(&mut self) -> Swept<K> {
        if !self.looks_idle() {
            self.store.limit *= 2;
            return Swept(Vec::new());
        }
        let Some((swept, busy)) = self.sweep_or_grow() else {
            return Swept(Vec::new());
        };
        self.earn(busy * CREDIT_PER_NEW_KEY);
        swept
    }

    /// Whether a sweep would find something, by a sample: a backlog that grows is all busy. The
    /// table's places are in the order of the hashes, so its first are as good as any.
    fn looks_idle(&self) -> bool {
        let (mut seen, mut idle) = (0, 0);
        let mut place = Some(0);
        while let (Some(from), true) = (place, seen < SAMPLE) {
            place = self.visit(from, SAMPLE, |node| {
                // SAFETY: in the table of a shard whose lock is held.
                idle += usize::from(unsafe { node.get() }.state.phase() == Phase::Idle);
                seen += 1;
            });
        }
        4 * idle > seen
    }

    /// Sweeps on behalf of an idle consumer, if the credit is still there.
    fn sweep_with_credit(&mut self) -> Swept<K> {
        let nodes = self.store.table.len();
        let credit = self.store.credit;
        if credit < nodes * CREDIT_PER_NODE_SWEPT || nodes <= self.keys.residents {
            return Swept(Vec::new());
        }
        let Some((swept, busy)) = self.sweep_or_grow() else {
            return Swept(Vec::new());
        };
        self.note_busy(busy);
        swept
    }

    /// Sweeps, and answers the number of busy nodes, too; or none, if the keys are a working set
    /// and the shard is to hold them. Either way this is settled until as many new keys have come.
    fn sweep_or_grow(&mut self) -> Option<(Swept<K>, usize)> {
        let swept = if self.store.ghosts.verdict() {
            None
        } else {
            Some(self.sweep(false))
        };
        self.settle_account();
        swept
    }

    /// After a sweep, or the decision against one.
    fn settle_account(&mut self) {
        let nodes = self.store.table.len();
        let room = nodes.max(self.keys.residents);
        if self.store.table.capacity() > 4 * room {
            let store = &mut *self.store;
            store.table.shrink_to(2 * nodes, &store.slab);
        }
        let store = &mut *self.store;
        store.limit = (2 * nodes).max(self.keys.residents);
        store.credit = 0;
    }

    /// Notes how many busy keys an idle sweep has left.
    fn note_busy(&self, busy: usize) {
        let bit = bit(self.index);
        // Ordering: Relaxed; a hint, see `sweep_if_due`.
        if busy > self.keys.residents {
            self.keys.unsettled.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.keys.unsettled.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    #[inline]
    fn earn(&mut self, credit: usize) {
        let nodes = self.store.table.len();
        let store = &mut *self.store;
        store.credit = store.credit.saturating_add(credit);
        if store.credit >= nodes * CREDIT_PER_NODE_SWEPT && nodes > self.keys.residents {
            self.call_for_sweep();
        }
    }

    fn call_for_sweep(&self) {
        let bit = bit(self.index);
        // Ordering: Relaxed; a hint, see `sweep_if_due`.
        if self.keys.due.load(Ordering::Relaxed) & bit == 0 {
            self.keys.due.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes out idle, unpinned nodes, with `forget` also those that recurred. Answers their
    /// keys and the number of busy nodes.
    fn sweep(&mut self, forget: bool) -> (Swept<K>, usize) {
        let mut swept = Swept(Vec::new());
        let mut busy = 0;
        self.store.sweeps += 1;
        let Store {
            table,
            slab,
            ghosts,
            ..
        } = &mut *self.store;
        table.remove_if(slab, |slab, index| {
            // SAFETY: in the table of a shard whose lock is held, so of its slab.
            let node = unsafe { slab.node(index) };
            // SAFETY: as above.
            let state = unsafe { &node.get().state };
            match state.residence(forget) {
                Residence::Stay => None,
                Residence::Busy => {
                    busy += 1;
                    None
                }
                Residence::Leave => {
                    let hash = state.hash();
                    ghosts.went(hash);
                    // SAFETY: `Leave` says that nobody else can reach the node any more, and
                    // here it leaves the table; it is of this slab, as all in this table.
                    let key = unsafe { slab.remove(node) };
                    if std::mem::needs_drop::<K>() {
                        swept.0.push(key);
                    }
                    Some(hash)
                }
            }
        });
        (swept, busy)
    }

    /// Takes out every node, whatever its state: for the queue's end.
    fn take_all(&mut self) -> Swept<K> {
        let mut swept = Swept(Vec::new());
        let Store { table, slab, .. } = &mut *self.store;
        table.remove_if(slab, |slab, index| {
            // SAFETY: in the shard's table, so of its slab. Called from `Keys::drop` alone, so no token is
            // left that would be used.
            let (node, hash) = unsafe {
                let node = slab.node(index);
                (node, node.get().state.hash())
            };
            // SAFETY: as above.
            swept.0.push(unsafe { slab.remove(node) });
            Some(hash)
        });
        swept
    }
}

#[cfg(test)]
mod tests;
mod visit;
