//! Sweeping: how idle nodes are removed.
//!
//! `done` leaves an idle node in the table, so the next add of a recurring key is one lookup. Idle
//! nodes are removed in bulk, by a thread that holds the lock anyway or has nothing else to do:
//!
//! * An adder of a new key sweeps its shard when the shard has doubled since its last sweep: a
//!   stream of unique keys pays for its own removal, a constant cost per key. (If most of a sample
//!   of the nodes is busy, the adder lets the shard double again.)
//! * A getter that found the queue empty does *looks* until a key comes or nothing is due, and the
//!   timer's thread does one before it sleeps. A look makes a part of a *pass* over all shards if
//!   one is due: it visits at most [`PORTION`] nodes and one shard more, and locks the shards that
//!   have nothing to sweep. It waits for no lock (F2): a shard that another thread has locked is left
//!   to the next pass, which is due by time.
//!
//! # When a pass is due
//!
//! No pass is due while no shard holds more than its part of [`RESIDENTS`] nodes, which are the
//! fixed cache of C10; a look then reads one word. Otherwise a pass is due
//!
//! * when at least half of the nodes of a shard were interned since its last sweep, so a burst is
//!   removed as soon as it has been processed;
//! * or when [`REST`] plus [`REST_PER_NODE`] for each node have passed since the last pass. A
//!   waiting thread wakes up for it. So nodes that were busy, pinned or spared at the last pass are
//!   removed in a bounded time, and passes take at most a few percent of one processor. [`REST`]
//!   doubles with each pass that changed nothing, at most [`MOST_DOUBLINGS`] times.
//!
//! A sweep spares a key that recurred since the previous sweep. So a working set that recurs within
//! a rest stays interned, and keys that do not recur are removed by the second pass. If half of a
//! shard's new keys are keys that were swept before, the shard grows instead ([`super::ghosts`]),
//! except at a pass that is due by time.

use super::{Keys, Shard, Store};
use crate::keys::state::{Phase, Residence};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::wait::catch_panic::catch_panic;

/// The number of nodes that are always kept, shared equally among the shards.
pub(super) const RESIDENTS: usize = 8192;
/// The fewest nodes that are always kept in a shard.
pub(super) const FEWEST_RESIDENTS: usize = 32;

/// Before it sweeps, an adder samples this many nodes, or a few more. It sweeps if more than a quarter
/// of them are idle.
const SAMPLE: usize = 24;

/// The time between two passes, in nanoseconds, and what each node adds to it.
pub(super) const REST: u64 = 100_000_000;
pub(super) const REST_PER_NODE: u64 = 500;
/// `REST` is doubled at most this many times.
pub(super) const MOST_DOUBLINGS: u32 = 7;

/// A look goes on to the next shard until it has visited this many nodes.
const PORTION: u64 = 1024;

/// The work for the next look, as adders have noted it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub(super) enum Litter {
    /// No shard holds more nodes than its part of the fixed cache.
    None,
    /// A shard does: a pass is due by time.
    Some,
    /// Many of a shard's nodes are new: a pass is due now.
    Much,
}

/// When idle getters sweep.
pub(super) struct Looks {
    /// A [`Litter`]. Read by every look, and written when it changes.
    litter: AtomicUsize,
    /// Held during a look that makes a part of a pass.
    next: Mutex<Next>,
}

struct Next {
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

impl Looks {
    pub(super) fn new() -> Self {
        Looks {
            litter: AtomicUsize::new(Litter::None as usize),
            next: Mutex::new(Next {
                at: 0,
                idle_passes: 0,
                pass: None,
            }),
        }
    }

    /// Notes that there is litter. Called under the lock of the shard that holds it.
    fn note(&self, litter: Litter) {
        // Ordering: Relaxed, here and below; the shards' locks guard the data that the word
        // describes. A pass that clears the word tries to lock each shard afterwards. Either it finds
        // this shard's litter, or it finds the shard locked and notes litter itself, or this thread
        // sees that it has cleared the word.
        if self.litter.load(Ordering::Relaxed) < litter as usize {
            self.litter.fetch_max(litter as usize, Ordering::Relaxed);
        }
    }
}

/// Keys that a sweep removed, dropped once no lock is held.
#[must_use]
pub(crate) struct Swept<K> {
    /// Keys whose drop does nothing are only counted.
    keys: Vec<K>,
    count: usize,
}

impl<K> Swept<K> {
    fn none() -> Self {
        Swept {
            keys: Vec::new(),
            count: 0,
        }
    }

