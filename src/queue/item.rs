//! What a worker holds: one key, or a batch of them, and the duty to say when it is done.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::engine::Core;
use crate::keys::hash::hash_of;
use crate::keys::hasher::DefaultHasher;
use crate::keys::node::Held;
use crate::limiter::NoLimit;
use crate::queue::WorkQueue;
use crate::queue::added::Added;

/// A key handed out to this worker alone (promises C3, C7).
///
/// Dropping it is [`done`](Self::done), also while a panic unwinds. As long as it lives, adds of
/// the key are deferred. Leaking it (`mem::forget`) leaves the key processing for ever: it will
/// not be handed out again, and a drain will not end.
///
/// A signature names the key alone if the queue has no limiter and the default hasher:
///
/// ```
/// use keyqueue::{Item, WorkQueue};
///
/// fn square(item: &Item<'_, u64>) -> u64 {
///     item.key() * item.key()
/// }
///
/// let queue = WorkQueue::new();
/// queue.add(7);
/// assert_eq!(square(&queue.get().unwrap()), 49);
/// ```
#[must_use = "an item that is dropped at once says that its key is done"]
pub struct Item<'q, K, L = NoLimit, S = DefaultHasher> {
    queue: &'q WorkQueue<K, L, S>,
    /// The queue's. It is here so that `done` need not ask whether it has been built.
    core: &'q Core<K>,
    /// Taken out once, by the drop.
    held: ManuallyDrop<Held<K>>,
}

impl<'q, K, L, S> Item<'q, K, L, S> {
    #[inline]
    pub(crate) fn new(queue: &'q WorkQueue<K, L, S>, core: &'q Core<K>, held: Held<K>) -> Self {
        Item {
            queue,
            core,
            held: ManuallyDrop::new(held),
        }
    }

    pub(crate) fn queue(&self) -> &'q WorkQueue<K, L, S> {
        self.queue
    }

    /// Whether a delay of the key is pending.
    pub(crate) fn has_delay(&self) -> bool {
        self.held.delay().due().is_some()
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.held.key()
    }

    /// How long the key was queued before it was handed out, from the add on that this delivery serves.
    /// None if the queue is not timed ([`Builder::timing`](crate::Builder::timing)).
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
        let watch = self.core.watch()?;
        let (queued, began) = self.held.times(watch.timed()).queue_time();
        Some(watch.duration(queued, began))
    }

    /// Says that the work on the key is done.
    ///
    /// If the key was added meanwhile, it is queued again, at the tail; else it is idle.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// let item = queue.get().unwrap();
    /// queue.add("a");
    /// assert_eq!(queue.len(), 0);
    /// item.done();
    /// assert_eq!(queue.len(), 1);
    /// ```
    #[inline]
    pub fn done(self) {
        drop(self);
    }
}

impl<K, L, S> Item<'_, K, L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Adds the key again after `delay`, and says that the work on it is done for now.
    ///
    /// The answer is that of [`add_after`](WorkQueue::add_after). With a delay of zero the key is
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
    pub fn retry_after(self, delay: Duration) -> Added {
        self.add_after(delay)
        // Done by the drop of `self`, after the delay is set.
    }

    /// As [`retry_after`](Self::retry_after), but the item stays held.
    pub(crate) fn add_after(&self, delay: Duration) -> Added {
        let core = &self.queue.core;
        if core.is_shutting_down() {
            return Added::ShutDown;
        }
        let hash = hash_of(&self.queue.hasher, self.key());
        core.delay(self.held.pin(), hash, delay)
    }
}

// As for the queue, which stays whole if user code panics: a worker may catch the panic of its work.
impl<K: RefUnwindSafe, L, S> UnwindSafe for Item<'_, K, L, S> {}
impl<K: RefUnwindSafe, L, S> RefUnwindSafe for Item<'_, K, L, S> {}

impl<K, L, S> Drop for Item<'_, K, L, S> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken out here alone, and `self` is not used after it is dropped.
        let held = unsafe { ManuallyDrop::take(&mut self.held) };
        self.core.finish(held);
    }
}

impl<K, L, S> Deref for Item<'_, K, L, S> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K: fmt::Debug, L, S> fmt::Debug for Item<'_, K, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Item").field(self.key()).finish()
    }
}

/// One or more keys handed out together by [`WorkQueue::get_batch`], each an [`Item`] of its own.
///
/// Iterate over it to take the items out; those left in it are done when it is dropped.
#[must_use = "dropping a batch says that all of its keys are done"]
pub struct Batch<'q, K, L = NoLimit, S = DefaultHasher> {
    items: Vec<Item<'q, K, L, S>>,
}

impl<'q, K, L, S> Batch<'q, K, L, S> {
    pub(crate) fn new(items: Vec<Item<'q, K, L, S>>) -> Self {
        Batch { items }
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item: never, as a batch begins with one and has them all until it is
    /// taken apart.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The items, in the order in which they were queued.
    pub fn iter(&self) -> std::slice::Iter<'_, Item<'q, K, L, S>> {
        self.items.iter()
    }
}

impl<'q, K, L, S> IntoIterator for Batch<'q, K, L, S> {
    type Item = Item<'q, K, L, S>;
    type IntoIter = std::vec::IntoIter<Item<'q, K, L, S>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'b, 'q, K, L, S> IntoIterator for &'b Batch<'q, K, L, S> {
    type Item = &'b Item<'q, K, L, S>;
    type IntoIter = std::slice::Iter<'b, Item<'q, K, L, S>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: fmt::Debug, L, S> fmt::Debug for Batch<'_, K, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.items).finish()
    }
}
