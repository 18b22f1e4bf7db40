//! Entries of queues of values: puts and updates. [`super`] has the protocol of values, and
//! [`crate::wait::room`] that of the bound.

use super::{Load, Merger, Valued, Waiting};
use crate::queue::entry::admission::{Admission, Attempt, run_async};
use crate::queue::entry::key::{Borrowed, EntryKey, IntoKey, Key, Owned, Spot, Stored};
use crate::queue::entry::{self, Entry, Target, Tracked, Tracking};
use crate::wait::receipt::{Receipts, receipt};
use crate::wait::room::{Share, Turn};
use crate::{Added, KeyHandle, Receipt};

impl<K, V> Stored<Valued<K, V>> for K {
    #[inline]
    fn into_key(self) -> Valued<K, V> {
        self.into()
    }

    fn from_key(key: Valued<K, V>) -> K {
        key.into_inner()
    }

    #[inline]
    fn of(key: &Valued<K, V>) -> &K {
        key.key()
    }
}

/// The key of an [`Entry`] of a queue of values: see [`EntryKey`].
#[expect(private_bounds, reason = "sealed")]
pub trait ValueKey<K, V>: EntryKey<Valued<K, V>> + Change<K, V> {}

impl<K, V, X: EntryKey<Valued<K, V>> + Change<K, V>> ValueKey<K, V> for X {}

/// How the key of an entry is added at a level, and what waits for its next delivery is changed.
trait Change<K, V>: Key<Valued<K, V>> {
    fn change(
        self,
        at: Spot<'_, Valued<K, V>>,
        change: impl FnOnce(&Merger<V>, &mut Waiting<V>, &mut Option<V>),
    ) -> Added;
}

impl<K, V, P> Change<K, V> for Owned<P>
where
    K: Eq + Send + Sync + 'static,
    V: Send + 'static,
    P: IntoKey<Valued<K, V>>,
{
    #[inline]
    fn change(
        self,
        at: Spot<'_, Valued<K, V>>,
        change: impl FnOnce(&Merger<V>, &mut Waiting<V>, &mut Option<V>),
    ) -> Added {
        at.core.update(self.hash, at.level, self.key, change)
    }
}

impl<K, V, Q> Change<K, V> for Borrowed<'_, Q>
where
    K: Eq + Send + Sync + 'static,
    V: Send + 'static,
    Q: ToOwned<Owned: IntoKey<Valued<K, V>>> + Eq + ?Sized,
{
    #[inline]
    fn change(
        self,
        at: Spot<'_, Valued<K, V>>,
        change: impl FnOnce(&Merger<V>, &mut Waiting<V>, &mut Option<V>),
    ) -> Added {
        let known = at
            .core
            .update_known(self.hash, at.level, |known| self.is(known), change);
        known.unwrap_or_else(|change| at.core.update(self.hash, at.level, self.to_owned(), change))
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Change<K, V> for &KeyHandle<Valued<K, V>> {
    #[inline]
    fn change(
        self,
        at: Spot<'_, Valued<K, V>>,
        change: impl FnOnce(&Merger<V>, &mut Waiting<V>, &mut Option<V>),
    ) -> Added {
        at.core.put_pinned(KeyHandle::pin(self), at.level, change)
    }
}

impl<'q, K, V, X, W> Entry<'q, Valued<K, V>, X, W> {
    /// Makes the verb also return a [`Receipt`], which ends when the delivery of the value has
    /// ended: to acknowledge a message after the work.
    ///
    /// Several adds may share one delivery; each of their receipts ends then. The receipt of an add that
    /// the queue refuses because it is shut down has ended already, as [`Ended::Dropped`](crate::Ended::Dropped).
    ///
    /// ```
    /// # use keyqueue::{Ended, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// let (_, first) = queue.entry("a").tracked().put(1);
    /// let (_, second) = queue.entry("a").tracked().update(|sum| *sum += 2);
    /// let item = queue.get().unwrap();
    /// let (_, third) = queue.entry("a").tracked().put(3); // for the next delivery
    /// item.done();
    /// assert_eq!((first.wait(), second.wait()), (Ended::Done, Ended::Done));
    /// assert_eq!(third.ended(), None);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("ack", "acknowledge"))]
    #[inline]
    pub fn tracked(self) -> Entry<'q, Valued<K, V>, X, W, Tracked> {
        Entry::with(self.target, self.patience)
    }
}

/// What a verb does to the value that waits.
trait Edit<V> {
    /// What the caller gave.
    type Given;

    /// Returns the weight for which it needs room.
    fn weight(&self, merger: &Merger<V>) -> usize;

    fn apply(self, merger: &Merger<V>, waiting: &mut Load<V>, outdated: &mut Option<V>);

    fn back(self) -> Self::Given;
}

struct Put<V>(V);

impl<V> Edit<V> for Put<V> {
    type Given = V;

    fn weight(&self, merger: &Merger<V>) -> usize {
        merger.weight(&self.0)
    }

    #[inline]
    fn apply(self, merger: &Merger<V>, waiting: &mut Load<V>, outdated: &mut Option<V>) {
        merger.merge(waiting, self.0.into(), outdated);
    }

    fn back(self) -> V {
        self.0
    }
}

struct Update<F>(F);

impl<V: Default, F: FnOnce(&mut V)> Edit<V> for Update<F> {
    type Given = F;

    /// The least: how much it adds is only known afterwards.
    fn weight(&self, _: &Merger<V>) -> usize {
        1
    }

    #[inline]
    fn apply(self, _: &Merger<V>, waiting: &mut Load<V>, outdated: &mut Option<V>) {
        waiting.update(self.0, outdated);
    }

    fn back(self) -> F {
        self.0
    }
}

/// A put or an update that has not happened yet.
struct Carried<'q, K, V, X, E> {
    target: Target<'q, Valued<K, V>, X>,
    edit: E,
    receipts: Option<Box<Receipts>>,
}

