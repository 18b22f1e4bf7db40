//! Values: what changed, merged for each key, and carried to the delivery.
//!
//! A [`ValueQueue`](crate::ValueQueue) is a [`WorkQueue`](crate::WorkQueue) whose keys are
//! [`Valued`]: the value is inside the key, and so in the key's node. The engine knows only the
//! trait [`Cargo`](crate::engine::cargo::Cargo), which [`Merger`] implements.
//!
//! # The value of one key
//!
//! ```text
//!     waiting   what was put and is not delivered yet     behind the key's own lock
//!     loaded    what the delivery in progress has         only the holder of the key
//!
//!     put        locks, adds the key, merges into `waiting`, unlocks; then pushes the key's entry
//!     load       locks, begins the delivery, moves `waiting` to `loaded`, unlocks
//!     unload     drops `loaded`; then the key is finished
//!     put back   locks, adds the key again, merges `waiting` into `loaded`, which becomes `waiting`
//! ```
//!
//! # Protocol
//!
//! * **A value waits only if a delivery follows**: the key is queued or dirty, or has a pending delay,
//!   or the lock is held by the thread that is about to take the value away. A put adds the key first,
//!   so a put that a shut-down refuses has merged nothing.
//! * **The order of the puts is the order of the lock.** A delivery begins under the lock, so each
//!   put belongs to one delivery: before the begin to this one, and otherwise to the next.
//! * A put finds the key under its shard's lock, tries the key's lock, adds the key, and unlocks the
//!   shard. From then on the key is queued or dirty, and nobody can begin its delivery before the
//!   lock is free, so the node stays interned while the put merges. If another thread has the key's
//!   lock, the put pins the node and waits for the lock without the shard's.
//! * The order of locks is key, then shard. A thread that has a shard's lock does not wait for a
//!   key's.
//! * The merge function is user code under the key's lock. It delays puts and deliveries of this
//!   key alone, and must not call the queue. If it panics, `waiting` stays what it has made of it, the
//!   key is queued all the same, and the panic goes on in the thread that put (V4). If it panics while
//!   a value is put back, the panic hook alone reports that.
//! * A delivery that finds no value is finished immediately, and not handed out: the value was taken
//!   back, or another delivery before has taken it with its own.

mod item;
pub mod merge;
mod put;
pub(crate) mod put_wait;
pub(crate) mod receipt;
mod room;

use std::any::Any;
use std::borrow::Borrow;
use std::cell::UnsafeCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::thread;

use crate::engine::cargo::Cargo;
use crate::sync::{SpinLock, SpinLockGuard};
use crate::wait::catch_panic::catch_panic;
use receipt::{Ended, Obligation};
use room::Room;

/// A key that carries a value: the key of a [`ValueQueue`](crate::ValueQueue).
///
/// It hashes and compares like the key alone, and derefs to it. It shows the value to nobody: the
/// [item](crate::ValueItem) of a delivery does.
///
/// `Valued::from(key)` has no value. It is what [`handle`](crate::WorkQueue::handle) and
/// [`num_requeues`](crate::WorkQueue::num_requeues) of a `ValueQueue` take. Adding it, too, is
/// harmless: a key is delivered only with a value.
///
/// ```
/// # use keyqueue::Valued;
/// let key: Valued<String, u64> = String::from("pod").into();
/// assert_eq!(key.len(), 3); // of the `String`
/// assert_eq!(key.key(), "pod");
/// ```
pub struct Valued<K, V> {
    key: K,
    waiting: SpinLock<Load<V>>,
    /// Accessed only by the holder of the key.
    loaded: UnsafeCell<Load<V>>,
}

/// A value, and who waits for the end of its delivery.
struct Load<V> {
    value: Option<V>,
    receipts: Vec<Obligation>,
    /// The weight for which the value is counted in the queue's bound.
    weight: usize,
    /// How the delivery ends if nothing else happens.
    end: Ended,
}

