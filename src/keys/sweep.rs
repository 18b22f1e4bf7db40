//! Sweeping: how idle nodes leave.
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

use super::{Keys, Shard, Store};
use crate::caught::caught;
use crate::state::{Phase, Residence};
use crate::sync::atomic::Ordering;

/// Up to this many nodes are kept without looking, as many in each shard.
pub(super) const RESIDENTS: usize = 8192;
/// But no fewer than this in a shard.
pub(super) const FEWEST_RESIDENTS: usize = 32;

/// An adder looks at so many nodes first, or a few more, and sweeps if over a quarter are idle.
const SAMPLE: usize = 24;

pub(super) const CREDIT_PER_NEW_KEY: usize = 8;
pub(super) const CREDIT_PER_NODE_SWEPT: usize = 4;
const CREDIT_PER_EMPTY_LOOK: usize = 16;
/// Empty looks are credited in portions of this size.
const LOOKS_PER_CREDIT: usize = 64;
/// The sleeps of consumers are credited to the shards in turn, in portions of this size.
pub(super) const SLEEPS_PER_CREDIT: usize = 1024;

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
}

fn bit(shard: usize) -> u64 {
    1 << (shard % 64)
}

impl<K> Shard<'_, K> {
    /// Sweeps before an insertion that would double the shard.
    #[inline]
    pub(super) fn make_room(&mut self) -> Swept<K> {
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
    pub(super) fn sweep_with_credit(&mut self) -> Swept<K> {
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
            let store = &mut **self.store;
            store.table.shrink_to(2 * nodes, &store.slab);
        }
        let store = &mut **self.store;
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
    pub(super) fn earn(&mut self, credit: usize) {
        let nodes = self.store.table.len();
        let store = &mut **self.store;
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
    pub(super) fn sweep(&mut self, forget: bool) -> (Swept<K>, usize) {
        let mut swept = Swept(Vec::new());
        let mut busy = 0;
        self.store.sweeps += 1;
        let Store {
            table,
            slab,
            ghosts,
            ..
        } = &mut **self.store;
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
    pub(super) fn take_all(&mut self) -> Swept<K> {
        let mut swept = Swept(Vec::new());
        let Store { table, slab, .. } = &mut **self.store;
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