impl<'q, K, V, X, E> Attempt for Carried<'q, K, V, X, E>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    X: Change<K, V>,
    E: Edit<V>,
{
    type Turn = Turn<'q>;

    fn attempt(mut self, admission: Admission<Turn<'q>>) -> Result<Added, Self> {
        let core = self.target.at.core;
        let merger = core.merger();
        let turn = match (admission, &merger.room) {
            (Admission::Granted(turn), _) => Some(turn),
            (Admission::Exceeding, _) | (_, None) => None,
            // What a shut-down leaves behind takes room for good, so the caller would never learn of it.
            (Admission::Within, Some(_)) if core.is_shutting_down() => return Ok(Added::ShutDown),
            (Admission::Within, Some(room)) => {
                match Turn::try_new(room, self.edit.weight(merger)) {
                    Some(turn) => Some(turn),
                    // Together with a value that waits already, this one weighs 1: it needs no room (B1).
                    None if merger.weight.is_none() => {
                        self = match self.attempt_merge() {
                            Ok(added) => return Ok(added),
                            Err(carried) => carried,
                        };
                        // The value may have been all that took room, until it was delivered.
                        match Turn::try_new(room, 1) {
                            Some(turn) => Some(turn),
                            None => return Err(self),
                        }
                    }
                    None => return Err(self),
                }
            }
        };
        Ok(self.attempt_in(turn))
    }

    fn turn(&self) -> Turn<'q> {
        let merger = self.target.at.core.merger();
        let room = merger.room.as_ref().expect("only a bounded queue is full");
        Turn::new(room, self.edit.weight(merger))
    }
}

impl<K, V, X, E> Carried<'_, K, V, X, E>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    X: Change<K, V>,
    E: Edit<V>,
{
    /// Adds what there is room for. It is counted for the weight of the turn, and so never twice.
    #[inline]
    fn attempt_in(self, turn: Option<Turn<'_>>) -> Added {
        let Target { at, key, delay } = self.target;
        let Spot { core, level } = at;
        let (edit, receipts) = (self.edit, self.receipts);
        let change = move |merger: &Merger<V>, waiting: &mut Waiting<V>, outdated: &mut _| {
            if let Some(mut turn) = turn {
                waiting.weights[usize::from(false)] += turn.take();
            }
            apply(merger, edit, receipts, waiting, outdated);
        };
        if delay.is_none() {
            return key.change(at, change);
        }
        if core.is_shutting_down() {
            return Added::ShutDown;
        }
        let pinned = key.pin(at, &mut Share::exceeding(None));
        let Ok((pinned, _key)) = pinned else {
            unreachable!("the bound of a queue of values is the merger's")
        };
        let added = core.update_pinned(&pinned.0, (level, delay), false, change);
        added.unwrap_or_else(|_| unreachable!("it need not merge"))
    }

    /// Adds if the value of the key waits.
    #[cold]
    fn attempt_merge(self) -> Result<Added, Self> {
        let Carried {
            target,
            edit,
            receipts,
        } = self;
        let Spot { core, level } = target.at;
        let delay = target.delay;
        let mut carried = Some((edit, receipts));
        if let Some(pinned) = target.key.find(target.at) {
            let change = |merger: &Merger<V>, waiting: &mut Waiting<V>, outdated: &mut _| {
                let (edit, receipts) = carried.take().expect("called once");
                apply(merger, edit, receipts, waiting, outdated);
            };
            if let Ok(added) = core.update_pinned(&pinned.0, (level, delay), true, change) {
                return Ok(added);
            }
        }
        let (edit, receipts) = carried.expect("nothing was changed");
        Err(Carried {
            target,
            edit,
            receipts,
        })
    }
}

fn apply<V>(
    merger: &Merger<V>,
    edit: impl Edit<V>,
    receipts: Option<Box<Receipts>>,
    waiting: &mut Waiting<V>,
    outdated: &mut Option<V>,
) {
    edit.apply(merger, &mut waiting.load, outdated);
    if receipts.is_some() {
        let value = None;
        merger.merge(&mut waiting.load, Load { value, receipts }, outdated);
    }
}

