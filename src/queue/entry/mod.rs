//! One way to add (V6): a key, how it is added, and what is done with it. What is done is in [`verbs`].

mod admission;
mod edit;
pub(crate) mod key;
mod parts;
mod verbs;

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::engine::Core;
use crate::keys::hash::hash_of;
use crate::keys::state::Level;
use crate::sync::Arc;
use crate::timer::Wait;
use crate::wait::receipt::{Receipts, receipt};
use crate::{KeyHandle, Receipt, WorkQueue};
use key::{Borrowed, Owned};

/// A key that is about to be added: first how, then a verb.
///
/// | setting | without it |
/// | --- | --- |
/// | [`level`](Self::level) | the queue's [default level](crate::Builder::default_level) |
/// | [`after`](Self::after) or [`debounce`](Self::debounce) | now |
/// | [`tracked`](Self::tracked), if keys carry values | no receipt |
/// | [`wait`](Self::wait) or [`within`](Self::within) | the verb does not wait for room |
///
/// | verb | | if there is no room |
/// | --- | --- | --- |
/// | [`add`](Self::add) | adds the key, as [`WorkQueue::add`] does | exceeds the [bound](crate::Builder::capacity) of the queue |
/// | [`put`](Self::put) | adds it with a value, as [`WorkQueue::put`] does | exceeds the bound |
/// | [`update`](Self::update) | adds it and changes its value, which is created if none waits | exceeds the bound |
/// | [`try_add`](Self::try_add), [`try_put`](Self::try_put), [`try_update`](Self::try_update) | the same | returns [`Full`] with all that was passed |
/// | [`add_async`](Self::add_async), [`put_async`](Self::put_async), [`update_async`](Self::update_async) | the same | waits for it in a task; exceeds the bound after the limit of [`within`](Self::within) |
///
/// All settings go with each other and with each verb. An entry adds nothing by itself: it holds no lock and no place.
///
/// ```
/// use keyqueue::{Added, Full, WorkQueue, merge};
/// use std::time::Duration;
///
/// let queue = WorkQueue::<String>::builder().merge(merge::append).levels(3).capacity(1).build()?;
/// let delay = Duration::from_millis(100);
/// let (entry, receipt) = queue.entry_ref("a").level(0).after(delay).tracked();
/// assert_eq!(entry.put(vec![1]), Added::Delayed);
/// let Full((key, value)) = queue.entry_ref("b").try_put(vec![2]).unwrap_err();
/// assert_eq!((key, value), ("b", vec![2]));
///
/// let item = queue.get().unwrap(); // a tenth of a second later
/// assert_eq!((item.level(), item.value().len()), (0, 1));
/// assert_eq!(queue.entry_ref("b").wait().update(|value| value.push(3)), Added::Queued);
/// item.done();
/// assert_eq!(receipt.wait(), keyqueue::Ended::Done);
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[must_use = "an entry adds nothing before a verb, such as `add` or `put`"]
pub struct Entry<'q, K, V, X> {
    core: &'q Arc<Core<K, V>>,
    key: X,
    /// That of the queue, if none was named.
    level: Option<Level>,
    delay: Option<Wait>,
    /// How long a verb waits for room, if it waits.
    patience: Option<Duration>,
    receipts: Option<Box<Receipts>>,
}

impl<K, V, S> WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    /// Returns the entry of a key, to add it with other settings than [`add`](Self::add) does: see [`Entry`].
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::<&str>::builder().levels(2).capacity(10).build()?;
    /// assert_eq!(queue.entry("a").level(0).try_add(), Ok(Added::Queued));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the key's `Hash` panics.
    #[inline]
    pub fn entry(&self, key: K) -> Entry<'_, K, V, Owned<K>> {
        let hash = hash_of(&self.hasher, &key);
        Entry::new(&self.core, Owned { key, hash })
    }

    /// Returns the entry of a key by a borrowed form of it, which is copied only if the key is unknown. Otherwise like
    /// [`entry`](Self::entry).
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// let queue = WorkQueue::<String>::builder().merge(merge::latest).build()?;
    /// assert_eq!(queue.entry_ref("sensor").put(1), Added::Queued);
    /// assert_eq!(queue.entry_ref("sensor").put(2), Added::Merged); // allocates nothing
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the key's `Hash` panics.
    #[inline]
    pub fn entry_ref<'k, Q>(&self, key: &'k Q) -> Entry<'_, K, V, Borrowed<'k, Q>>
    where
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = hash_of(&self.hasher, key);
        Entry::new(&self.core, Borrowed { key, hash })
    }
}

impl<K, V> KeyHandle<K, V> {
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
    pub fn entry(&self) -> Entry<'_, K, V, &Self> {
        Entry::new(self.parts().0, self)
    }
}

impl<'q, K, V, X> Entry<'q, K, V, X> {
    #[inline]
    fn new(core: &'q Arc<Core<K, V>>, key: X) -> Self {
        Entry {
            core,
            key,
            level: None,
            delay: None,
            patience: None,
            receipts: None,
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
        self.level = Some(self.core.clamp_level(level));
        self
    }

    /// Adds after `delay`, as [`add_after`](WorkQueue::add_after) does: a key has one pending delay, and
    /// the queue's [`DelayPolicy`](crate::DelayPolicy) decides between two.
    ///
    /// A value is delivered with the key: no earlier, unless the key is delivered before for another reason, for
    /// example because of a [`put`](WorkQueue::put). Then it goes with that delivery, in the order in
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
        self.delay = Some(delay.into());
        self
    }

