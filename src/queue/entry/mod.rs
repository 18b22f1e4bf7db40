//! One way to add (V6): a key, how it is added, and what is done with it. This is the public face of it; puts and
//! updates are in [`crate::values`].

pub(crate) mod admission;
pub(crate) mod key;

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::time::Duration;

use crate::engine::Core;
use crate::keys::hash::hash_of;
use crate::sync::Arc;
use crate::timer::Wait;
use crate::wait::receipt::Receipt;
use crate::wait::room::Turn;
use crate::{Added, KeyHandle, WorkQueue};
use admission::{Admission, Attempt, Patience, run_async};
use key::{Borrowed, EntryKey, IntoKey, Owned};
use key::{Key, Spot};

/// A key that is about to be added (V6): first how, then a verb.
///
/// | setting | without it |
/// | --- | --- |
/// | [`level`](Self::level) | the queue's [default level](crate::Builder::default_level) |
/// | [`after`](Self::after) or [`debounce`](Self::debounce) | now |
/// | [`tracked`](Self::tracked), in queues of values | no receipt |
/// | [`refuse`](Self::refuse), [`wait`](Self::wait) or [`within`](Self::within) | the add exceeds the [bound](crate::Builder::capacity) of the queue |
///
/// | verb | |
/// | --- | --- |
/// | [`add`](Self::add) | adds the key, as [`WorkQueue::add`] does |
/// | [`put`](Self::put) | adds it with a value, as [`ValueQueue::put`](crate::ValueQueue::put) does |
/// | [`update`](Self::update) | adds it and changes its value, as [`ValueQueue::update`](crate::ValueQueue::update) does |
/// | [`add_async`](Self::add_async), [`put_async`](Self::put_async), [`update_async`](Self::update_async) | the same, and waits for room in a task |
///
/// All settings go with each other and with each verb. An entry adds nothing by itself: it holds no lock and no place.
///
/// ```
/// use keyqueue::{Added, Full, ValueQueue, WorkQueue, merge};
/// use std::time::Duration;
///
/// let builder = WorkQueue::builder().merge(merge::append).levels(3).capacity(1);
/// let queue: ValueQueue<String, Vec<u32>> = builder.build()?;
/// let delay = Duration::from_millis(100);
/// let (added, receipt) = queue.entry_ref("a").level(0).after(delay).tracked().put(vec![1]);
/// assert_eq!(added, Added::Delayed);
/// let Full((key, value)) = queue.entry_ref("b").refuse().put(vec![2]).unwrap_err();
/// assert_eq!((key, value), ("b", vec![2]));
///
/// let item = queue.get().unwrap(); // a tenth of a second later
/// assert_eq!((item.level(), item.value().len()), (0, 1));
/// assert_eq!(queue.entry_ref("b").wait().update(|value| value.push(3)), Added::Queued);
/// item.done();
/// assert_eq!(receipt.wait(), keyqueue::Ended::Done);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[must_use = "an entry adds nothing before `add`, `put` or `update`"]
pub struct Entry<'q, N, X, W = Exceeds, T = Untracked> {
    pub(crate) target: Target<'q, N, X>,
    pub(crate) patience: Patience,
    modes: PhantomData<(W, T)>,
}

/// Where and when an entry adds its key.
pub(crate) struct Target<'q, N, X> {
    pub(crate) at: Spot<'q, N>,
    pub(crate) key: X,
    pub(crate) delay: Option<Wait>,
}

/// What the verbs of an [`Entry`] return: of one that does not fail for lack of room just what was added, and
/// otherwise a [`Result`], whose error has what was passed.
pub trait Waiting {
    /// What a verb returns.
    type Result<T, B>;

    #[doc(hidden)]
    fn result<T, B>(added: Result<T, B>) -> Self::Result<T, B>;
}

/// An entry that exceeds the bound of the queue.
#[derive(Debug)]
pub struct Exceeds;

/// An entry that [waits](Entry::wait) for room.
#[derive(Debug)]
pub struct Waits;

/// An entry that is refused if there is no room [now](Entry::refuse) or [in time](Entry::within).
#[derive(Debug)]
pub struct Refuses;

macro_rules! never_fails {
    ($($mode:ident),*) => {$(
        impl Waiting for $mode {
            type Result<T, B> = T;

            #[inline]
            fn result<T, B>(added: Result<T, B>) -> T {
                added.unwrap_or_else(|_| unreachable!("it is not refused for lack of room"))
            }
        }
    )*};
}