impl<V> Default for Load<V> {
    fn default() -> Self {
        Load {
            value: None,
            receipts: Vec::new(),
            weight: 0,
            end: Ended::Done,
        }
    }
}

impl<V> Load<V> {
    fn end(self, end: Ended) {
        for receipt in self.receipts {
            receipt.fire(end);
        }
        // The drop of the value is user code.
        let _ = catch_panic(|| drop(self.value));
    }
}

// SAFETY: `loaded` is accessed by the holder of the key alone, so values are sent between threads, and
// a reference to one is shared only by `Item::value`, which asks for `V: Sync`.
unsafe impl<K: Sync, V: Send> Sync for Valued<K, V> {}

impl<K, V> Valued<K, V> {
    fn with(key: K, waiting: Load<V>) -> Self {
        Valued {
            key,
            waiting: SpinLock::new(waiting),
            loaded: UnsafeCell::new(Load::default()),
        }
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the value that the delivery in progress has.
    ///
    /// # Safety
    ///
    /// The caller is the holder of the key, and uses no other reference from this method meanwhile.
    #[inline]
    #[allow(
        clippy::mut_from_ref,
        reason = "the holder of the key has the exclusive right"
    )]
    pub(crate) unsafe fn loaded(&self) -> &mut Option<V> {
        // SAFETY: by the caller's promise.
        &mut unsafe { &mut *self.loaded.get() }.value
    }

    /// Takes the value that waits for the next delivery, when there will be none.
    pub(crate) fn take_waiting(&self) -> Option<V> {
        self.waiting.lock().value.take()
    }
}

/// The values of a queue: how they are merged, and how much may wait.
pub(crate) struct Merger<V> {
    merge: Box<MergeFn<V>>,
    /// `None` if the queue has no bound.
    room: Option<Room>,
    /// `None` if each value weighs 1.
    weight: Option<Box<WeightFn<V>>>,
}

type MergeFn<V> = dyn Fn(&mut V, V) + Send + Sync;

type WeightFn<V> = dyn Fn(&V) -> usize + Send + Sync;

impl<V> Merger<V> {
    pub(crate) fn new(merge: impl Fn(&mut V, V) + Send + Sync + 'static) -> Self {
        Merger {
            merge: Box::new(merge),
            room: None,
            weight: None,
        }
    }

    pub(crate) fn weigh_by(&mut self, weight: impl Fn(&V) -> usize + Send + Sync + 'static) {
        self.weight = Some(Box::new(weight));
    }

    /// Returns the weight of a value; 0 if the queue has no bound.
    fn weight(&self, value: Option<&V>) -> usize {
        match (value, &self.weight) {
            (Some(value), Some(weight)) if self.room.is_some() => weight(value),
            (Some(_), None) if self.room.is_some() => 1,
            _ => 0,
        }
    }

    /// Merges `newer` into `older`.
    fn merge(&self, older: &mut Load<V>, mut newer: Load<V>) {
        if let Some(value) = newer.value {
            match &mut older.value {
                Some(older) => (self.merge)(older, value),
                None => older.value = Some(value),
            }
        }
        older.receipts.append(&mut newer.receipts);
    }

    /// Changes what waits for the delivery of a key, by `change`, and counts its weight. Returns the
    /// weight to [release](Self::release) once the key is unlocked.
    #[must_use]
    fn change(&self, waiting: &mut Load<V>, change: impl FnOnce(&mut Load<V>)) -> usize {
        change(waiting);
        let weight = self.weight(waiting.value.as_ref());
        self.count(mem::replace(&mut waiting.weight, weight), weight)
    }

    /// Counts that what weighed `before` weighs `after`. Returns the weight to
    /// [release](Self::release) once the key is unlocked.
    #[must_use]
    fn count(&self, before: usize, after: usize) -> usize {
        if let Some(room) = &self.room {
            room.add(after.saturating_sub(before));
        }
        before.saturating_sub(after)
    }

