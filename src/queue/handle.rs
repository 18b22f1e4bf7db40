//! A resolved key: adds without hashing and without the table.

use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::Added;
use crate::engine::Core;
use crate::keys::node::{Pin, Pinned};
use crate::sync::Arc;

/// A handle to one key of a queue, created by [`WorkQueue::handle`](crate::WorkQueue::handle)
/// (promise C11).
///
/// Adding through it follows the same rules as [`WorkQueue::add`](crate::WorkQueue::add) and
/// accesses nothing but the key's node and the FIFO. A handle keeps its key interned, and may
/// outlive the queue; then, as after a shut-down, its adds are refused.
///
/// ```
/// # use keyqueue::{Added, WorkQueue};
/// let queue = WorkQueue::new();
/// let handle = queue.handle("a");
/// assert_eq!(handle.key(), &"a");
/// assert_eq!(handle.len(), 1); // of the `str`: a handle derefs to its key
/// assert!(queue.is_empty());
/// assert_eq!(handle.add(), Added::Queued);
/// let item = queue.get().unwrap();
/// assert_eq!(handle.add(), Added::Deferred);
/// drop(item);
/// drop(queue);
/// assert_eq!(handle.add(), Added::ShutDown);
/// ```
#[must_use = "a handle adds nothing by itself"]
pub struct KeyHandle<K, V = ()> {
    /// Before `core`, so that it ends before the table may be dropped.
    pin: Pinned<K>,
    core: Arc<Core<K, V>>,
}

impl<K, V> KeyHandle<K, V> {
    pub(crate) fn new(core: Arc<Core<K, V>>, pin: Pin<K>) -> Self {
        let pin = Pinned(pin);
        KeyHandle { pin, core }
    }

    /// Lets a caller keep the handle.
    ///
    /// # Panics
    ///
    /// Panics if 2^25 handles to the key are alive.
    pub(crate) fn granted(self) -> Self {
        self.pin().grant();
        self
    }

    /// Returns another handle for the queue itself, which the handles of callers are not in the way of.
    pub(crate) fn share(&self) -> Self {
        KeyHandle::new(Arc::clone(&self.core), self.pin().clone())
    }

    /// Adds the key; see [`WorkQueue::add`](crate::WorkQueue::add) for what it returns.
    #[doc(alias = "push")]
    #[inline]
    pub fn add(&self) -> Added {
        self.core.add_pinned(self.pin())
    }

    /// Adds the key after `delay`; see [`WorkQueue::add_after`](crate::WorkQueue::add_after).
    pub fn add_after(&self, delay: Duration) -> Added
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
    {
        let core = &self.core;
        core.delay(self.pin().clone(), core.default_level(), delay, false)
            .0
    }

    pub(crate) fn parts(&self) -> (&Arc<Core<K, V>>, &Pin<K>) {
        (&self.core, self.pin())
    }

    pub(crate) fn pin(&self) -> &Pin<K> {
        &self.pin.0
    }

    /// Returns the key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.pin().key()
    }
}

// As for `WorkQueue`, which stays consistent if user code panics.
impl<K, V> UnwindSafe for KeyHandle<K, V> {}
impl<K, V> RefUnwindSafe for KeyHandle<K, V> {}

impl<K, V> Clone for KeyHandle<K, V> {
    /// # Panics
    ///
    /// Panics if 2^25 handles to the key are alive.
    fn clone(&self) -> Self {
        self.share().granted()
    }
}

impl<K, V> Deref for KeyHandle<K, V> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K: fmt::Display, V> fmt::Display for KeyHandle<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

impl<K: fmt::Debug, V> fmt::Debug for KeyHandle<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHandle")
            .field("key", self.key())
            .field("phase", &self.pin().phase())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::sync::Mutex;

    use super::*;
    use crate::worker::{GivenUp, Reason, Verdict, Workers};
    use crate::{Clock, Cursor, LeftReason, Listed, WorkQueue, merge};

    const SECOND: Duration = Duration::from_secs(1);

    /// Queues a key, of which all handles are leaked that there can be: they are counted, and not made.
    fn add_with_most_handles(queue: &WorkQueue<u64>) {
        let handle = queue.handle(1);
        handle.pin().state().pin_most_handles();
        assert!(catch_unwind(|| queue.handle(1)).is_err());
        assert!(catch_unwind(|| handle.clone()).is_err());
        let page = || queue.page(Cursor::default(), Listed::Queued, 9);
        handle.add();
        assert!(catch_unwind(page).is_err(), "a page keeps its keys, too");
    }

    #[test] // C11 T2
    fn a_key_with_the_most_handles_is_delivered_and_delayed_like_any_other() {
        let (clock, time) = Clock::mock();
        let builder = WorkQueue::builder().clock(clock).manual_timers();
        let queue = builder.min_interval(SECOND).build().unwrap();
        add_with_most_handles(&queue);
        let item = queue.try_get().unwrap();
        assert_eq!(item.retry_after(SECOND), Added::Delayed);
        time.advance(SECOND);
        assert_eq!(queue.fire_due(), 1);
        drop(queue.try_get().unwrap());
        assert!(queue.is_empty());
    }

    #[test] // C11 S12
    fn a_refused_retry_of_a_key_with_the_most_handles_is_left() {
        let queue = WorkQueue::new();
        add_with_most_handles(&queue);
        let item = queue.try_get().unwrap();
        queue.shut_down();
        assert_eq!(item.retry(), Added::ShutDown);
        let left = queue.take_left();
        assert_eq!((left.len(), left[0].reason), (1, LeftReason::Refused));

        let queue = WorkQueue::builder().merge(merge::sum).build().unwrap();
        queue.put(1, 5);
        let item = queue.try_get().unwrap();
        item.handle().pin().state().pin_most_handles();
        queue.shut_down();
        assert_eq!(item.retry(), Added::ShutDown);
        assert_eq!(queue.take_left()[0].value, Some(5));
    }

    #[test] // C11 S5 S13
    fn a_dropped_retry_of_a_key_with_the_most_handles_is_reported() {
        let queue = WorkQueue::new();
        add_with_most_handles(&queue);
        let reported = Mutex::new(Vec::new());
        let report = |key: &u64, end: GivenUp<_>| reported.lock().unwrap().push((*key, end.reason));
        let workers = Workers::new(&queue).concurrency(1).on_give_up(report);
        let workers = workers.on_error(|_, _| _ = queue.shut_down());
        workers
            .run(|_| Verdict::RetryAfter("no", 3600 * SECOND))
            .unwrap();
        assert_eq!(reported.into_inner().unwrap(), [(1, Reason::Dropped)]);
    }
}
