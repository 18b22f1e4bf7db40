//! Putting values: [`super`] has the protocol.

use std::any::Any;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::receipt::{self, Receipt};
use super::{Load, Merger, Valued};
use crate::engine::Core;
use crate::engine::cargo::Cargo;
use crate::engine::timing::Event;
use crate::keys::Shard;
use crate::keys::hash::hash_of;
use crate::keys::node::{self, NodeRef, Pin};
use crate::sync::{Arc, SpinLockGuard};
use crate::{Added, KeyHandle, ValueQueue};

impl<K, V, L, S> ValueQueue<K, V, L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    /// Adds a key with a value, like [`add`](crate::WorkQueue::add) adds a key.
    ///
    /// If the key has a value that is not delivered yet, the queue's merge function merges the new
    /// value into it. A value that is put while the key is processing belongs to the next delivery. A
    /// value that is put while the key is delayed is delivered now, with the delayed one; nothing is
    /// left to deliver when the delay ends then.
    ///
    /// Returns what `add` does; [`Added::ShutDown`] if the queue is shut down, and then the value is
    /// dropped.
    ///
    /// Waits while another thread merges a value of the same key.
    ///
    /// # Panics
    ///
    /// Panics if [`add`](crate::WorkQueue::add) would; then nothing was put. Panics if the merge
    /// function panics; then the key is queued all the same, with what the function has made of the
    /// older value (V4).
    ///
    /// ```
    /// use keyqueue::{Added, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().merge(|older: &mut u64, newer| *older += newer).build()?;
    /// assert_eq!(queue.put("a", 1), Added::Queued);
    /// assert_eq!(queue.put("a", 2), Added::Merged);
    ///
    /// let item = queue.get().unwrap();
    /// assert_eq!((**item.key(), *item.value()), ("a", 3));
    /// assert_eq!(queue.put("a", 4), Added::Deferred); // for the next delivery
    /// assert_eq!(*item.value(), 3);
    /// item.done();
    /// assert_eq!(*queue.get().unwrap().value(), 4);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("push", "send", "upsert"))]
    pub fn put(&self, key: K, value: V) -> Added {
        self.put_granted(key, value, &mut 0)
    }

    /// Puts a value, and takes out of `granted` the weight for which there is room already.
    pub(super) fn put_granted(&self, key: K, value: V, granted: &mut usize) -> Added {
        let hash = hash_of(&self.hasher, &key);
        self.core.put(hash, key, value.into(), granted)
    }

    /// Puts a value for a key by a borrowed form of it, which is copied only if the key is unknown;
    /// otherwise like [`put`](Self::put).
    ///
    /// ```
    /// # use keyqueue::{Added, ValueQueue, WorkQueue, merge};
    /// let queue: ValueQueue<String, _> = WorkQueue::builder().merge(merge::latest).build()?;
    /// assert_eq!(queue.put_ref("sensor", 1), Added::Queued);
    /// assert_eq!(queue.put_ref("sensor", 2), Added::Merged); // allocates nothing
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn put_ref<Q>(&self, key: &Q, value: V) -> Added
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let core = &*self.core;
        let hash = hash_of(&self.hasher, key);
        let mut load = Some(value.into());
        let eq = |known: &Valued<K, V>| known.key.borrow() == key;
        let fill = |waiting: &mut _| core.merge(waiting, load.take());
        match core.put_known(hash, eq, fill) {
            Some(added) => added,
            None => match load {
                Some(load) => core.put(hash, key.to_owned(), load, &mut 0),
                None => Added::ShutDown,
            },
        }
    }

    /// Changes the value of a key that waits for its delivery, or a default one, and adds the key:
    /// like [`put`](Self::put), but without a value to merge.
    ///
    /// The queue does not call its merge function, but `change`, under the same lock: it must not call
    /// the queue.
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// for line in ["GET /", "GET /cart"] {
    ///     queue.update("client", |lines: &mut Vec<_>| lines.push(line));
    /// }
    /// assert_eq!(*queue.get().unwrap().value(), ["GET /", "GET /cart"]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `put` would, with `change` for the merge function.
    #[doc(alias = "entry")]
    pub fn update(&self, key: K, change: impl FnOnce(&mut V)) -> Added
    where
        V: Default,
    {
        let core = &*self.core;
        let hash = hash_of(&self.hasher, &key);
        let mut change = Some(change);
        let fill = |waiting: &mut Load<V>| {
            if let Some(change) = change.take() {
                change(waiting.value.get_or_insert_default());
            }
        };
        if let Some(added) = core.put_known(hash, |known| known.key == key, fill) {
            return added;
        }
        // User code, so no lock is held. If another thread interns the key meanwhile, `put` merges.
        let mut load = Load::default();
        match change {
            Some(change) => change(load.value.get_or_insert_default()),
            None => return Added::ShutDown,
        }
        core.put(hash, key, load, &mut 0)
    }

    /// Like [`put`](Self::put), and returns a [`Receipt`], which ends when the delivery of the value has
    /// ended: to acknowledge a message after the work.
    ///
    /// Several puts may share one delivery; each of their receipts ends then. The receipt of a put that
    /// the queue refuses has ended already, as [`Ended::Dropped`](crate::Ended::Dropped).
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would.
    ///
    /// ```
    /// # use keyqueue::{Ended, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// let first = queue.put_tracked("a", 1);
    /// let second = queue.put_tracked("a", 2);
    /// let item = queue.get().unwrap();
    /// let third = queue.put_tracked("a", 3); // for the next delivery
    /// item.done();
    /// assert_eq!((first.wait(), second.wait()), (Ended::Done, Ended::Done));
    /// assert_eq!(third.ended(), None);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("ack", "acknowledge"))]
    pub fn put_tracked(&self, key: K, value: V) -> Receipt {
        let (load, receipt) = tracked(value);
        let hash = hash_of(&self.hasher, &key);
        self.core.put(hash, key, load, &mut 0);
        receipt
    }

    /// Puts a value for a key, to be delivered after `delay`: no earlier, unless the key is delivered
    /// before for another reason, for example because of a [`put`](Self::put). Then this value goes
    /// with that delivery, in the order in which the values were put.
    ///
    /// The delay follows the rules of [`add_after`](crate::WorkQueue::add_after). A delay that is
    /// [cancelled](crate::WorkQueue::cancel) drops the value, unless the key is queued, too.
    ///
    /// ```
    /// # use keyqueue::{Added, Clock, WorkQueue, merge};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).manual_timers();
    /// let queue = builder.merge(merge::append).build()?;
    /// assert_eq!(queue.put_after("a", vec![1], Duration::from_secs(1)), Added::Delayed);
    /// assert_eq!(queue.put_after("a", vec![2], Duration::from_secs(9)), Added::Delayed); // 1 s counts
    /// assert!(queue.try_get().is_err());
    /// time.advance(Duration::from_secs(1));
    /// queue.fire_due();
    /// assert_eq!(*queue.get().unwrap().value(), [1, 2]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would.
    #[doc(alias("debounce", "schedule"))]
    pub fn put_after(&self, key: K, value: V, delay: Duration) -> Added {
        if self.core.is_shutting_down() {
            return Added::ShutDown;
        }
        let hash = hash_of(&self.hasher, &key);
        let (pin, known) = self.core.pin(hash, key.into());
        let added = self.core.put_after(pin, hash, value.into(), delay);
        drop(known);
        added
    }

    /// Takes back the value of a key that waits for its delivery, and returns it: the key is not
    /// delivered for it any more, and its pending delay is cancelled. The value of a delivery in
    /// progress is left alone.
    ///
    /// The key's place in the queue stays until it is reached, so [`len`](crate::WorkQueue::len)
    /// counts the key until then, and a value that is put before takes the same place.
    ///
    /// After a shut-down this finds the values of the delays that the shut-down has dropped.
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// queue.put("a", 1);
    /// queue.put("b", 2);
    /// assert_eq!(queue.remove("a"), Some(1));
    /// assert_eq!(queue.remove("a"), None);
    /// assert_eq!(**queue.get().unwrap().key(), "b");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics; then nothing was taken back.
    #[doc(alias("take_back", "withdraw"))]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let core = &*self.core;
        let hash = hash_of(&self.hasher, key);
        let pin = core
            .keys
            .lock(hash)
            .pin(hash, |known| known.key.borrow() == key)?;
        let waiting = pin.key().waiting.lock();
        if pin.delay().cancel() {
            core.note_cancelled();
        }
        let load = core.merger().take(waiting);
        pin.unpin();
        load.value
    }
}

