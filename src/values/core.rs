//! Putting values, without the public face: [`super`] has the protocol.

use super::{Change, Merger};
use crate::Added;
use crate::engine::Core;
use crate::engine::many::{Addition, Entries, Pushes};
use crate::keys::carried::{Load, Waiting};
use crate::keys::node::{self, Locked, NodeRef, Pin, Pinned, Queued};
use crate::keys::state::Level;
use crate::keys::{PackedShard, Shard};
use crate::metrics::Event;
use crate::sync::{Arc, SpinLockGuard};
use crate::timer::Wait;
use crate::wait::room::Share;

/// Returns the change that a put makes.
pub(super) fn putting<V>(load: Load<V>) -> impl Change<V> {
    move |merger, waiting, outdated| merger.merge(&mut waiting.load, load, &mut outdated.value)
}

impl<K: Send + Sync + 'static, V: Send + 'static> Core<K, V> {
    /// Puts the values of a chunk to its keys; see [`crate::engine::many`]. Returns how many keys have become queued.
    pub(crate) fn put_chunk(&self, merger: &Merger<V>, chunk: &mut [Addition<K, V>]) -> usize
    where
        K: Eq,
    {
        let level = self.default_level();
        let mut entries = Entries::new(self);
        self.keys
            .for_each_in_shards(chunk, |item| item.hash, |_, _, _| ());
        let mut queued = 0;
        for Addition { hash, key, put } in chunk {
            let Some(load) = put.take().map(Load::from) else {
                continue;
            };
            let change = putting(load);
            let shard = self.keys.lock(*hash);
            let eq = |known: &K| key.as_ref().is_some_and(|key| known == key);
            let found = shard.find(*hash, eq).map(|found| found.node());
            let added = match (found, key.take()) {
                (Some(node), known) => {
                    // Dropped with the chunk.
                    *key = known;
                    self.put_found(shard, node, level, merger, change, &mut entries)
                }
                (None, Some(key)) => {
                    let at = (*hash, level);
                    self.put_new(shard.pack(), at, key, merger, change, &mut entries)
                }
                (None, None) => continue,
            };
            queued += usize::from(added == Added::Queued);
        }
        queued
    }

    /// Adds the key for which `eq` holds at a level, and changes what waits for its next delivery. If it is
    /// not interned, returns `change`.
    pub(crate) fn update_known<C: Change<V>>(
        &self,
        merger: &Merger<V>,
        (hash, level): (u64, Level),
        eq: impl FnMut(&K) -> bool,
        change: C,
    ) -> Result<Added, C> {
        if self.closing.has_begun() {
            return Ok(Added::ShutDown);
        }
        let shard = self.keys.lock(hash);
        match shard.find(hash, eq).map(|found| found.node()) {
            None => Err(change),
            Some(node) => Ok(self.put_found(shard, node, level, merger, change, &mut &*self)),
        }
    }

    /// Adds a key at a level, and changes what waits for its next delivery.
    #[inline]
    pub(crate) fn update(
        &self,
        merger: &Merger<V>,
        (hash, level): (u64, Level),
        key: K,
        change: impl Change<V>,
    ) -> Added
    where
        K: Eq,
    {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let shard = self.keys.lock(hash);
        let found = shard.find(hash, |known| *known == key);
        match found.map(|found| found.node()) {
            Some(node) => self.put_found(shard, node, level, merger, change, &mut &*self),
            None => {
                let at = (hash, level);
                self.put_new(shard.pack(), at, key, merger, change, &mut &*self)
            }
        }
    }

    // Never: the put of a known key would save more registers; see `engine::adding`.
    #[inline(never)]
    fn put_new(
        &self,
        shard: PackedShard<'_, K, V>,
        (hash, level): (u64, Level),
        key: K,
        merger: &Merger<V>,
        change: impl Change<V>,
        entries: &mut impl Pushes<K>,
    ) -> Added {
        let mut shard = self.keys.unpack(shard);
        if self.closing.has_begun() {
            drop(shard);
            return entries.refuse();
        }
        let (entry, swept) = shard.insert_queued(hash, key);
        entry.set_level(level);
        // SAFETY: just interned, and queued: it stays interned until its entry is pushed and popped.
        let waiting = unsafe { entry.node().carried(&merger.carries) }
            .waiting
            .lock();
        drop(shard);
        let added = node::Added::Queued(entry);
        let added = self.fill(waiting, added, merger, change, entries);
        if swept.is_some() {
            entries.flush();
        }
        drop(swept);
        added
    }

