//! Putting values: [`super`] has the protocol.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::{Load, Valued};
use crate::keys::hash::hash_of;
use crate::wait::receipt::{Receipt, Receipts, receipt};
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
    /// function panics, or the one for the weight; then the key is queued all the same, with what the
    /// merge function has made of the older value (V4). Panics if the queue was built without
    /// [`merge`](crate::Builder::merge), which `WorkQueue::new` allows.
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
        let hash = hash_of(&self.hasher, &key);
        let level = self.core.default_level();
        self.core.put(hash, level, key, value.into())
    }

    /// Puts a value for a key at a level: [`put`](Self::put) as
    /// [`add_at`](crate::WorkQueue::add_at) is [`add`](crate::WorkQueue::add).
    ///
    /// ```
    /// # use keyqueue::{WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).levels(2).build()?;
    /// queue.put("a", 1); // at level 1, the default
    /// queue.put("b", 2);
    /// queue.put_at(0, "b", 3); // urgent now
    /// let item = queue.get().unwrap();
    /// assert_eq!((**item.key(), *item.value(), item.level()), ("b", 5, 0));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would.
    pub fn put_at(&self, level: usize, key: K, value: V) -> Added {
        let hash = hash_of(&self.hasher, &key);
        let level = self.core.clamp_level(level);
        self.core.put(hash, level, key, value.into())
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
        let eq = |known: &Valued<K, V>| known.key.borrow() == key;
        match core.put_known(hash, eq, value.into()) {
            Ok(added) => added,
            Err(load) => core.put(hash, core.default_level(), key.to_owned(), load),
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
        let hash = hash_of(&self.hasher, &key);
        let level = self.core.default_level();
        self.core
            .update(hash, level, key, |waiting| match &mut waiting.load.value {
                Some(value) => change(value),
                empty => {
                    // If `change` panics, there is no value.
                    let mut value = V::default();
                    change(&mut value);
                    *empty = Some(value);
                }
            })
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
        self.core.put(hash, self.core.default_level(), key, load);
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
    /// After a shut-down this finds the values of the delays that the shut-down has dropped, unless
    /// [`shrink`](crate::WorkQueue::shrink) has dropped them.
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
        let merger = core.merger();
        let hash = hash_of(&self.hasher, key);
        let pin = core
            .keys
            .lock(hash)
            .pin(hash, |known| known.key.borrow() == key)?;
        let waiting = pin.key().waiting.lock();
        if pin.delay().cancel() {
            core.note_cancelled();
        }
        let load = merger.take(waiting);
        pin.unpin();
        load.value
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, L, S: BuildHasher> ValueQueue<K, (), L, S> {
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

impl<K: Send + Sync + 'static, V: Send + 'static> KeyHandle<Valued<K, V>> {
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
        self.put_load(value.into())
    }

    fn put_load(&self, load: Load<V>) -> Added {
        let (core, pin, hash) = self.parts();
        let merger = core.merger();
        let change = merger.adding(load);
        core.put_pinned(pin, hash, core.default_level(), merger, change)
    }

    /// Puts a value for the key, and returns a receipt; see
    /// [`ValueQueue::put_tracked`](crate::ValueQueue::put_tracked).
    pub fn put_tracked(&self, value: V) -> Receipt {
        let (load, receipt) = tracked(value);
        self.put_load(load);
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
    let (obligation, receipt) = receipt();
    let load = Load {
        value: Some(value),
        receipts: Some(Receipts::of(obligation)),
    };
    (load, receipt)
}