never_fails!(Exceeds, Waits);

impl Waiting for Refuses {
    type Result<T, B> = Result<T, Full<B>>;

    #[inline]
    fn result<T, B>(added: Result<T, B>) -> Result<T, Full<B>> {
        added.map_err(Full)
    }
}

/// What the verbs of an [`Entry`] return of what was added.
pub trait Tracking {
    /// [`Added`], or also a [`Receipt`].
    type Output;

    #[doc(hidden)]
    const IS_TRACKED: bool;

    #[doc(hidden)]
    fn output(added: Added, receipt: Option<Receipt>) -> Self::Output;
}

/// An entry without a receipt.
#[derive(Debug)]
pub struct Untracked;

/// An entry with a [receipt](Entry::tracked).
#[derive(Debug)]
pub struct Tracked;

impl Tracking for Untracked {
    type Output = Added;
    const IS_TRACKED: bool = false;

    #[inline]
    fn output(added: Added, _: Option<Receipt>) -> Added {
        added
    }
}

impl Tracking for Tracked {
    type Output = (Added, Receipt);
    const IS_TRACKED: bool = true;

    fn output(added: Added, receipt: Option<Receipt>) -> (Added, Receipt) {
        (added, receipt.expect("a tracked entry has one"))
    }
}

impl<N: Hash + Eq + Send + Sync + 'static, S: BuildHasher> WorkQueue<N, S> {
    /// Returns the entry of a key, to add it with other settings than [`add`](Self::add) does: see [`Entry`].
    ///
    /// In a [`ValueQueue<K, V>`](crate::ValueQueue) the key is a `K`.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::<&str>::builder().levels(2).capacity(10).build()?;
    /// assert_eq!(queue.entry("a").level(0).refuse().add(), Ok(Added::Queued));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the key's `Hash` panics.
    #[inline]
    pub fn entry<P: IntoKey<N>>(&self, key: P) -> Entry<'_, N, Owned<P>> {
        let hash = hash_of(&self.hasher, &key);
        Entry::new(&self.core, Owned { key, hash })
    }

    /// Returns the entry of a key by a borrowed form of it, which is copied only if the key is unknown. Otherwise like
    /// [`entry`](Self::entry).
    ///
    /// ```
    /// # use keyqueue::{Added, ValueQueue, WorkQueue, merge};
    /// let queue: ValueQueue<String, _> = WorkQueue::builder().merge(merge::latest).build()?;
    /// assert_eq!(queue.entry_ref("sensor").put(1), Added::Queued);
    /// assert_eq!(queue.entry_ref("sensor").put(2), Added::Merged); // allocates nothing
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the key's `Hash` panics.
    #[inline]
    pub fn entry_ref<'k, Q>(&self, key: &'k Q) -> Entry<'_, N, Borrowed<'k, Q>>
    where
        Q: Hash + Eq + ToOwned<Owned: IntoKey<N>> + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        Entry::new(&self.core, Borrowed { key, hash })
    }
}

impl<N> KeyHandle<N> {
    /// Returns the entry of the key, to add it without hashing and without the table: see [`Entry`].
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::builder().levels(2).build()?;
    /// let handle = queue.handle("a");
    /// assert_eq!(handle.entry().level(0).add(), Added::Queued);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[inline]
    pub fn entry(&self) -> Entry<'_, N, &Self> {
        Entry::new(self.parts().0, self)
    }
}

impl<'q, N, X> Entry<'q, N, X> {
    #[inline]
    fn new(core: &'q Arc<Core<N>>, key: X) -> Self {
        let level = core.default_level();
        let at = Spot { core, level };
        let delay = None;
        let target = Target { at, key, delay };
        Entry::with(target, Patience::Exceeds)
    }
}

impl<'q, N, X, W, T> Entry<'q, N, X, W, T> {
    #[inline]
    pub(crate) fn with(target: Target<'q, N, X>, patience: Patience) -> Self {
        Entry {
            target,
            patience,
            modes: PhantomData,
        }
    }

