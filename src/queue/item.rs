//! What a worker holds: the guard of one key. Dropping it finishes the key.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::engine::taking::Taken;
use crate::engine::{Core, IsUsed};
use crate::keys::node::{Held, Pinned};
use crate::keys::state::Level;
use crate::limiter::charge;
use crate::queue::open::Source;
use crate::sync::{Arc, assert_unlocked};
use crate::{Added, GetError, KeyHandle};

/// A key delivered to this worker alone (promises C3, C7).
///
/// Dropping it is [`done`](Self::done), also while a panic unwinds, unless
/// [`retry_on_drop`](Self::retry_on_drop) guards it. While it lives, adds of the key are deferred.
/// Leaking it (`mem::forget`) leaves the key processing forever: the key is not delivered again, and
/// a drain does not end.
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
pub struct Item<'q, K, V = ()> {
    /// Both are taken out once, by the drop.
    pub(crate) held: ManuallyDrop<Held<K>>,
    queue: ManuallyDrop<Source<'q, K, V>>,
}

impl<'q, K, V> Item<'q, K, V> {
    /// Creates the item of a taken key, or returns why there is none.
    #[inline]
    pub(super) fn new(queue: Source<'q, K, V>, taken: Taken<K>) -> Result<Self, GetError> {
        match taken {
            Taken::Key(held) => Ok(Item::of(queue, held)),
            Taken::Empty => Err(GetError::Empty),
            Taken::Ended => Err(GetError::ShutDown),
        }
    }

    /// Creates the item of a key that is being processed.
    #[inline]
    pub(super) fn of(queue: Source<'q, K, V>, held: Held<K>) -> Self {
        Item {
            held: ManuallyDrop::new(held),
            queue: ManuallyDrop::new(queue),
        }
    }

    /// Takes the item apart, without finishing the key.
    #[inline]
    pub(super) fn disassemble(self) -> (Source<'q, K, V>, Held<K>) {
        let mut item = ManuallyDrop::new(self);
        // SAFETY: the item is not dropped.
        let queue = unsafe { ManuallyDrop::take(&mut item.queue) };
        // SAFETY: as above.
        (queue, unsafe { ManuallyDrop::take(&mut item.held) })
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<Core<K, V>> {
        self.queue.core()
    }

    pub(crate) fn parts(&mut self) -> (&Arc<Core<K, V>>, &mut Held<K>) {
        (self.queue.core(), &mut self.held)
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
        self.core().queue_time(&self.held)
    }

    /// Returns the level at which the key was delivered; 0 in a queue without
    /// [levels](crate::Builder::levels). A retry keeps it (P4).
    #[must_use]
    pub fn level(&self) -> usize {
        self.own_level().into()
    }

    fn own_level(&self) -> Level {
        let ordered = self.core().ordered();
        ordered.map_or(0, |ordered| self.held.seat(&ordered.seated).delivered())
    }

    /// Finishes the key.
    ///
    /// If the key was added meanwhile, it is queued again, at the tail; otherwise it is idle.
    #[doc(alias("ack", "acknowledge", "complete"))]
    #[inline]
    pub fn done(self) {
        drop(self);
    }

    /// Finishes the key, whose work has succeeded.
    pub(crate) fn succeed(self) {
        self.core().forget(self.key());
    }

    /// Returns a handle to the key, for the queue itself.
    pub(crate) fn handle(&self) -> KeyHandle<K, V> {
        KeyHandle::new(Arc::clone(self.core()), self.held.pin())
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Item<'_, K, V> {
    /// Adds the key again after `delay`, and finishes it.
    ///
    /// Returns what [`add_after`](crate::WorkQueue::add_after) does. With a delay of zero the key is
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

    /// Adds the key, which is processing, and keeps the item. In a queue that is shut down it is left.
    pub(crate) fn add(&mut self) -> Added {
        self.try_add()
            .or_else(|| self.readd(true))
            .or_else(|| self.refuse())
    }

    /// The same, unless the queue is shut down.
    pub(crate) fn try_add(&mut self) -> Added {
        let level = self.own_level();
        let (core, held) = self.parts();
        let pin = held.pin();
        core.put_back(held, false, || {
            let added = core.add_pinned_at(&pin, level);
            pin.unpin();
            added
        })
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
        let (core, held) = self.parts();
        delay_held(core, held, level, (delay, retry)).0
    }

    /// Adds the key again, in a queue that is shut down, if it is dirty, or if it `redelivers` and a drain does,
    /// too (S11).
    pub(crate) fn readd(&mut self, redelivers: bool) -> Added {
        let level = self.own_level();
        let (core, held) = self.parts();
        core.readd(held, level, redelivers)
    }

    /// Refuses to add the key again: it is left (S12).
    pub(crate) fn refuse(&mut self) -> Added {
        let (core, held) = self.parts();
        core.refuse(held);
        Added::ShutDown
    }

    /// Adds the key again, and holds its group; without groups, adds it again after this time.
    pub(crate) fn hold_group(&mut self, hold: Duration) -> Added {
        let core = self.core();
        let groups = core.groups();
        match groups.and_then(|groups| groups.hold_of(&self.held, core.hold_until(hold))) {
            Some(ready) => {
                core.notify_ready(ready);
                self.try_add_after(Duration::ZERO, false)
            }
            None => self.try_add_after(hold, false),
        }
    }

    /// Adds the key again, rate limited, because processing it failed, and finishes it. See
    /// [`WorkQueue::add_rate_limited`](crate::WorkQueue::add_rate_limited).
    ///
    /// The failure counts until [`forget`](crate::WorkQueue::forget), which [`done`](Self::done) does not call, or until the limiter
    /// forgets the key: before that the next failure waits longer, even after a success. While the retry waits, `try_get` does not find the key, and a drain drops
    /// the retry (S5), unless [`drain_delays`](crate::Builder::drain_delays) is set.
    ///
    /// # Panics
    ///
    /// Panics if the limiter does, or the key's `Hash` that it calls. The key is finished without a retry.
    #[doc(alias("nack", "reject", "requeue"))]
    #[must_use = "a key that is refused is not delivered again"]
    pub fn retry(mut self) -> Added {
        if self.core().closing.has_begun() {
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
        let (core, held) = self.parts();
        let pinned = Pinned(held.pin());
        charge(&core.limiter, pinned.0.key(), |limited| {
            let delay = after.unwrap_or(limited);
            let (added, used) = delay_held(core, held, level, (delay, retry));
            ((added, delay), used)
        })
    }
}

/// Adds a held key after a delay, as a `retry` of one that has failed or not, unless the queue is shut down.
fn delay_held<K: Send + Sync + 'static, V: Send + 'static>(
    core: &Arc<Core<K, V>>,
    held: &mut Held<K>,
    level: Level,
    (delay, retry): (Duration, bool),
) -> (Added, IsUsed) {
    if core.closing.has_begun() {
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

impl<K, V> Drop for Item<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` is not used after it is dropped.
        let held = unsafe { ManuallyDrop::take(&mut self.held) };
        if self.queue.is_owned() {
            // SAFETY: as above.
            return finish_owned(unsafe { ManuallyDrop::take(&mut self.queue) }, held);
        }
        // Nothing is left to do after it, for which registers would be saved.
        self.core().finish(held);
    }
}

#[cold]
fn finish_owned<K, V>(queue: Source<'_, K, V>, held: Held<K>) {
    queue.core().finish(held);
}

impl<K, V> Deref for Item<'_, K, V> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K: fmt::Display, V> fmt::Display for Item<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Item<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(self.key()).finish()
    }
}