impl<K, L, S> ValueQueue<K, (), L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Adds a key without a value, and returns a [`Receipt`], which ends when the delivery that covers
    /// this add has ended: [`put_tracked`](Self::put_tracked) of `()`.
    ///
    /// ```
    /// # use keyqueue::{Ended, ValueQueue, WorkQueue, merge};
    /// let queue: ValueQueue<&str, ()> = WorkQueue::builder().merge(merge::latest).build()?;
    /// let receipt = queue.add_tracked("a");
    /// queue.get().unwrap().done();
    /// assert_eq!(receipt.wait(), Ended::Done);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would.
    pub fn add_tracked(&self, key: K) -> Receipt {
        self.put_tracked(key, ())
    }
}

impl<K, V> KeyHandle<Valued<K, V>>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    /// Puts a value for the key, without hashing and without the table; see
    /// [`ValueQueue::put`](crate::ValueQueue::put).
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// let clicks = queue.handle("clicks".into());
    /// assert_eq!(clicks.put(1), Added::Queued);
    /// assert_eq!(clicks.put(1), Added::Merged);
    /// assert_eq!(*queue.get().unwrap().value(), 2);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn put(&self, value: V) -> Added {
        let (core, pin, hash) = self.parts();
        let mut load = Some(value.into());
        core.put_pinned(pin, hash, |waiting| core.merge(waiting, load.take()))
    }

    /// Puts a value for the key, and returns a receipt; see
    /// [`ValueQueue::put_tracked`](crate::ValueQueue::put_tracked).
    pub fn put_tracked(&self, value: V) -> Receipt {
        let (core, pin, hash) = self.parts();
        let (load, receipt) = tracked(value);
        let mut load = Some(load);
        core.put_pinned(pin, hash, |waiting| core.merge(waiting, load.take()));
        receipt
    }

    /// Puts a value for the key, to be delivered after `delay`; see
    /// [`ValueQueue::put_after`](crate::ValueQueue::put_after).
    pub fn put_after(&self, value: V, delay: Duration) -> Added {
        let (core, pin, hash) = self.parts();
        core.put_after(pin.clone(), hash, value.into(), delay)
    }
}

