//! Values: what changed, merged for each key, and carried to the delivery.
//!
//! A [`ValueQueue`] is a [`WorkQueue`] whose keys are
//! [`Valued`]: the value is inside the key, and so in the key's node. The engine knows only the
//! trait [`Values`](crate::engine::values::Values), which [`Merger`] implements.
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
//!   so a put that a shut-down refuses has merged nothing. The values whose delivery a shut-down has
//!   ended stay where they are, until the queue is dropped.
//! * **The order of the puts is the order of the lock.** A delivery begins under the lock, so each
//!   put belongs to one delivery: before the begin to this one, and otherwise to the next.
//! * A put finds the key under its shard's lock, tries the key's lock, adds the key, and unlocks the
//!   shard. From then on the key is queued or dirty, and no getter can begin its delivery before the
//!   lock is free, so the node stays interned while the put merges. If another thread has the key's
//!   lock, the put pins the node and waits for the lock without the shard's.
//! * The order of locks is key, then shard. A thread that has a shard's lock does not wait for a
//!   key's.
//! * No value is dropped under the lock, unless user code drops it that runs there. What is left over, by
//!   [`merge::latest`] or an update that panics, is *outdated*: it is moved out, and dropped after the unlock and the push.
//! * The merge function is user code under the key's lock. It delays puts of this key, and the getter
//!   that delivers it, and must not call the queue. If it panics, `waiting` stays what it has made of it, the
//!   key is queued all the same, and the panic continues in the thread that put (V4). If it panics while
//!   a value is put back, only the panic hook reports that.
//! * A delivery that finds no value is finished immediately, and not handed out: the value was taken
//!   back, or another delivery before has taken it with its own.

mod builder;
mod core;
pub(crate) mod entry;
mod item;
mod left;
pub mod merge;
mod merger;
mod put;
mod remove;

use std::borrow::Borrow;
use std::cell::UnsafeCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::keys::node::Held;
use crate::sync::catch_panic::drop_caught;
use crate::sync::{SpinLock, assert_unlocked};
use crate::wait::receipt::{Ended, Receipts};
use crate::{DefaultHasher, Item, KeySnapshot, WorkQueue};
pub(crate) use merger::Merger;

/// A [`WorkQueue`] whose keys carry values, which are merged while they wait: a key comes with all that
/// was put for it since its last delivery. Built by [`Builder::merge`](crate::Builder::merge).
///
/// It is a `WorkQueue` whose keys are [`Valued`], so it has all of its methods. Those that have their
/// own names here are [`put`](Self::put), [`update`](Self::update) and [`remove`](Self::remove). The
/// [`entry`](WorkQueue::entry) of a key puts and updates with other settings: after a delay, at a level, with a
/// receipt, by a borrowed key, or within a bound.
///
/// A delivery takes the value; one that is put while the key is processing belongs to the next
/// delivery. A delivery that is retried or put back carries its value back, and newer values are
/// merged into it. Each value is in exactly one delivery that is finished (V1 to V4).
///
/// ```
/// use keyqueue::{ValueQueue, WorkQueue, merge};
///
/// let queue: ValueQueue<&str, Vec<&str>> = WorkQueue::builder().merge(merge::append).build()?;
/// std::thread::scope(|scope| {
///     let _end = queue.shut_down_on_drop();
///     scope.spawn(|| {
///         for item in &queue {
///             // In the order of the puts, and no other worker has this client now.
///             println!("{}: {:?}", item.key(), item.value());
///         }
///     });
///     queue.put("client-1", vec!["GET /"]);
///     queue.put("client-2", vec!["GET /"]);
///     queue.put("client-1", vec!["POST /cart"]);
/// });
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub type ValueQueue<K, V, S = DefaultHasher> = WorkQueue<Valued<K, V>, S>;

/// An [`Item`] with a value: what [`get`](WorkQueue::get) and its like return from a [`ValueQueue`]. It has
/// [`value`](Self::value), [`value_mut`](Self::value_mut) and [`take`](Self::take).
pub type ValueItem<'q, K, V, S = DefaultHasher> = Item<'q, Valued<K, V>, S>;

