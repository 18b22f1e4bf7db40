//! Sweeping: how idle nodes are removed.
//!
//! `done` leaves an idle node in the table, so the next add of the key is one lookup. Idle nodes
//! are removed in bulk, by a thread that holds the lock anyway or has nothing else to do:
//!
//! * An adder of a new key sweeps its shard when the shard has doubled since its last sweep, a
//!   constant cost per key. (If most of a sample of the nodes is busy, the adder lets the shard
//!   double again.)
//! * A getter that found the queue empty does *looks* until a key comes or nothing is due, and the
//!   timer's thread does one before it sleeps. A look makes a part of a *pass* over all shards if
//!   one is due: it visits at most [`PORTION`] nodes and one shard more, and locks the shards that
//!   have nothing to sweep. It waits for no lock (F2): a shard that another thread has locked is
//!   left to the next pass, which is due by time.
//!
//! # When a pass is due
//!
//! No pass is due while no shard holds more than its part of [`RESIDENTS`] nodes, the fixed cache
//! of C10; a look then reads one word. Otherwise a pass is due
//!
//! * when at least half of the nodes of a shard were interned since its last sweep, so a burst is
//!   removed as soon as it has been processed;
//! * or when [`REST`] plus [`REST_PER_NODE`] for each node have passed since the last pass. A
//!   waiting thread wakes up for it. So nodes that were busy, pinned or spared at the last pass are
//!   removed in a bounded time, and passes take at most a few percent of one processor. [`REST`]
//!   doubles with each pass that changed nothing, at most [`MOST_DOUBLINGS`] times.
//!
//! A sweep spares a key that recurred since the previous sweep, so a working set that recurs within
//! a rest stays interned. If half of a shard's new keys were swept before, the shard grows instead
//! ([`super::ghosts`]), except at a pass that is due by time.

use super::{Keys, Shard, Store};
use crate::keys::carried::Carried;
use crate::keys::node::Node;
use crate::keys::state::{Residence, State};
use crate::sync::assert_unlocked;
use crate::sync::atomic::Ordering;
use crate::sync::catch_panic::drop_caught;

/// The number of nodes that are always kept, shared equally among the shards; one each if there are
/// more shards.
pub(super) const RESIDENTS: usize = 8192;

/// With fewer nodes than this a shard is not swept by its adders, and does not call for a pass at
/// once: of many shards, each has few nodes, and some always have more than their part.
pub(super) const FEWEST_SWEPT: usize = 32;

/// Before it sweeps, an adder samples this many nodes, or a few more.
const SAMPLE: usize = 24;

/// The time between two passes, in nanoseconds, what each node adds to it, and how often it is
/// doubled at most.
pub(super) const REST: u64 = 100_000_000;
pub(super) const REST_PER_NODE: u64 = 500;
pub(super) const MOST_DOUBLINGS: u32 = 7;

/// A look goes on to the next shard until it has visited this many nodes.
const PORTION: u64 = 1024;

/// Nothing is to be swept: no shard holds more nodes than its part of the fixed cache.
pub(super) const CLEAN: usize = 0;
/// A shard does: a pass is due by time.
const CROWDED: usize = 1;
/// Many of a shard's nodes are new: a pass is due now.
const BURST: usize = 2;

/// When idle getters sweep.
#[derive(Default)]
pub(super) struct Next {
    /// When the next pass is due, in nanoseconds of the queue's clock.
    at: u64,
    /// The number of successive passes that changed nothing.
    idle_passes: u32,
    /// The pass that is under way, if one is.
    pass: Option<Pass>,
}

/// A pass that has stopped between two shards.
#[derive(Default)]
struct Pass {
    /// Whether it was due by time.
    in_time: bool,
    /// The shard to go on with.
    shard: usize,
    /// The nodes it has visited, and those it has removed or spared.
    nodes: u64,
    changed: usize,
}

/// Keys that a sweep removed, and what they carried, dropped once no lock is held.
#[must_use]
pub(crate) struct Swept<K, V> {
    /// Keys whose drop does nothing are left out.
    keys: Vec<K>,
    /// What the keys carried, if that is something.
    carried: Vec<Carried<V>>,
    /// The number of nodes that the sweep removed, or spared because they recurred.
    changed: usize,
}

impl<K, V> Swept<K, V> {
    fn none() -> Self {
        Swept {
            keys: Vec::new(),
            carried: Vec::new(),
            changed: 0,
        }
    }

    fn append_to(mut self, other: &mut Self) {
        other.keys.append(&mut self.keys);
        other.carried.append(&mut self.carried);
    }
}

