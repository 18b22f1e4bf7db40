//! What a worker holds: the guard of one key. Dropping it finishes the key.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::engine::taking::Taken;
use crate::engine::{Core, IsUsed};
use crate::keys::node::{Held, Pinned};
use crate::keys::state::Level;
use crate::limiter::charge;
use crate::sync::{Arc, assert_unlocked};
use crate::{Added, DefaultHasher, Ended, GetError, KeyHandle, WorkQueue};

/// A key delivered to this worker alone (promises C3, C7).
///
/// Dropping it is [`done`](Self::done), also while a panic unwinds, unless
/// [`retry_on_drop`](Self::retry_on_drop) guards it. While it lives, adds of the key are deferred.
/// Leaking it (`mem::forget`) leaves the key processing forever: the key is not delivered again, and
/// a drain does not end.
///
/// Without a limiter and with the default hasher, `Item<'_, K>` is its type. `Q` is how it refers to its
/// queue: by a borrow, or by an `Arc` in an [`OwnedItem`](crate::OwnedItem).
///
/// ```
/// # use keyqueue::WorkQueue;
/// let queue = WorkQueue::from_iter(["a", "b"]);
/// let item = queue.get().unwrap();
/// assert_eq!(*item.key(), "a");
/// item.done();
/// drop(queue.get()); // is done, too
/// assert!(queue.shut_down().is_nothing());
/// ```
#[must_use = "dropping the item at once finishes its key"]
pub struct Item<'q, K, S = DefaultHasher, Q = &'q WorkQueue<K, S>>
where
    Q: Deref<Target = WorkQueue<K, S>>,
{
    // No reference to what an `Arc` owns: it would dangle during the drop that frees the queue.
    queue: Q,
    /// Taken out once, by the drop.
    pub(crate) held: ManuallyDrop<Held<K>>,
    of: PhantomData<Parameters<'q, K, S>>,
}

/// The parameters that only `Q` has, which the compiler does not count as a use.
pub(super) type Parameters<'q, K, S> = fn() -> (&'q (), K, S);

impl<K, S, Q: Deref<Target = WorkQueue<K, S>>> Item<'_, K, S, Q> {
    /// Creates the item of a taken key, or returns why there is none.
    #[inline]
    pub(super) fn new(queue: Q, taken: Taken<K>) -> Result<Self, GetError> {
        match taken {
            Taken::Key(held) => Ok(Item::of(queue, held)),
            Taken::Empty => Err(GetError::Empty),
            Taken::Ended => Err(GetError::ShutDown),
        }
    }

    /// Creates the item of a key that is being processed.
    #[inline]
    pub(super) fn of(queue: Q, held: Held<K>) -> Self {
        Item {
            queue,
            held: ManuallyDrop::new(held),
            of: PhantomData,
        }
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.held.key()
    }

    /// Returns how long the key was queued before it was delivered, from the add that this delivery
    /// serves; `None` if the queue is not timed ([`Builder::timing`](crate::Builder::timing)).
    ///
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().name("pods").clock(clock).build()?;
    /// queue.add("a");
    /// time.advance(Duration::from_millis(3));
    /// assert_eq!(queue.get().unwrap().queue_time(), Some(Duration::from_millis(3)));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn queue_time(&self) -> Option<Duration> {
        let watch = self.queue.core.watch()?;
        let (queued, began) = self.held.times(watch.timed()).queue_time();
        Some(watch.duration(queued, began))
    }

    /// Returns the level at which the key was delivered; 0 in a queue without
    /// [levels](crate::Builder::levels). A retry keeps it (P4).
    #[must_use]
    pub fn level(&self) -> usize {
        self.own_level().into()
    }

    fn own_level(&self) -> Level {
        let ordered = self.queue.core.ordered();
        ordered.map_or(0, |ordered| self.held.seat(&ordered.seated).delivered())
    }

    /// Sets how the delivery ends for the receipts. Keeps the item.
    pub(crate) fn end_as(&mut self, end: Ended) {
        self.queue.core.end_as(&mut self.held, end);
    }

    /// Finishes the key.
    ///
    /// If the key was added meanwhile, it is queued again, at the tail; otherwise it is idle.
    #[doc(alias("ack", "acknowledge", "complete"))]
    #[inline]
    pub fn done(self) {
        drop(self);
    }

    /// Returns a handle to the key, for the queue itself.
    pub(crate) fn handle(&self) -> KeyHandle<K> {
        KeyHandle::new(Arc::clone(&self.queue.core), self.held.pin())
    }
}

