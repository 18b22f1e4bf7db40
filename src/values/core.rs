//! Putting values, without the public face: [`super`] has the protocol.

use std::time::Duration;

use super::{Load, Merger, Valued, Waiting};
use crate::Added;
use crate::engine::Core;
use crate::keys::Shard;
use crate::keys::node::{self, NodeRef, Pin, Pinned, Queued};
use crate::keys::state::Level;
use crate::metrics::Event;
use crate::sync::{Arc, SpinLockGuard};
use crate::wait::room::Share;

impl<V> From<V> for Load<V> {
    #[inline]
    fn from(value: V) -> Self {
        Load {
            value: Some(value),
            receipts: None,
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Core<Valued<K, V>> {
    #[inline]
    pub(super) fn merger(&self) -> &Merger<V> {
        let values = self.values();
        Merger::of(values.expect("a queue of values is built with `Builder::merge`"))
    }

    pub(super) fn put(&self, hash: u64, level: Level, key: K, load: Load<V>) -> Added
    where
        K: Eq,
    {
        self.update(hash, level, key, self.merger().adding(load))
    }

    /// Adds the key for which `eq` holds, with a value, or returns the value if it is not interned.
    pub(super) fn put_known(
        &self,
        hash: u64,
        eq: impl FnMut(&Valued<K, V>) -> bool,
        load: Load<V>,
    ) -> Result<Added, Load<V>> {
        if self.closing.has_begun() {
            return Ok(Added::ShutDown);
        }
        let merger = self.merger();
        let shard = self.keys.lock(hash);
        match shard.find(hash, eq) {
            None => Err(load),
            Some(node) => {
                let (level, change) = (self.default_level(), merger.adding(load));
                Ok(self.put_found(shard, node, hash, level, merger, change))
            }
        }
    }

    /// Adds a key at a level, and changes what waits for its next delivery.
    pub(super) fn update(
        &self,
        hash: u64,
        level: Level,
        key: K,
        change: impl FnOnce(&mut Waiting<V>),
    ) -> Added
    where
        K: Eq,
    {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let merger = self.merger();
        let mut shard = self.keys.lock(hash);
        if let Some(node) = shard.find(hash, |known| known.key == key) {
            return self.put_found(shard, node, hash, level, merger, change);
        }
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let new = Valued::with(key, Load::default(), 0);
        let (entry, swept) = shard.insert_queued(hash, new);
        entry.set_level(level);
        // SAFETY: just interned, and queued: it stays interned until its entry is pushed and popped.
        let waiting = unsafe { &entry.node().get().key }.waiting.lock();
        drop(shard);
        let added = self.fill(waiting, node::Added::Queued(entry), merger, change);
        drop(swept);
        added
    }

    fn put_found(
        &self,
        shard: Shard<'_, Valued<K, V>>,
        node: NodeRef<Valued<K, V>>,
        hash: u64,
        level: Level,
        merger: &Merger<V>,
        change: impl FnOnce(&mut Waiting<V>),
    ) -> Added {
        // SAFETY: in the table of a shard whose lock is held. Later the key is queued or dirty, and
        // no delivery of it can begin while `waiting` is locked, so the node stays interned; unless
        // the queue is shut down, and then it is not accessed any more.
        let key = unsafe { &node.get().key };
        let Some(waiting) = key.waiting.try_lock() else {
            // SAFETY: as above.
            let pinned = Pinned(unsafe { Pin::new(node) });
            drop(shard);
            return self.put_pinned(&pinned.0, hash, level, merger, change);
        };
        // The bound of a queue of values is the merger's, so this add needs no room.
        let mut share = Share::exceeding(None);
        let added = self.add_found(&shard, node, level, &mut share);
        let added = added.unwrap_or(node::Added::Closed);
        if matches!(added, node::Added::Closed) {
            // Before the shard, whose lock keeps the node, and that before `change`, whose drop drops
            // the value: that is user code.
            drop(waiting);
            drop(shard);
            return Added::ShutDown;
        }
        drop(shard);
        self.fill(waiting, added, merger, change)
    }

    pub(super) fn put_pinned(
        &self,
        pin: &Pin<Valued<K, V>>,
        hash: u64,
        level: Level,
        merger: &Merger<V>,
        change: impl FnOnce(&mut Waiting<V>),
    ) -> Added {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let waiting = pin.key().waiting.lock();
        let added = self.mark_pinned(pin, hash, level, &mut Share::exceeding(None));
        self.fill(waiting, added, merger, change)
    }

    /// Merges a value into the one that waits for the delivery of the key, if there is one, and adds
    /// the key. Otherwise returns the value.
    pub(super) fn merge_into_waiting(&self, hash: u64, key: &K, value: V) -> Result<Added, V>
    where
        K: Eq,
    {
        let pin = self.keys.lock(hash).pin(hash, |known| known.key == *key);
        let Some(pinned) = pin.map(Pinned) else {
            return Err(value);
        };
        let pin = &pinned.0;
        let waiting = pin.key().waiting.lock();
        if waiting.load.value.is_none() {
            return Err(value);
        }
        let level = self.default_level();
        let added = self.mark_pinned(pin, hash, level, &mut Share::exceeding(None));
        let merger = self.merger();
        Ok(self.fill(waiting, added, merger, merger.adding(value.into())))
    }

    pub(super) fn put_after(
        self: &Arc<Self>,
        pin: Pin<Valued<K, V>>,
        hash: u64,
        load: Load<V>,
        delay: Duration,
    ) -> Added {
        let pinned = Pinned(pin);
        let pin = &pinned.0;
        let merger = self.merger();
        let change = merger.adding(load);
        if delay.is_zero() {
            let added = self.put_pinned(pin, hash, self.default_level(), merger, change);
            if added.is_accepted() {
                self.note(Event::Retried);
            }
            return added;
        }
        let waiting = pin.key().waiting.lock();
        match self.delay(pin.clone(), hash, self.default_level(), delay) {
            Added::ShutDown => Added::ShutDown,
            added => {
                // Nothing is to be pushed.
                self.fill(waiting, node::Added::Merged, merger, change);
                added
            }
        }
    }

    /// Changes what waits for the next delivery of a key that has been added, unless the queue is
    /// shut down. Then unlocks it, and pushes the key's entry, also if `change` panics.
    #[inline]
    fn fill(
        &self,
        waiting: SpinLockGuard<'_, Waiting<V>>,
        added: node::Added<Valued<K, V>>,
        merger: &Merger<V>,
        change: impl FnOnce(&mut Waiting<V>),
    ) -> Added {
        let (push, added) = match added {
            node::Added::Closed => {
                // Before `change`, whose drop drops the value: that is user code.
                drop(waiting);
                return Added::ShutDown;
            }
            node::Added::Queued(entry) => (Some(Push(self, Some(entry))), Added::Queued),
            node::Added::Deferred(_) => (None, Added::Deferred),
            node::Added::Merged => (None, Added::Merged),
            // Needs no order with what follows: it only moves the entry.
            raised @ node::Added::Raised(_) => (None, self.after_add(raised)),
        };
        // Declared after `push`, so that a panic of `change` unlocks before it pushes.
        let mut waiting = waiting;
        change(&mut waiting);
        let surplus = merger.count(&mut waiting);
        drop(waiting);
        drop(push);
        merger.release(surplus);
        added
    }
}

/// Pushes the entry of a key when it is dropped: not while the value is locked, for that wakes a getter, which
/// is user code.
struct Push<'c, K>(&'c Core<K>, Option<Queued<K>>);

impl<K> Drop for Push<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(entry) = self.1.take() {
            self.0.enqueue(entry);
        }
    }
}