impl<K, V> Drop for Swept<K, V> {
    /// If the `Drop` of one panics, the panic hook reports it, the others are dropped all the
    /// same, and the caller, which may be adding another key, continues.
    fn drop(&mut self) {
        if !self.keys.is_empty() || !self.carried.is_empty() {
            assert_unlocked();
        }
        self.keys.drain(..).for_each(drop_caught);
        self.carried.drain(..).for_each(drop_caught);
    }
}

impl<K, V> Keys<K, V> {
    /// Notes litter. Called under the lock of the shard that holds it.
    #[cold]
    fn note(&self, litter: usize) {
        // Ordering: Relaxed, here and below; the shards' locks guard the data. A pass that clears
        // the word tries to lock each shard afterwards: it finds this shard's litter, or finds the
        // shard locked and notes litter itself, or this thread sees that it has cleared the word.
        if self.litter.load(Ordering::Relaxed) < litter {
            self.litter.fetch_max(litter, Ordering::Relaxed);
        }
    }

    /// Makes a part of a pass over the shards if one is due; `now` reads the queue's clock. Returns
    /// whether the pass is still under way. Called by threads and tasks with nothing to do, which
    /// check for new keys before they call again.
    #[inline]
    pub(crate) fn look(&self, now: impl Fn() -> u64) -> bool {
        // Ordering: Relaxed; a hint, see `note`.
        let litter = self.litter.load(Ordering::Relaxed);
        litter != CLEAN && self.look_at_litter(litter == BURST, now)
    }

    /// Returns when a thread that waits should look again, if there may be anything to sweep: at
    /// once if a pass has stopped half-way; otherwise when the next pass is due by time. If another
    /// thread is in a look now, which may never wait, that is [`REST`] from now.
    pub(crate) fn next_look(&self, now: impl Fn() -> u64) -> Option<u64> {
        let Some(next) = self.next.try_lock() else {
            return Some(now().saturating_add(REST));
        };
        // Ordering: Relaxed; the mutex is held, so what the last pass wrote is seen. A later note
        // is a hint, see `note`.
        let litter = self.litter.load(Ordering::Relaxed);
        (litter != CLEAN).then_some(match next.pass {
            Some(_) => 0,
            None => next.at,
        })
    }

    #[cold]
    fn look_at_litter(&self, burst: bool, now: impl Fn() -> u64) -> bool {
        // Dropped last, when nothing is locked any more.
        let mut swept = Swept::none();
        // One thread at a time works on the pass, and others do not wait for it.
        let Some(mut next) = self.next.try_lock() else {
            return false;
        };
        let mut pass = match next.pass.take() {
            Some(pass) => pass,
            None if now() >= next.at => Pass {
                in_time: true,
                ..Pass::default()
            },
            None if burst => Pass::default(),
            None => return false,
        };
        let enough = pass.nodes + PORTION;
        while pass.shard < self.shards.len() && pass.nodes < enough {
            match self.try_shard(pass.shard) {
                Some(shard) => pass.sweep(shard).append_to(&mut swept),
                // The next pass is not put off: it may find the shard unlocked, and sweep it.
                None => pass.changed += 1,
            }
            pass.shard += 1;
        }
        if pass.shard < self.shards.len() {
            next.pass = Some(pass);
            return true;
        }
        // Ordering: Relaxed; see `note`.
        self.litter.store(CLEAN, Ordering::Relaxed);
        for shard in 0..self.shards.len() {
            let shard = self.try_shard(shard);
            if shard.as_ref().is_none_or(Shard::is_crowded) {
                self.note(CROWDED);
            }
        }
        next.idle_passes = match pass.changed {
            0 => (next.idle_passes + 1).min(MOST_DOUBLINGS),
            _ => 0,
        };
        let rest = (REST << next.idle_passes) + pass.nodes * REST_PER_NODE;
        next.at = now().saturating_add(rest);
        false
    }
}

impl Pass {
    /// Sweeps one shard.
    fn sweep<K, V>(&mut self, mut shard: Shard<'_, K, V>) -> Swept<K, V> {
        if !shard.is_crowded() {
            return Swept::none();
        }
        self.nodes += shard.table.len() as u64;
        let swept = if self.in_time {
            shard.sweep(false)
        } else {
            shard.sweep_unless_returning()
        };
        self.changed += swept.changed;
        shard.set_limit(4);
        swept
    }
}