impl<K, S, Q> Item<'_, K, S, Q>
where
    K: Send + Sync + 'static,
    Q: Deref<Target = WorkQueue<K, S>>,
{
    /// Adds the key again after `delay`, and finishes it.
    ///
    /// Returns what [`add_after`](WorkQueue::add_after) does. With a delay of zero the key is
    /// queued again at once, at the tail.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// let item = queue.get().unwrap();
    /// assert_eq!(item.retry_after(Duration::from_millis(1)), Added::Delayed);
    /// assert_eq!(*queue.get().unwrap(), "a"); // a millisecond later
    /// ```
    #[doc(alias("nack", "requeue_after"))]
    #[must_use = "a key that is refused is not delivered again"]
    pub fn retry_after(mut self, delay: Duration) -> Added {
        self.add_after(delay)
        // The drop of `self` finishes the key, after the delay is set.
    }

    /// Adds the key, which is processing, and keeps the item.
    pub(crate) fn add(&mut self) -> Added {
        let (core, level) = (&self.queue.core, self.own_level());
        let pin = self.held.pin();
        let added = core.put_back(&mut self.held, false, || {
            let added = core.add_pinned_at(&pin, level);
            pin.unpin();
            added
        });
        added.or_else(|| self.readd(true)).or_else(|| self.refuse())
    }

    /// Like [`retry_after`](Self::retry_after), but keeps the item.
    pub(crate) fn add_after(&mut self, delay: Duration) -> Added {
        self.try_add_after(delay, true)
            .or_else(|| self.readd(true))
            .or_else(|| self.refuse())
    }

    /// Adds the key after `delay`, as a `retry` of one that has failed or not, unless the queue is shut down.
    pub(crate) fn try_add_after(&mut self, delay: Duration, retry: bool) -> Added {
        let level = self.own_level();
        delay_held(&self.queue.core, &mut self.held, level, (delay, retry)).0
    }

    /// Adds the key again, in a queue that is shut down, if it is dirty, or if it `redelivers` and a drain does,
    /// too (S11).
    pub(crate) fn readd(&mut self, redelivers: bool) -> Added {
        let level = self.own_level();
        self.queue.core.readd(&mut self.held, level, redelivers)
    }

    /// Refuses to add the key again: it is left (S12).
    pub(crate) fn refuse(&mut self) -> Added {
        self.queue.core.refuse(&mut self.held);
        Added::ShutDown
    }

    /// Adds the key again, and holds its group; without groups, adds it again after this time.
    pub(crate) fn hold_group(&mut self, hold: Duration) -> Added {
        let core = &self.queue.core;
        let groups = core.groups();
        match groups.and_then(|groups| groups.hold_of(&self.held, core.hold_until(hold))) {
            Some(ready) => {
                core.notify_ready(ready);
                self.try_add_after(Duration::ZERO, false)
            }
            None => self.try_add_after(hold, false),
        }
    }
}

impl<K, S, Q> Item<'_, K, S, Q>
where
    K: Send + Sync + 'static,
    Q: Deref<Target = WorkQueue<K, S>>,
{
    /// Adds the key again, rate limited, because processing it failed, and finishes it. See
    /// [`WorkQueue::add_rate_limited`]. Without a limiter, the key is queued again at once.
    #[doc(alias("nack", "reject", "requeue"))]
    #[must_use = "a key that is refused is not delivered again"]
    pub fn retry(mut self) -> Added {
        if self.queue.core.is_shutting_down() {
            return self.add_after(Duration::ZERO);
        }
        assert_unlocked();
        let (added, _) = self.try_retry(None, true);
        added.or_else(|| self.readd(true)).or_else(|| self.refuse())
    }

    /// Charges the limiter, and adds the key after its delay, or after `after`, as a `retry` of one that has failed or
    /// not, unless the queue is shut down. Returns also that delay.
    pub(crate) fn try_retry(&mut self, after: Option<Duration>, retry: bool) -> (Added, Duration) {
        let level = self.own_level();
        let Item { queue, held, .. } = self;
        let pinned = Pinned(held.pin());
        charge(&queue.limiter, pinned.0.key(), |limited| {
            let delay = after.unwrap_or(limited);
            let (added, used) = delay_held(&queue.core, held, level, (delay, retry));
            ((added, delay), used)
        })
    }
}

/// Adds a held key after a delay, as a `retry` of one that has failed or not, unless the queue is shut down.
fn delay_held<K: Send + Sync + 'static>(
    core: &Arc<Core<K>>,
    held: &mut Held<K>,
    level: Level,
    (delay, retry): (Duration, bool),
) -> (Added, IsUsed) {
    if core.is_shutting_down() {
        return (Added::ShutDown, false);
    }
    let pin = held.pin();
    let mut used = false;
    let added = core.put_back(held, retry, || {
        let (added, is_used) = core.delay(pin, level, delay, retry);
        used = is_used;
        added
    });
    (added, used)
}

// As for `WorkQueue`, which stays consistent if user code panics: a worker may catch the panic of
// its work.
impl<K: RefUnwindSafe> UnwindSafe for Held<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for Held<K> {}

impl<K, S, Q: Deref<Target = WorkQueue<K, S>>> Drop for Item<'_, K, S, Q> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: only this drop takes it out, and `self` is not used after it is dropped.
        let held = unsafe { ManuallyDrop::take(&mut self.held) };
        self.queue.core.finish(held);
    }
}

impl<K, S, Q: Deref<Target = WorkQueue<K, S>>> Deref for Item<'_, K, S, Q> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K, S, Q> fmt::Debug for Item<'_, K, S, Q>
where
    K: fmt::Debug,
    Q: Deref<Target = WorkQueue<K, S>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(self.key()).finish()
    }
}