    /// Adds at a level, 0 being the most urgent, of a queue with [levels](crate::Builder::levels) (P1 to P4).
    ///
    /// If the key is queued at a less urgent level, it is moved to the tail of this one. If it is
    /// queued at a more urgent one, nothing changes. A key that is added while it is processing is
    /// queued at the most urgent level at which it was added meanwhile; one that is delayed, at the most urgent
    /// at which it was delayed.
    ///
    /// A level that the queue does not have counts as the least urgent one; a queue without levels has
    /// only level 0.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::builder().levels(3).build()?; // `add` adds at level 1
    /// queue.add_all(["a", "b", "c"]);
    /// assert_eq!(queue.entry("later").level(2).add(), Added::Queued);
    /// assert_eq!(queue.entry("c").level(0).add(), Added::Merged); // urgent now
    /// assert_eq!(queue.entry("a").level(2).add(), Added::Merged); // not less urgent
    ///
    /// let order = [(); 4].map(|()| queue.get().map(|item| (*item, item.level())));
    /// assert_eq!(order.map(Option::unwrap), [("c", 0), ("a", 1), ("b", 1), ("later", 2)]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("add_with_priority", "priority", "urgent"))]
    #[inline]
    pub fn level(mut self, level: usize) -> Self {
        self.target.at.level = self.target.at.core.clamp_level(level);
        self
    }

    /// Adds after `delay`, as [`add_after`](WorkQueue::add_after) does: a key has one pending delay, and
    /// the queue's [`DelayPolicy`](crate::DelayPolicy) decides between two.
    ///
    /// A value is delivered with the key: no earlier, unless the key is delivered before for another reason, for
    /// example because of a [`put`](crate::ValueQueue::put). Then it goes with that delivery, in the order in
    /// which the values were put. A delay that is [cancelled](WorkQueue::cancel) drops the value, unless the key is
    /// queued, too.
    ///
    /// Room of a bounded queue is taken when the delay is set.
    ///
    /// ```
    /// # use keyqueue::{Added, Clock, WorkQueue, merge};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).manual_timers();
    /// let queue = builder.merge(merge::append).build()?;
    /// let after = |delay| queue.entry("a").after(Duration::from_secs(delay));
    /// assert_eq!(after(1).put(vec![1]), Added::Delayed);
    /// assert_eq!(after(9).put(vec![2]), Added::Delayed); // 1 s counts
    /// assert!(queue.try_get().is_err());
    /// time.advance(Duration::from_secs(1));
    /// queue.fire_due();
    /// assert_eq!(*queue.get().unwrap().value(), [1, 2]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias = "schedule")]
    #[inline]
    pub fn after(mut self, delay: Duration) -> Self {
        self.target.delay = Some(delay.into());
        self
    }

    /// Adds once the key has been quiet for `quiet`: each debounced add of the key moves its delay, but not beyond
    /// `limit` after the first one that is not delivered yet (T4).
    ///
    /// The limit of the first add counts until its delay ends: it is over, [cancelled](WorkQueue::cancel),
    /// [run now](WorkQueue::run_now) or superseded. Then the next add begins anew, also while the key is queued
    /// or processing. With a `quiet` or `limit` of zero this is a plain add.
    ///
    /// Of this and another delay of the key, which [`after`](Self::after) or a retry sets, the earlier one is kept,
    /// by whatever policy; but a later call of those may replace a debounced delay, if the queue's
    /// [`DelayPolicy`](crate::DelayPolicy) is not the default. Apart from that a debounced delay is one like any
    /// other, of a value, too: see [`after`](Self::after), which this replaces.
    ///
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::<&str>::builder().clock(clock).manual_timers().build()?;
    /// let (quiet, limit) = (Duration::from_millis(100), Duration::from_millis(250));
    /// let mut delivered = Vec::new();
    /// for now in (0..500).step_by(50) {
    ///     queue.entry("a").debounce(quiet, limit).add(); // never quiet
    ///     time.advance(Duration::from_millis(50));
    ///     queue.fire_due();
    ///     delivered.extend(queue.try_iter().map(|_| now + 50));
    /// }
    /// assert_eq!(delivered, [250, 500]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("maxWait", "max_wait", "quiet"))]
    #[inline]
    pub fn debounce(mut self, quiet: Duration, limit: Duration) -> Self {
        self.target.delay = Some(Wait {
            delay: quiet,
            limit: Some(limit),
        });
        self
    }
}