    /// Makes room. Wakes those who wait for it, which is user code, so no lock is held.
    fn release(&self, weight: usize) {
        if let Some(room) = &self.room {
            room.release(weight);
        }
    }

    /// Takes what waits for a delivery, which makes room.
    fn take(&self, mut waiting: SpinLockGuard<'_, Load<V>>) -> Load<V> {
        let mut load = mem::take(&mut *waiting);
        drop(waiting);
        self.release(mem::take(&mut load.weight));
        load
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Cargo<Valued<K, V>> for Merger<V> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn bound(&mut self, capacity: usize) {
        self.room = Some(Room::new(capacity));
    }

    fn load(&self, key: &Valued<K, V>, begin: &mut dyn FnMut() -> bool) -> bool {
        let waiting = key.waiting.lock();
        if !begin() {
            return false;
        }
        let load = self.take(waiting);
        let is_loaded = load.value.is_some();
        // SAFETY: the caller holds the key since `begin`. What was here before is empty: the last
        // holder has unloaded it.
        unsafe { key.loaded.get().write(load) };
        is_loaded
    }

    fn unload(&self, key: &Valued<K, V>) {
        // SAFETY: the caller holds the key.
        let load = mem::take(unsafe { &mut *key.loaded.get() });
        let end = match thread::panicking() {
            true => Ended::GivenUp,
            false => load.end,
        };
        load.end(end);
    }

    fn end_as(&self, key: &Valued<K, V>, end: Ended) {
        // SAFETY: the caller holds the key.
        unsafe { &mut *key.loaded.get() }.end = end;
    }

    fn put_back(&self, key: &Valued<K, V>, add: &mut dyn FnMut() -> bool) {
        let mut waiting = key.waiting.lock();
        if !add() {
            return;
        }
        // SAFETY: the caller holds the key.
        let mut load = mem::take(unsafe { &mut *key.loaded.get() });
        load.end = Ended::Done;
        let mut newer = mem::replace(&mut *waiting, load);
        // The weight that is counted stays what it was.
        waiting.weight = newer.weight;
        let mut receipts = mem::take(&mut newer.receipts);
        let merged = catch_panic(|| {
            self.change(&mut waiting, |waiting| {
                self.merge(waiting, newer);
                waiting.receipts.append(&mut receipts);
            })
        });
        drop(waiting);
        // The panic hook has reported a panic, which concerns none of the work on this key. The newer
        // value is lost then, and `receipts` says so when it is dropped.
        if let Ok(surplus) = merged {
            self.release(surplus);
        }
    }

    fn discard(&self, key: &Valued<K, V>, decide: &mut dyn FnMut() -> bool) {
        let waiting = key.waiting.lock();
        if decide() {
            self.take(waiting).end(Ended::Dropped);
        }
    }

    fn strand(&self, key: &Valued<K, V>, decide: &mut dyn FnMut() -> bool) -> Vec<Obligation> {
        let mut waiting = key.waiting.lock();
        match decide() {
            true => mem::take(&mut waiting.receipts),
            false => Vec::new(),
        }
    }

    fn close(&self) {
        if let Some(room) = &self.room {
            room.close();
        }
    }
}

impl<K, V> From<K> for Valued<K, V> {
    fn from(key: K) -> Self {
        Valued::with(key, Load::default())
    }
}

impl<K, V> Deref for Valued<K, V> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K, V> Borrow<K> for Valued<K, V> {
    fn borrow(&self) -> &K {
        &self.key
    }
}

impl<K: PartialEq, V> PartialEq for Valued<K, V> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<K: Eq, V> Eq for Valued<K, V> {}

impl<K: Hash, V> Hash for Valued<K, V> {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key.hash(hasher);
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Valued<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

impl<K: fmt::Display, V> fmt::Display for Valued<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

// As for the queue, which stays consistent if user code panics.
impl<K: UnwindSafe, V> UnwindSafe for Valued<K, V> {}
impl<K: RefUnwindSafe, V> RefUnwindSafe for Valued<K, V> {}
