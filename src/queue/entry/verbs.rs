//! The verbs of an [`Entry`].

use super::edit::{Adding, Edit, Put, Touch, Update};
use super::key::{EntryKey, Spot};
use super::{Entry, Full};
use crate::Added;

/// What was added, or what there was no room for.
type Tried<T> = Result<Added, Full<T>>;

impl<K, V, X> Entry<'_, K, V, X>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    X: EntryKey<K, V>,
{
    /// Adds the key, as [`WorkQueue::add`](crate::WorkQueue::add) does, also if a bounded queue has no room for it.
    ///
    /// If keys carry values, this adds no value, and a key is delivered only with one: use [`put`](Self::put) or
    /// [`update`](Self::update).
    ///
    /// # Panics
    ///
    /// Panics if `Hash`, `Eq` or the copy of a borrowed key panics; then nothing was added.
    // In line, where the compiler sees which settings were made: an entry without any costs nothing then.
    #[inline(always)]
    pub fn add(self) -> Added {
        let is_plain = self.level.is_none()
            && self.delay.is_none()
            && self.patience.is_none()
            && self.receipts.is_none();
        match is_plain {
            true => self.key.add_plain(self.core),
            false => self.carry(Touch),
        }
    }

    /// Adds the key like [`add`](Self::add), unless the queue has no room for it, or others wait for room (B1, B2): then it
    /// returns [`Full`] with the key, or the reference to it. See [`Builder::capacity`](crate::Builder::capacity); in a queue without
    /// a bound there is always room.
    ///
    /// If keys are counted, a key that is queued, delayed or processing needs no room, and in a queue of values a
    /// key whose value waits. By weight, each put needs room; an update, whose weight is only known afterwards,
    /// needs room for 1.
    ///
    /// Adds that run at the same time may be refused for room that one of them holds only until it has found that its
    /// key is there already, or whose key is not queued yet.
    ///
    /// ```
    /// # use keyqueue::{Added, Full, WorkQueue};
    /// let queue = WorkQueue::<&str>::builder().capacity(2).build()?;
    /// assert_eq!(queue.entry("a").try_add(), Ok(Added::Queued));
    /// assert_eq!(queue.entry("b").try_add(), Ok(Added::Queued));
    /// assert_eq!(queue.entry("a").try_add(), Ok(Added::Merged)); // needs no room
    /// assert_eq!(queue.entry("c").try_add(), Err(Full("c")));
    /// let item = queue.get().unwrap(); // makes room
    /// assert_eq!(queue.entry("c").try_add(), Ok(Added::Queued));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[inline]
    pub fn try_add(self) -> Result<Added, Full<X::Back>> {
        let added = self.try_carry(Touch);
        added.map_err(|Full((key, ()))| Full(key))
    }

    /// Adds the key like [`add`](Self::add), and waits for room in a task, of any executor, as
    /// [`wait`](Self::wait) does in a thread; with [`within`](Self::within) at most until that limit is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready drops the key, and loses its place among the adds that
    /// wait. It has added nothing then.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::<&str>::builder().capacity(1).build()?;
    /// assert_eq!(queue.entry("a").add_async().await, Added::Queued);
    /// let add = queue.entry("b").add_async();
    /// let get = async { queue.get_async().await.unwrap().done() };
    /// assert_eq!(futures_lite::future::zip(add, get).await.0, Added::Queued);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) would.
    pub async fn add_async(self) -> Added {
        self.carry_async(Touch).await
    }

    /// Adds the key with a value, as [`WorkQueue::put`](crate::WorkQueue::put) does. In a queue
    /// without values this is [`add`](Self::add).
    ///
    /// By [weight](crate::Builder::weight), the value needs room for its own.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let builder = WorkQueue::<u32>::builder().merge(|text: &mut String, new: String| text.push_str(&new));
    /// let queue = builder.capacity(1000).weight(String::len).build()?;
    /// std::thread::scope(|scope| {
    ///     let _end = queue.shut_down_on_drop();
    ///     let worker = scope.spawn(|| queue.iter().map(|item| item.value().len()).sum::<usize>());
    ///     for n in 0..100 {
    ///         queue.entry(n).wait().put("x".repeat(100));
    ///     }
    ///     queue.shut_down_with_drain();
    ///     assert_eq!(worker.join().unwrap(), 10_000);
    /// });
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `put` would, or if the function for the weight panics: nothing was put
    /// then, or the value was put and is not counted.
    #[doc(alias("push", "send", "upsert"))]
    #[inline]
    pub fn put(self, value: V) -> Added {
        self.carry(Put(value))
    }