    /// Adds once the key has been quiet for `quiet`: each debounced add of the key moves its delay, but not beyond
    /// `limit` after the first one that is not delivered yet (T4).
    ///
    /// The limit of the first add counts until its delay ends: it is over, [cancelled](WorkQueue::cancel),
    /// [run now](WorkQueue::run_now) or superseded. Then the next add begins anew, also while the key is queued
    /// or processing. With a `quiet` or `limit` of zero this is a plain add.
    ///
    /// Of this and another delay of the key, which [`after`](Self::after) or a retry has set, the earlier one is kept,
    /// by whatever policy, and no debounced add moves the key beyond the other one. If `after` or a retry comes later
    /// than this, the queue's [`DelayPolicy`](crate::DelayPolicy) decides. By default the same holds then; another policy may
    /// replace the debounced delay, or drop the other one. Apart from that a debounced delay is one like any
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
    ///     if queue.try_get().is_ok() {
    ///         delivered.push(now + 50);
    ///     }
    /// }
    /// assert_eq!(delivered, [250, 500]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[doc(alias("maxWait", "max_wait", "quiet"))]
    #[inline]
    pub fn debounce(mut self, quiet: Duration, limit: Duration) -> Self {
        self.delay = Some(Wait {
            delay: quiet,
            limit: Some(limit),
        });
        self
    }

    /// Waits until the queue has room for the add (B2), and blocks the thread. Adds that wait get room
    /// in the order in which they came, even if the key needs no room by then. A shut-down ends the wait with
    /// [`Added::ShutDown`](crate::Added::ShutDown).
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
    pub fn wait(mut self) -> Self {
        self.patience = Some(Duration::MAX);
        self
    }

    /// Waits for room like [`wait`](Self::wait), but for at most `limit`; after that the verb does what it does without
    /// room, also if the key has come by then and needs no room any more. A limit that the clock cannot represent, such
    /// as [`Duration::MAX`], is none.
    ///
    /// The limit of an async verb is on the queue's clock, to a [tick](crate::Builder::tick). The first one that has to wait
    /// with a limit starts the queue's timer thread, which ends the time; with
    /// [`manual_timers`](crate::Builder::manual_timers), [`fire_due`](WorkQueue::fire_due) does.
    ///
    /// ```
    /// # use keyqueue::{Added, Full, WorkQueue};
    /// # use std::time::Duration;
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::<&str>::builder().capacity(1).build()?;
    /// queue.add("a");
    /// let moment = Duration::from_millis(1);
    /// assert_eq!(queue.entry("b").within(moment).try_add(), Err(Full("b")));
    /// assert_eq!(queue.entry("b").within(moment).add_async().await, Added::Queued); // exceeds the bound
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// # }).unwrap();
    /// ```
    #[doc(alias = "timeout")]
    #[inline]
    pub fn within(mut self, limit: Duration) -> Self {
        self.patience = Some(limit);
        self
    }

    /// Returns also a [`Receipt`], which ends when the delivery of the value has ended: to acknowledge a message after the
    /// work.
    ///
    /// Several adds may share one delivery; each of their receipts ends then. The receipt of an add that
    /// the queue refuses because it is shut down has ended already, as [`Ended::Dropped`](crate::Ended::Dropped). So
    /// does one whose entry is dropped or refused, and that of an [`add`](Self::add), which adds no value, if the key has none
    /// at its delivery.
    ///
    /// ```
    /// # use keyqueue::{Ended, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::sum).build()?;
    /// let (entry, first) = queue.entry("a").tracked();
    /// entry.put(1);
    /// let (entry, second) = queue.entry("a").tracked();
    /// entry.update(|sum| *sum += 2);
    /// let item = queue.get().unwrap();
    /// let (entry, third) = queue.entry("a").tracked();
    /// entry.put(3); // for the next delivery
    /// item.done();
    /// assert_eq!((first.wait(), second.wait()), (Ended::Done, Ended::Done));
    /// assert_eq!(third.ended(), None);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the queue was built without [`merge`](crate::Builder::merge). Where the value does not matter, build it
    /// with [`merge::latest`](crate::merge::latest) and put a `()`.
    #[doc(alias("ack", "acknowledge"))]
    #[inline]
    pub fn tracked(mut self) -> (Self, Receipt) {
        let values = self.core.values();
        assert!(
            values.is_some(),
            "tracked adds need a queue with `Builder::merge`"
        );
        let (obligation, receipt) = receipt();
        self.receipts = Some(Receipts::of(obligation));
        (self, receipt)
    }
}

impl<K, V, X> fmt::Debug for Entry<'_, K, V, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("level", &self.level)
            .field("delay", &self.delay)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// The error of an add for which the queue has no room. It has what was to be added: see
/// [`Entry::try_add`].
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
