//! The public face of getting: blocking, timed, and as a future.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::engine::taking::{Taken, Unfinished};
use crate::queue::open::{Open, Source};
use crate::sync::{Arc, ThreadParker};
use crate::wait::Waiter;
use crate::wait::blocking::deadline_in;
use crate::{GetError, Item, WorkQueue};

impl<K, V, S> WorkQueue<K, V, S> {
    #[inline]
    pub(super) fn source(&self) -> Source<'_, K, V> {
        Source::borrowed(&self.open)
    }

    /// Takes the key at the head of the queue, and waits for one if there is none.
    ///
    /// Returns `None` if the queue is shut down and nothing is queued or will be; `None` is final.
    /// No other worker gets the key until the [`Item`] is dropped.
    ///
    /// Waiting uses no processor time beyond a few microseconds of polling, which a thread mostly leaves out after it was in
    /// vain a few times.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// queue.shut_down();
    /// assert_eq!(*queue.get().unwrap(), "a");
    /// assert!(queue.get().is_none());
    /// ```
    #[doc(alias("dequeue", "pop", "receive", "recv", "take"))]
    #[inline]
    #[must_use = "dropping the item at once finishes its key"]
    pub fn get(&self) -> Option<Item<'_, K, V>> {
        let core = &*self.core;
        match core.take_fast() {
            Ok(held) => Some(Item::of(self.source(), held)),
            Err(unfinished) => self.get_slow(unfinished),
        }
    }

    // Returns what `get` returns: the two ways meet only at its end, where nothing tells them apart
    // again.
    #[cold]
    fn get_slow(&self, unfinished: Unfinished<K>) -> Option<Item<'_, K, V>> {
        let core = &*self.core;
        let taken = core.take_slow(unfinished);
        Item::new(self.source(), taken.or_else(|| core.wait(None))).ok()
    }
    /// Takes the key at the head of the queue, without waiting.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing is queued now, or if the queue is shut down and nothing will be.
    ///
    /// ```
    /// # use keyqueue::{GetError, WorkQueue};
    /// let queue = WorkQueue::new();
    /// assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
    /// queue.add("a");
    /// assert_eq!(*queue.try_get().unwrap(), "a");
    /// queue.shut_down();
    /// assert_eq!(queue.try_get().unwrap_err(), GetError::ShutDown);
    /// ```
    #[doc(alias("try_pop", "try_recv"))]
    #[inline]
    pub fn try_get(&self) -> Result<Item<'_, K, V>, GetError> {
        let core = &*self.core;
        Item::new(self.source(), core.take().or_else(|| core.look_and_take()))
    }

    /// Like [`get`](Self::get), but waits for at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if no key was queued in time, or if the queue is shut down and nothing will
    /// be.
    ///
    /// ```
    /// # use keyqueue::{GetError, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::<u64>::new();
    /// let error = queue.get_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, GetError::Empty);
    /// ```
    #[doc(alias = "recv_timeout")]
    pub fn get_timeout(&self, limit: Duration) -> Result<Item<'_, K, V>, GetError> {
        let core = &*self.core;
        Item::new(self.source(), core.take_wait(deadline_in(limit)))
    }

    /// Like [`get`](Self::get), for tasks of any executor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: no key is taken before the poll that returns it, and a
    /// wake-up that the future has received is passed on to another waiter.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// assert_eq!(*queue.get_async().await.unwrap(), "a");
    /// queue.shut_down();
    /// assert!(queue.get_async().await.is_none());
    /// # });
    /// ```
    #[doc(alias = "recv_async")]
    pub fn get_async(&self) -> impl Future<Output = Option<Item<'_, K, V>>> + Unpin {
        GetAsync {
            queue: self.source(),
            waiter: None,
        }
    }
}

impl<K, V> Open<K, V> {
    /// Like [`get`](crate::WorkQueue::get), but takes no key and returns `None` once `stopped` returns true. The
    /// thread that makes it true then wakes `parker`, the parker of this thread.
    pub(crate) fn get_unless(
        self: &Arc<Self>,
        parker: &ThreadParker,
        stopped: impl Fn() -> bool,
    ) -> Option<Item<'_, K, V>> {
        if stopped() {
            return None;
        }
        let core = &*self.core;
        let wait = || core.wait_unless(None, parker, stopped);
        Item::new(Source::borrowed(self), core.take().or_else(wait)).ok()
    }
}

/// The future of [`WorkQueue::get_async`].
struct GetAsync<'q, K, V> {
    queue: Source<'q, K, V>,
    waiter: Option<Waiter>,
}

// Nothing in it is pinned.
impl<K, V> Unpin for GetAsync<'_, K, V> {}

impl<'q, K, V> Future for GetAsync<'q, K, V> {
    type Output = Option<Item<'q, K, V>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let core = this.queue.core();
        if let Some(waiter) = &this.waiter
            && !waiter.is_notified(context.waker())
        {
            return Poll::Pending;
        }
        // A waiter that gets here was notified, and so is off the list.
        let taken = match this.waiter.take() {
            Some(waiter) => core.take_back(waiter),
            None => core.take(),
        };
        let taken = taken.or_else(|| core.look_and_take()).or_else(|| {
            let waiter = core.getters.register(context.waker());
            let taken = core.take();
            if taken.is_empty() {
                this.waiter = Some(waiter);
            } else {
                core.leave(waiter);
            }
            taken
        });
        match taken {
            Taken::Empty => Poll::Pending,
            taken => Poll::Ready(Item::new(this.queue.clone(), taken).ok()),
        }
    }
}

impl<K, V> Drop for GetAsync<'_, K, V> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.queue.core().leave(waiter);
        }
    }
}