impl<K, V> Shard<'_, K, V> {
    /// Returns whether the shard holds more nodes than its part of the fixed cache.
    fn is_crowded(&self) -> bool {
        self.table.len() > self.keys.residents
    }

    /// Notes that a key has been interned.
    #[inline]
    pub(super) fn note_interned(&mut self) {
        self.store.fresh += 1;
        if self.is_crowded() {
            let len = self.table.len();
            let burst = 2 * self.store.fresh >= len && len > FEWEST_SWEPT;
            self.keys.note(if burst { BURST } else { CROWDED });
        }
    }

    /// Sweeps before an insertion that would double the shard.
    #[inline]
    pub(super) fn make_room(&mut self) -> Option<Box<Swept<K, V>>> {
        (self.table.len() >= self.store.limit).then(|| self.make_room_slow())
    }

    #[cold]
    fn make_room_slow(&mut self) -> Box<Swept<K, V>> {
        if !self.looks_idle() {
            self.store.limit *= 2;
            return Box::new(Swept::none());
        }
        let swept = self.sweep_unless_returning();
        self.set_limit(16);
        Box::new(swept)
    }

    /// Sweeps, unless the shard should grow for a working set that was swept before.
    fn sweep_unless_returning(&mut self) -> Swept<K, V> {
        if self.store.ghosts.should_grow() {
            Swept::none()
        } else {
            self.sweep(false)
        }
    }

    /// Returns whether more than a quarter of a sample of the nodes is idle: in a growing backlog,
    /// all are busy. The table's places are in the order of the hashes, so the first ones are a
    /// fair sample.
    fn looks_idle(&self) -> bool {
        let (mut seen, mut idle) = (0, 0);
        let mut place = Some(0);
        while let (Some(from), true) = (place, seen < SAMPLE) {
            place = self.visit(from, SAMPLE, |node| {
                idle += usize::from(node.phase() == State::Idle);
                seen += 1;
            });
        }
        4 * idle > seen
    }

    /// Sets the limit for the next sweep by an adder, after a sweep or the decision against one,
    /// and shrinks a table with room for more than `spare` times its nodes. (Removed nodes leave
    /// marks, for which a table may double. An adder lets it, or it would double and shrink in
    /// turns.)
    fn set_limit(&mut self, spare: usize) {
        let nodes = self.table.len();
        let room = nodes.max(self.keys.residents);
        if self.table.capacity() > spare * room {
            self.shrink_table(2 * nodes);
        }
        self.store.limit = (2 * nodes).max(self.keys.fewest_swept());
        self.store.fresh = 0;
    }

    /// Removes idle, unpinned nodes, with `forget` also those that recurred.
    pub(super) fn sweep(&mut self, forget: bool) -> Swept<K, V> {
        self.store.sweeps += 1;
        let mut spared = 0;
        let leaves = |node: &Node<K>| {
            // What a shut-down has left is forgotten only on demand.
            if !forget && (node.state.has_left() || node.delay.dropped().is_some()) {
                return false;
            }
            let residence = node.state.residence(forget);
            spared += usize::from(residence == Residence::Spared);
            residence == Residence::Leave
        };
        // SAFETY: `Leave` means that no other thread can reach the node any more.
        let mut swept = unsafe { self.remove_if(leaves) };
        swept.changed += spared;
        // A spare chunk in each of many shards would take more than all residents.
        let has_spare = self.keys.residents >= FEWEST_SWEPT;
        self.store.slab.free_empty(usize::from(has_spare));
        swept
    }

    /// Removes the nodes for which `leaves` holds.
    ///
    /// # Safety
    ///
    /// No other thread can reach them any more.
    pub(super) unsafe fn remove_if(
        &mut self,
        mut leaves: impl FnMut(&Node<K>) -> bool,
    ) -> Swept<K, V> {
        let mut swept = Swept::none();
        let Store { slab, ghosts, .. } = &mut **self.store;
        self.table.remove_if(|index| {
            // SAFETY: in the table of a shard whose lock is held, and so in its slab.
            let node = unsafe { slab.node(index) };
            // SAFETY: as above.
            let found = unsafe { node.get() };
            if !leaves(found) {
                return false;
            }
            ghosts.on_evict(found.state.hash());
            swept.changed += 1;
            // SAFETY: by the caller's promise, and the table forgets it now.
            let (key, carried) = unsafe { slab.remove(node) };
            if std::mem::needs_drop::<K>() {
                swept.keys.push(key);
            }
            if let Some(mut carried) = carried
                && !carried.is_empty()
            {
                swept.carried.push(carried);
            }
            true
        });
        swept
    }
}