    // Always, and `fill` as well: the two calls took a fifth of the instructions of a merged put.
    #[inline(always)]
    fn put_found(
        &self,
        shard: Shard<'_, K, V>,
        node: NodeRef<K>,
        level: Level,
        merger: &Merger<V>,
        change: impl Change<V>,
        entries: &mut impl Pushes<K>,
    ) -> Added {
        // SAFETY: in the table of this shard, which is unlocked after the last use of this.
        let found = unsafe { Locked::new(node) };
        // SAFETY: as above. Later the key is queued or dirty, and no delivery of it can begin while `waiting` is locked, so the node stays interned; or it waits for a retry, and is
        // pinned; unless the queue is shut down, and then it is not accessed any more.
        let carried = unsafe { node.carried(&merger.carries) };
        let Some(waiting) = carried.waiting.try_lock() else {
            let pinned = Pinned(found.pin());
            drop(shard);
            return self.put_pinned(merger, &pinned.0, level, change, entries);
        };
        // The bound of a queue of values is the merger's, so this add needs no room.
        let mut share = Share::exceeding(None);
        let added = self.add_found(&found, level, &mut share);
        let added = added.unwrap_or(node::Added::Closed);
        match added {
            node::Added::Closed => {
                // Before the shard, whose lock keeps the node, and that before `change`, whose drop drops
                // the value: that is user code.
                drop(waiting);
                drop(shard);
                return entries.refuse();
            }
            node::Added::Delayed => {
                // The key may be idle.
                let _pinned = Pinned(found.pin());
                drop(shard);
                return self.fill(waiting, added, merger, change, entries);
            }
            _ => {}
        }
        drop(shard);
        self.fill(waiting, added, merger, change, entries)
    }

    // Never: as `put_new`.
    #[inline(never)]
    pub(crate) fn put_pinned(
        &self,
        merger: &Merger<V>,
        pin: &Pin<K>,
        level: Level,
        change: impl Change<V>,
        entries: &mut impl Pushes<K>,
    ) -> Added {
        if self.closing.has_begun() {
            return entries.refuse();
        }
        let waiting = pin.carried(&merger.carries).waiting.lock();
        self.put_waiting(waiting, pin, level, merger, change, entries)
    }

    #[inline]
    fn put_waiting(
        &self,
        waiting: SpinLockGuard<'_, Waiting<V>>,
        pin: &Pin<K>,
        level: Level,
        merger: &Merger<V>,
        change: impl Change<V>,
        entries: &mut impl Pushes<K>,
    ) -> Added {
        let added = self.mark_pinned(pin, level, &mut Share::exceeding(None));
        let added = added.unwrap_or(node::Added::Closed);
        self.fill(waiting, added, merger, change, entries)
    }

    /// Adds the pinned key at a level, now or after a delay, and changes what waits for its next delivery. With
    /// `merges`, only if a value waits; otherwise returns `change`.
    pub(crate) fn update_pinned<C: Change<V>>(
        self: &Arc<Self>,
        merger: &Merger<V>,
        pin: &Pin<K>,
        (level, delay): (Level, Option<Wait>),
        merges: bool,
        change: C,
    ) -> Result<Added, C> {
        let waiting = pin.carried(&merger.carries).waiting.lock();
        if merges && waiting.load.value.is_none() {
            drop(waiting);
            return Err(change);
        }
        let added = match delay {
            Some(delay) if !delay.is_zero() => {
                let (added, _) = self.delay(pin.clone(), level, delay, false);
                // Nothing is to be pushed.
                let marked = match added {
                    Added::ShutDown => node::Added::Closed,
                    _ => node::Added::Merged,
                };
                self.fill(waiting, marked, merger, change, &mut &**self);
                added
            }
            _ => {
                let added = self.put_waiting(waiting, pin, level, merger, change, &mut &**self);
                if delay.is_some() && added.is_accepted() {
                    self.note(Event::Retried);
                }
                added
            }
        };
        Ok(added)
    }

    /// Changes what waits for the next delivery of a key that has been added, unless the queue is
    /// shut down. Then unlocks it, pushes the key's entry, and drops the value and the receipts that `change` has put out, if
    /// any: also if it panics.
    #[inline(always)]
    fn fill(
        &self,
        waiting: SpinLockGuard<'_, Waiting<V>>,
        added: node::Added<K>,
        merger: &Merger<V>,
        change: impl Change<V>,
        entries: &mut impl Pushes<K>,
    ) -> Added {
        // Declared first, so that it is dropped last, on return and by a panic.
        let mut outdated = Load::default();
        let (push, added) = match added {
            node::Added::Closed => {
                // Before `change`, whose drop drops the value: that is user code.
                drop(waiting);
                return entries.refuse();
            }
            node::Added::Queued(entry) => (Some(entry), Added::Queued),
            node::Added::Deferred => (None, Added::Deferred),
            node::Added::Merged => (None, Added::Merged),
            node::Added::Delayed => (None, Added::Delayed),
            // Needs no order with what follows: it only moves the entry.
            raised @ node::Added::Raised(_) => (None, self.after_add(raised)),
        };
        let push = push.map(|entry| Push(entries, Some(entry)));
        // Declared after `push`, so that a panic of `change` unlocks before it pushes.
        let mut waiting = waiting;
        change(merger, &mut waiting, &mut outdated);
        let surplus = merger.count(&mut waiting);
        drop(waiting);
        drop(push);
        if surplus > 0 || outdated.value.is_some() || outdated.receipts.is_some() {
            entries.flush();
        }
        merger.offer(surplus);
        added
    }
}

/// Pushes the entry of a key when it is dropped: not while the value is locked, for that wakes a getter, which
/// is user code.
struct Push<'e, K, P: Pushes<K>>(&'e mut P, Option<Queued<K>>);

impl<K, P: Pushes<K>> Drop for Push<'_, K, P> {
    #[inline]
    fn drop(&mut self) {
        if let Some(entry) = self.1.take() {
            self.0.push(entry);
        }
    }
}