    fn push(&mut self, key: K) {
        self.count += 1;
        if std::mem::needs_drop::<K>() {
            self.keys.push(key);
        }
    }

    /// Drops the keys one by one. If the `Drop` of a key panics, the panic hook reports it, the
    /// other keys are dropped all the same, and the caller, which may be adding another key,
    /// continues.
    fn drop_keys(&mut self) {
        for key in self.keys.drain(..) {
            let _ = catch_panic(|| drop(key));
        }
    }
}

impl<K> Drop for Swept<K> {
    fn drop(&mut self) {
        self.drop_keys();
    }
}

impl<K> Keys<K> {
    /// Makes a part of a pass over the shards if one is due; `now` reads the queue's clock. Returns
    /// whether the pass is still under way. Called by threads and tasks with nothing to do, which
    /// check for new keys before they call again.
    #[inline]
    pub(crate) fn look(&self, now: impl Fn() -> u64) -> bool {
        // Ordering: Relaxed; a hint, see `Looks::note`.
        let litter = self.looks.litter.load(Ordering::Relaxed);
        litter != Litter::None as usize && self.look_at_litter(litter == Litter::Much as usize, now)
    }

    /// Returns when a thread that waits should look again, if there may be anything to sweep: at
    /// once if a pass has stopped half-way; otherwise when the next pass is due by time; or, if
    /// another thread is in a look now, [`REST`] from now. That thread may never wait (in `try_get`),
    /// so this one has to wake up by itself.
    pub(crate) fn next_look(&self, now: impl Fn() -> u64) -> Option<u64> {
        let Ok(next) = self.looks.next.try_lock() else {
            return Some(now().saturating_add(REST));
        };
        // Ordering: Relaxed; the mutex is held, so what the last pass wrote is seen. A later note is
        // a hint, see `Looks::note`.
        let litter = self.looks.litter.load(Ordering::Relaxed);
        (litter != Litter::None as usize).then_some(match next.pass {
            Some(_) => 0,
            None => next.at,
        })
    }