impl<'q, N, X, T> Entry<'q, N, X, Exceeds, T> {
    /// Refuses the add if the queue has no room for it, or if others wait for room (B1, B2): the verb then returns
    /// [`Full`] with all that was passed. See [`Builder::capacity`](crate::Builder::capacity); in a queue without
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
    /// assert_eq!(queue.entry("a").refuse().add(), Ok(Added::Queued));
    /// assert_eq!(queue.entry("b").refuse().add(), Ok(Added::Queued));
    /// assert_eq!(queue.entry("a").refuse().add(), Ok(Added::Merged)); // needs no room
    /// assert_eq!(queue.entry("c").refuse().add(), Err(Full("c")));
    /// let item = queue.get().unwrap(); // makes room
    /// assert_eq!(queue.entry("c").refuse().add(), Ok(Added::Queued));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[inline]
    pub fn refuse(self) -> Entry<'q, N, X, Refuses, T> {
        Entry::with(self.target, Patience::Refuses)
    }

    /// Waits until the queue has room for the add (B2), and blocks the thread. Adds that wait get room
    /// in the order in which they came, even if the key needs no room by then. A shut-down ends the wait with
    /// [`Added::ShutDown`].
    ///
    /// A consumer that waits for room in its own queue may deadlock: adds of consumers should not wait.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::<u32>::builder().capacity(10).build()?;
    /// std::thread::scope(|scope| {
    ///     let _end = queue.shut_down_on_drop();
    ///     let worker = scope.spawn(|| queue.iter().count());
    ///     for n in 0..1000 {
    ///         queue.entry(n).wait().add();
    ///         assert!(queue.len() <= 10);
    ///     }
    ///     queue.shut_down_with_drain();
    ///     assert_eq!(worker.join().unwrap(), 1000);
    /// });
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias = "backpressure")]
    #[inline]
    pub fn wait(self) -> Entry<'q, N, X, Waits, T> {
        Entry::with(self.target, Patience::Waits(None))
    }

    /// Waits for room like [`wait`](Self::wait), but for at most `limit`; then the verb returns [`Full`] with
    /// all that was passed, also if the key has come meanwhile and needs no room any more. A limit that the clock
    /// cannot represent, such as [`Duration::MAX`], is none.
    #[doc(alias = "timeout")]
    #[inline]
    pub fn within(self, limit: Duration) -> Entry<'q, N, X, Refuses, T> {
        Entry::with(self.target, Patience::Waits(Some(limit)))
    }
}

impl<N: Send + Sync + 'static, X: EntryKey<N>, W: Waiting> Entry<'_, N, X, W> {
    /// Adds the key, as [`WorkQueue::add`] does. [`Full`] gives back the key, or the reference to it.
    ///
    /// In a queue of values this adds no value, and a key is delivered only with one: use [`put`](Self::put) or
    /// [`update`](Self::update).
    ///
    /// # Panics
    ///
    /// Panics if `Hash`, `Eq` or the copy of a borrowed key panics; then nothing was added.
    #[inline]
    pub fn add(self) -> W::Result<Added, X::Back> {
        let added = self.target.run(self.patience);
        W::result(added.map_err(|full| full.key.back()))
    }
}

impl<N: Send + Sync + 'static, X: EntryKey<N>> Entry<'_, N, X> {
    /// Adds the key like [`add`](Self::add), and waits for room in a task, of any executor, as
    /// [`wait`](Self::wait) does in a thread.
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
        run_async(self.target).await
    }
}

impl<'q, N: Send + Sync + 'static, X: Key<N>> Attempt for Target<'q, N, X> {
    type Turn = Turn<'q>;

    #[inline]
    fn attempt(self, admission: Admission<Turn<'q>>) -> Result<Added, Self> {
        let (at, mut share) = (self.at, admission.share(self.at.core.room()));
        let added = match self.delay {
            None => self.key.add(at, &mut share),
            Some(delay) => self.key.delay(at, delay, &mut share),
        };
        added.map_err(|key| Target { key, ..self })
    }

    fn turn(&self) -> Turn<'q> {
        let room = self.at.core.room();
        Turn::new(room.expect("only a bounded queue is full"), 1)
    }
}

impl<N, X, W, T> fmt::Debug for Entry<'_, N, X, W, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("level", &self.target.at.level)
            .field("delay", &self.target.delay)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// The error of an add for which the queue has no room. It has what was to be added: see
/// [`Entry::refuse`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Full").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full")
    }
}

impl<T> Error for Full<T> {}