impl<K, V, X, W, T> Entry<'_, Valued<K, V>, X, W, T>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    X: ValueKey<K, V>,
    W: entry::Waiting,
    T: Tracking,
{
    /// Adds the key with a value, as [`ValueQueue::put`](crate::ValueQueue::put) does. [`Full`](crate::Full) gives
    /// back the key, or the reference to it, and the value.
    ///
    /// By [weight](crate::Builder::weight), the value needs room for its own.
    ///
    /// ```
    /// # use keyqueue::{ValueQueue, WorkQueue};
    /// let builder = WorkQueue::builder().merge(|text: &mut String, new: String| text.push_str(&new));
    /// let queue: ValueQueue<u64, String> = builder.capacity(1000).weight(String::len).build()?;
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
    pub fn put(self, value: V) -> W::Result<T::Output, (X::Back, V)> {
        self.carry(Put(value), |key, value| (key, value))
    }

    /// Adds the key, and changes the value that waits for its delivery, or a default one, as
    /// [`ValueQueue::update`](crate::ValueQueue::update) does. [`Full`](crate::Full) gives back the key, or the
    /// reference to it, and `change`.
    ///
    /// By [weight](crate::Builder::weight), an update needs room for 1. What it adds beyond that is counted, and may
    /// exceed the bound.
    ///
    /// ```
    /// # use keyqueue::{Added, ValueQueue, WorkQueue, merge};
    /// let builder = WorkQueue::builder().merge(merge::append).capacity(100).weight(Vec::len);
    /// let queue: ValueQueue<String, Vec<u32>> = builder.build()?;
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
    pub fn update<F: FnOnce(&mut V)>(self, change: F) -> W::Result<T::Output, (X::Back, F)>
    where
        V: Default,
    {
        self.carry(Update(change), |key, change| (key, change))
    }

    #[inline]
    fn carry<E: Edit<V>, B>(
        self,
        edit: E,
        back: impl FnOnce(X::Back, E::Given) -> B,
    ) -> W::Result<T::Output, B> {
        let patience = self.patience;
        let (carried, receipt) = carry(self, edit);
        W::result(match carried.run(patience) {
            Ok(added) => Ok(T::output(added, receipt)),
            Err(full) => Err(back(full.target.key.back(), full.edit.back())),
        })
    }
}

impl<K, V, X, T> Entry<'_, Valued<K, V>, X, entry::Exceeds, T>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    X: ValueKey<K, V>,
    T: Tracking,
{
    /// Puts a value like [`put`](Self::put), and waits for room in a task, of any executor, as
    /// [`wait`](Self::wait) does in a thread.
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
    pub async fn put_async(self, value: V) -> T::Output {
        let (carried, receipt) = carry(self, Put(value));
        T::output(run_async(carried).await, receipt)
    }

    /// Updates the value like [`update`](Self::update), and waits for room in a task as
    /// [`put_async`](Self::put_async) does, with the same cancel safety.
    ///
    /// # Panics
    ///
    /// Panics if [`update`](Self::update) would.
    pub async fn update_async(self, change: impl FnOnce(&mut V)) -> T::Output
    where
        V: Default,
    {
        let (carried, receipt) = carry(self, Update(change));
        T::output(run_async(carried).await, receipt)
    }
}

impl<K, V, X, W> Entry<'_, Valued<K, V>, X, W, Tracked>
where
    K: Send + Sync + 'static,
    V: Default + Send + 'static,
    X: ValueKey<K, V>,
    W: entry::Waiting,
{
    /// Adds the key with a default value, unless it has one that waits: [`update`](Self::update) that changes
    /// nothing.
    ///
    /// ```
    /// # use keyqueue::{Ended, ValueQueue, WorkQueue, merge};
    /// let queue: ValueQueue<&str, ()> = WorkQueue::builder().merge(merge::latest).build()?;
    /// let (_, receipt) = queue.entry("a").tracked().add();
    /// queue.get().unwrap().done();
    /// assert_eq!(receipt.wait(), Ended::Done);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would.
    pub fn add(self) -> W::Result<<Tracked as Tracking>::Output, X::Back> {
        self.carry(Update(|_: &mut V| ()), |key, _| key)
    }
}

impl<K, V, X> Entry<'_, Valued<K, V>, X, entry::Exceeds, Tracked>
where
    K: Send + Sync + 'static,
    V: Default + Send + 'static,
    X: ValueKey<K, V>,
{
    /// Adds the key like [`add`](Self::add), and waits for room in a task as [`put_async`](Self::put_async) does, with
    /// the same cancel safety.
    ///
    /// # Panics
    ///
    /// Panics if [`add`](Self::add) would.
    pub async fn add_async(self) -> <Tracked as Tracking>::Output {
        self.update_async(|_| ()).await
    }
}

/// Returns what an entry adds, and the receipt for it.
#[inline]
fn carry<'q, K, V, X, W, T: Tracking, E>(
    entry: Entry<'q, Valued<K, V>, X, W, T>,
    edit: E,
) -> (Carried<'q, K, V, X, E>, Option<Receipt>) {
    let (receipts, receipt) = T::IS_TRACKED
        .then(|| {
            let (obligation, receipt) = receipt();
            (Receipts::of(obligation), receipt)
        })
        .unzip();
    let target = entry.target;
    (
        Carried {
            target,
            edit,
            receipts,
        },
        receipt,
    )
}