    #[cold]
    fn look_at_litter(&self, much: bool, now: impl Fn() -> u64) -> bool {
        // One thread at a time works on the pass, and others do not wait for it. Dropping a key is user
        // code, which may call the queue and reach this point again.
        let Ok(mut next) = self.looks.next.try_lock() else {
            return false;
        };
        let mut pass = match next.pass.take() {
            Some(pass) => pass,
            None => {
                let in_time = now() >= next.at;
                if !in_time && !much {
                    return false;
                }
                Pass {
                    in_time,
                    ..Pass::default()
                }
            }
        };
        let enough = pass.nodes + PORTION;
        while pass.shard < self.shards.len() && pass.nodes < enough {
            match self.try_shard(pass.shard) {
                Some(shard) => pass.sweep(shard),
                // The next pass is not put off: it may find the shard unlocked, and sweep it.
                None => pass.changed += 1,
            }
            pass.shard += 1;
        }
        if pass.shard < self.shards.len() {
            next.pass = Some(pass);
            return true;
        }
        // Ordering: Relaxed; see `Looks::note`.
        self.looks
            .litter
            .store(Litter::None as usize, Ordering::Relaxed);
        for shard in 0..self.shards.len() {
            let shard = self.try_shard(shard);
            if shard.as_ref().is_none_or(Shard::is_crowded) {
                self.looks.note(Litter::Some);
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
    /// Sweeps one shard, and drops its keys once the shard is unlocked.
    fn sweep<K>(&mut self, mut shard: Shard<'_, K>) {
        if !shard.is_crowded() {
            return;
        }
        self.nodes += shard.table.len() as u64;
        let (swept, spared) = if self.in_time {
            shard.sweep(false)
        } else {
            (shard.sweep_unless_returning(), 0)
        };
        self.changed += swept.count + spared;
        shard.settle_account(4);
        drop(shard);
        drop(swept);
    }
}

impl<K> Shard<'_, K> {
    /// Returns whether the shard holds more nodes than its part of the fixed cache.
    fn is_crowded(&self) -> bool {
        self.table.len() > self.keys.residents
    }

    /// Notes that a key has been interned.
    #[inline]
    pub(super) fn note_interned(&mut self) {
        self.store.fresh += 1;
        if self.is_crowded() {
            self.note_litter();
        }
    }

    #[cold]
    fn note_litter(&self) {
        let much = 2 * self.store.fresh >= self.table.len();
        self.keys
            .looks
            .note(if much { Litter::Much } else { Litter::Some });
    }

    /// Sweeps before an insertion that would double the shard.
    #[inline]
    pub(super) fn make_room(&mut self) -> Swept<K> {
        if self.table.len() < self.store.limit {
            return Swept::none();
        }
        self.make_room_slow()
    }

    #[cold]
    fn make_room_slow(&mut self) -> Swept<K> {
        if !self.looks_idle() {
            self.store.limit *= 2;
            return Swept::none();
        }
        let swept = self.sweep_unless_returning();
        self.settle_account(16);
        swept
    }

    /// Sweeps, unless the new keys are a working set that was swept before, for which the shard
    /// should grow.
    fn sweep_unless_returning(&mut self) -> Swept<K> {
        if self.store.ghosts.should_grow() {
            Swept::none()
        } else {
            self.sweep(false).0
        }
    }

    /// Returns whether a sweep is likely to find idle nodes, by a sample: in a growing backlog, all
    /// are busy. The table's places are in the order of the hashes, so the first ones are a fair
    /// sample.
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

    /// Sets the limit for the next sweep by an adder, after a sweep or the decision against one,
    /// and shrinks a table with room for more than `spare` times its nodes.
    ///
    /// Removed nodes leave marks, for which a table may double although it has room for all its
    /// nodes. An adder lets it, or the table would double and shrink in turns.
    fn settle_account(&mut self, spare: usize) {
        let nodes = self.table.len();
        let room = nodes.max(self.keys.residents);
        if self.table.capacity() > spare * room {
            self.shrink_table(2 * nodes);
        }
        self.store.limit = (2 * nodes).max(self.keys.residents);
        self.store.fresh = 0;
    }

    /// Removes idle, unpinned nodes, with `forget` also those that recurred. Returns their keys,
    /// and the number of idle nodes that it spared because they recurred.
    pub(super) fn sweep(&mut self, forget: bool) -> (Swept<K>, usize) {
        let mut swept = Swept::none();
        let mut spared = 0;
        self.store.sweeps += 1;
        let Store { slab, ghosts, .. } = &mut **self.store;
        self.table.remove_if(|index| {
            // SAFETY: in the table of a shard whose lock is held, and so in its slab.
            let node = unsafe { slab.node(index) };
            // SAFETY: as above.
            let state = unsafe { &node.get().state };
            match state.residence(forget) {
                Residence::Stay => false,
                Residence::Spared => {
                    spared += 1;
                    false
                }
                Residence::Leave => {
                    ghosts.on_evict(state.hash());
                    // SAFETY: `Leave` means that no other thread can reach the node any more, and
                    // `remove_if` removes it from the table; it is in this slab, as all nodes of
                    // this table.
                    let key = unsafe { slab.remove(node) };
                    swept.push(key);
                    true
                }
            }
        });
        slab.settle(1);
        (swept, spared)
    }

    /// Removes every node, whatever its state, when the queue is dropped.
    pub(super) fn take_all(&mut self) -> Swept<K> {
        let mut swept = Swept::none();
        let slab = &mut self.store.slab;
        self.table.remove_if(|index| {
            // SAFETY: in the shard's table, and so in its slab. Only `Keys::drop` calls this, so no
            // token is used any more.
            swept.push(unsafe { slab.remove(slab.node(index)) });
            true
        });
        swept
    }
}