/// Returns the load of a value, and the receipt for its delivery.
fn tracked<V>(value: V) -> (Load<V>, Receipt) {
    let (obligation, receipt) = receipt::receipt();
    let load = Load {
        receipts: vec![obligation],
        ..value.into()
    };
    (load, receipt)
}

impl<V> From<V> for Load<V> {
    fn from(value: V) -> Self {
        Load {
            value: Some(value),
            ..Load::default()
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Core<Valued<K, V>> {
    pub(super) fn merger(&self) -> &Merger<V> {
        let cargo = self.cargo().map(Cargo::as_any);
        let merger = cargo.and_then(<dyn Any>::downcast_ref);
        merger.expect("the queue was built with `Builder::merge`")
    }

    /// Merges `newer` into the value that waits.
    fn merge(&self, waiting: &mut Load<V>, newer: Option<Load<V>>) {
        if let Some(newer) = newer {
            self.merger().merge(waiting, newer);
        }
    }

    fn put(&self, hash: u64, key: K, load: Load<V>, granted: &mut usize) -> Added
    where
        K: Eq,
    {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let merger = self.merger();
        let weight = merger.weight(load.value.as_ref());
        let mut shard = self.keys.lock(hash);
        if let Some(node) = shard.find(hash, |known| known.key == key) {
            let mut load = Some(load);
            let fill = |waiting: &mut Load<V>| {
                self.merge(waiting, load.take());
                waiting.weight += mem::take(granted);
            };
            return self.put_found(shard, node, hash, fill);
        }
        // Read under the shard's lock, as in `Core::add`.
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let load = Load { weight, ..load };
        let surplus = merger.count(mem::take(granted), weight);
        let (entry, swept) = shard.insert_queued(hash, Valued::with(key, load));
        drop(shard);
        self.enqueue(entry);
        merger.release(surplus);
        drop(swept);
        Added::Queued
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
        if waiting.value.is_none() {
            return Err(value);
        }
        let added = self.mark_pinned(pin, hash);
        let mut load = Some(value.into());
        Ok(self.fill(waiting, added, |waiting| self.merge(waiting, load.take())))
    }

    /// Adds the key for which `eq` holds, if it is interned, and calls `fill` with what waits for its
    /// next delivery, unless the queue is shut down.
    fn put_known(
        &self,
        hash: u64,
        eq: impl FnMut(&Valued<K, V>) -> bool,
        fill: impl FnMut(&mut Load<V>),
    ) -> Option<Added> {
        if self.closing.has_begun() {
            return Some(Added::ShutDown);
        }
        let shard = self.keys.lock(hash);
        let node = shard.find(hash, eq)?;
        Some(self.put_found(shard, node, hash, fill))
    }

    fn put_found(
        &self,
        shard: Shard<'_, Valued<K, V>>,
        node: NodeRef<Valued<K, V>>,
        hash: u64,
        fill: impl FnMut(&mut Load<V>),
    ) -> Added {
        // SAFETY: in the table of a shard whose lock is held. Later the key is queued or dirty, and
        // no delivery of it can begin while `waiting` is locked, so the node stays interned; unless
        // the queue is shut down, and then it is not accessed any more.
        let key = unsafe { &node.get().key };
        let Some(waiting) = key.waiting.try_lock() else {
            // SAFETY: as above.
            let pinned = Pinned(unsafe { Pin::new(node) });
            drop(shard);
            return self.put_pinned(&pinned.0, hash, fill);
        };
        let added = self.add_found(&shard, node);
        if matches!(added, node::Added::Closed) {
            drop(waiting);
            return Added::ShutDown;
        }
        drop(shard);
        self.fill(waiting, added, fill)
    }

    fn put_pinned(
        &self,
        pin: &Pin<Valued<K, V>>,
        hash: u64,
        fill: impl FnMut(&mut Load<V>),
    ) -> Added {
        if self.closing.has_begun() {
            return Added::ShutDown;
        }
        let waiting = pin.key().waiting.lock();
        let added = self.mark_pinned(pin, hash);
        self.fill(waiting, added, fill)
    }

    /// Fills what waits for the next delivery of a key that has been added, and unlocks it. Then
    /// pushes the key's entry, also if `fill` panics.
    fn fill(
        &self,
        mut waiting: SpinLockGuard<'_, Load<V>>,
        added: node::Added<Valued<K, V>>,
        mut fill: impl FnMut(&mut Load<V>),
    ) -> Added {
        let filled = match added {
            node::Added::Closed => Ok(0),
            _ => catch_unwind(AssertUnwindSafe(|| {
                self.merger().change(&mut waiting, &mut fill)
            })),
        };
        drop(waiting);
        let added = self.settle(added);
        let surplus = filled.unwrap_or_else(|panic| resume_unwind(panic));
        self.merger().release(surplus);
        added
    }

    fn put_after(
        self: &Arc<Self>,
        pin: Pin<Valued<K, V>>,
        hash: u64,
        load: Load<V>,
        delay: Duration,
    ) -> Added {
        let pinned = Pinned(pin);
        let pin = &pinned.0;
        let mut load = Some(load);
        let fill = |waiting: &mut _| self.merge(waiting, load.take());
        if delay.is_zero() {
            let added = self.put_pinned(pin, hash, fill);
            if added.is_accepted() {
                self.note(Event::Retried);
            }
            return added;
        }
        let waiting = pin.key().waiting.lock();
        match self.delay(pin.clone(), hash, delay) {
            Added::ShutDown => Added::ShutDown,
            added => {
                // Nothing is to be pushed.
                self.fill(waiting, node::Added::Merged, fill);
                added
            }
        }
    }
}

/// A pin that ends when it is dropped.
struct Pinned<K>(Pin<K>);

impl<K> Drop for Pinned<K> {
    fn drop(&mut self) {
        self.0.unpin();
    }
}