    /// Puts a value like [`put`](Self::put), unless the queue has no room for it, as [`try_add`](Self::try_add) has it: then
    /// it returns [`Full`] with the key, or the reference to it, and the value.
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would.
    #[inline]
    pub fn try_put(self, value: V) -> Result<Added, Full<(X::Back, V)>> {
        self.try_carry(Put(value))
    }

    /// Puts a value like [`put`](Self::put), and waits for room in a task, of any executor, as
    /// [`wait`](Self::wait) does in a thread; with [`within`](Self::within) at most until that limit is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready drops the key and the value, and loses its place among
    /// the adds that wait. It has put nothing then.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::builder().merge(merge::latest).capacity(1).build()?;
    /// assert_eq!(queue.entry("a").put_async(1).await, Added::Queued);
    /// let put = queue.entry("b").put_async(2);
    /// let get = async { queue.get_async().await.unwrap().done() };
    /// assert_eq!(futures_lite::future::zip(put, get).await.0, Added::Queued);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would.
    pub async fn put_async(self, value: V) -> Added {
        self.carry_async(Put(value)).await
    }

    /// Adds the key, and changes the value that waits for its delivery in place, or a default one if none waits. In a queue
    /// without values, `change` is called with a value that is dropped.
    ///
    /// By [weight](crate::Builder::weight), an update needs room for 1. What it adds beyond that is counted, and may
    /// exceed the bound.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// let builder = WorkQueue::<String>::builder().merge(merge::append).capacity(100).weight(Vec::len);
    /// let queue = builder.build()?;
    /// for event in [1, 2, 3] {
    ///     // Allocates nothing for a client that is known, but for what the value needs.
    ///     queue.entry_ref("client").wait().update(|events| events.push(event));
    /// }
    /// assert_eq!(*queue.get().unwrap().value(), [1, 2, 3]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would, with `change` for the merge function.
    #[inline]
    pub fn update(self, change: impl FnOnce(&mut V)) -> Added
    where
        V: Default,
    {
        self.carry(Update(change))
    }

    /// Updates the value like [`update`](Self::update), unless the queue has no room, as [`try_add`](Self::try_add) has it:
    /// then it returns [`Full`] with the key, or the reference to it, and `change`, which was not called.
    ///
    /// # Panics
    ///
    /// Panics if [`update`](Self::update) would.
    #[inline]
    pub fn try_update<F: FnOnce(&mut V)>(self, change: F) -> Result<Added, Full<(X::Back, F)>>
    where
        V: Default,
    {
        self.try_carry(Update(change))
    }

    /// Updates the value like [`update`](Self::update), and waits for room in a task as
    /// [`put_async`](Self::put_async) does, with the same limit and cancel safety.
    ///
    /// # Panics
    ///
    /// Panics if [`update`](Self::update) would.
    pub async fn update_async(self, change: impl FnOnce(&mut V)) -> Added
    where
        V: Default,
    {
        self.carry_async(Update(change)).await
    }

    #[inline]
    fn carry<E: Edit<V>>(self, edit: E) -> Added {
        let patience = self.patience;
        self.with(edit).run_or_exceed(patience)
    }

    #[inline]
    fn try_carry<E: Edit<V>>(self, edit: E) -> Tried<(X::Back, E::Given)> {
        let patience = self.patience;
        let added = self.with(edit).run(patience);
        added.map_err(|full| Full((full.key.back(), full.edit.back())))
    }

    async fn carry_async<E: Edit<V>>(self, edit: E) -> Added {
        let patience = self.patience;
        self.with(edit).run_async(patience).await
    }
}

impl<'q, K, V, X> Entry<'q, K, V, X> {
    #[inline]
    fn with<E>(self, edit: E) -> Adding<'q, K, V, X, E> {
        let Entry {
            core, key, delay, ..
        } = self;
        let level = self.level.unwrap_or_else(|| core.default_level());
        Adding {
            at: Spot { core, level },
            key,
            delay,
            edit,
            receipts: self.receipts,
        }
    }
}