/// A key that carries a value: the key of a [`ValueQueue`].
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
    waiting: SpinLock<Waiting<V>>,
    /// Accessed only by the holder of the key: by a [`Held`].
    loaded: UnsafeCell<Load<V>>,
}

/// A value, and who waits for the end of its delivery.
struct Load<V> {
    value: Option<V>,
    receipts: Option<Box<Receipts>>,
}

/// What waits for the next delivery of a key.
struct Waiting<V> {
    load: Load<V>,
    /// The weight for which it counts in the bound of the queue: as an add, and as a retry. Of a retry, all of the
    /// value counts as one until it is delivered, whatever is put for it.
    weights: [usize; 2],
}

impl<V> Default for Load<V> {
    fn default() -> Self {
        Load {
            value: None,
            receipts: None,
        }
    }
}

impl<V> Load<V> {
    /// Changes the value, or a default one, which is `outdated` if `change` panics.
    #[inline]
    fn update(&mut self, change: impl FnOnce(&mut V), outdated: &mut Option<V>)
    where
        V: Default,
    {
        match &mut self.value {
            Some(value) => change(value),
            empty => {
                change(outdated.insert(V::default()));
                *empty = outdated.take();
            }
        }
    }

    #[inline]
    fn end(self, end: Option<Ended>) {
        if let Some(receipts) = self.receipts {
            receipts.fire(end);
        }
        if mem::needs_drop::<V>() {
            // The drop of the value is user code.
            assert_unlocked();
            drop_caught(self.value);
        }
    }
}

// SAFETY: `loaded` is accessed by the holder of the key alone, so values are sent between threads, and
// a reference to one is shared only by `Held::value`, which asks for `V: Sync`.
unsafe impl<K: Sync, V: Send> Sync for Valued<K, V> {}

impl<K, V> Valued<K, V> {
    fn with(key: K, load: Load<V>) -> Self {
        Valued {
            key,
            waiting: SpinLock::new(Waiting {
                load,
                weights: [0, 0],
            }),
            loaded: UnsafeCell::new(Load::default()),
        }
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    pub(crate) fn into_inner(self) -> K {
        self.key
    }

    /// Takes the value that waits for the next delivery, when there will be none.
    pub(crate) fn take_waiting(&self) -> Option<V> {
        self.waiting.lock().load.value.take()
    }
}

impl<K, V> KeySnapshot<'_, Valued<K, V>> {
    /// Calls `look` with the value that waits for the next delivery of the key, now, and returns what it returns; `None`
    /// is a key without one, such as a key whose delivery has it (X2).
    ///
    /// `look` runs under the lock of the key's value, as a merge function does: puts and a delivery of this key wait for
    /// it, so it should be short, and it must not call the queue.
    ///
    /// ```
    /// # use keyqueue::{Listed, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1, 2]);
    /// let page = queue.page(Default::default(), Listed::Queued, 10);
    /// let text = page.keys[0].with_value(|value| format!("{value:?}"));
    /// assert_eq!(text, "Some([1, 2])");
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn with_value<R>(&self, look: impl FnOnce(Option<&V>) -> R) -> R {
        let waiting = self.key().waiting.lock();
        look(waiting.load.value.as_ref())
    }
}

impl<K, V> Held<Valued<K, V>> {
    /// Returns what waits for the next delivery, and what this one has.
    #[inline]
    fn values(&mut self) -> (&SpinLock<Waiting<V>>, &mut Load<V>) {
        let key = self.key();
        // SAFETY: this is the right to process the key, and borrowed exclusively; nobody else accesses
        // `loaded`.
        (&key.waiting, unsafe { &mut *key.loaded.get() })
    }

    /// Returns the value that the delivery has.
    fn value(&self) -> Option<&V>
    where
        V: Sync,
    {
        // SAFETY: as above, but shared.
        unsafe { &(*self.key().loaded.get()).value }.as_ref()
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
