//! The public face of the queue's end: shutting down, draining, and waiting for a shut-down. The
//! page [`docs::how_it_ends`](crate::docs::how_it_ends) compares the calls.

use std::fmt;
use std::future::poll_fn;
use std::time::Duration;

use crate::engine::Core;
use crate::queue::drain::Drain;
use crate::wait::blocking::deadline_in;
use crate::wait::listener::Listener;
use crate::{Remaining, WorkQueue};

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns whether the queue is shut down, and so refuses every add.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.core.closing.has_begun()
    }

    /// Shuts the queue down without waiting, and returns what is left to do.
    ///
    /// Adds are refused from now on. Queued keys are still delivered, and a key that was added
    /// again while it was processing is delivered once more. After that every `get` returns `None`.
    /// Every drain is released. Pending delays are dropped and counted in what this returns (S5).
    /// Shutting down again is harmless, and reports the same number of dropped delays.
    ///
    /// Takes time proportional to the number of keys that the queue knows. If another thread is
    /// shutting the queue down, waits until that thread has visited every key.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// queue.add("b");
    /// let item = queue.get().unwrap();
    /// let left = queue.shut_down();
    /// assert_eq!((left.queued, left.processing), (1, 1));
    /// ```
    #[doc(alias("close", "shutdown", "stop"))]
    pub fn shut_down(&self) -> Remaining {
        self.core.shut_down()
    }

    /// Shuts the queue down and discards what is queued: no delivery begins after this call (S8).
    ///
    /// | a key that is | becomes | and is counted in |
    /// | --- | --- | --- |
    /// | queued | idle, without being delivered | `queued` |
    /// | processing | idle when it is done | `processing` |
    /// | dirty | the same; it is not delivered again | `processing` |
    /// | delayed | idle; the delay is dropped (S5) | `delayed` |
    ///
    /// Every `get` returns `None` from now on. Drains that wait end
    /// when the keys that are processing are done; to wait for these, call [`drain_timeout`](Self::drain_timeout) next. The queue may be shut down
    /// already. A second call returns 0 for `queued`: each call counts what it has discarded
    /// itself.
    ///
    /// Never waits for a worker's function. Takes time proportional to the number of keys that the
    /// queue knows; if another thread is shutting the queue down, waits until that thread has visited
    /// every key. The values of the discarded keys are dropped with the queue, or by
    /// [`shrink`](Self::shrink). In the metrics a discarded key counts as delivered, but not as
    /// work.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add_all(["a", "b", "c"]);
    /// let item = queue.get().unwrap();
    /// queue.add("a"); // it is dirty now
    ///
    /// let left = queue.shut_down_now();
    /// assert_eq!((left.queued, left.processing), (2, 1)); // "b" and "c" are discarded
    /// assert!(queue.get().is_none()); // even "a" is not delivered again
    ///
    /// item.done();
    /// assert!(queue.drain_timeout(Duration::ZERO).is_finished());
    /// ```
    #[doc(alias("abort", "kill"))]
    pub fn shut_down_now(&self) -> Remaining {
        self.core.abandon()
    }

    /// Returns a guard that calls [`shut_down`](Self::shut_down) when it is dropped, so that
    /// workers end however the scope of their producer is left: also by `?` or a panic (S9).
    ///
    /// Bind it to a name: `let _ = ..` drops it at once, `let _end = ..` does not.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// fn run(numbers: &str) -> Result<u64, std::num::ParseIntError> {
    ///     let queue = WorkQueue::new();
    ///     std::thread::scope(|scope| {
    ///         let _end = queue.shut_down_on_drop();
    ///         let worker = scope.spawn(|| queue.iter().map(|item| *item).sum());
    ///         for number in numbers.split(' ') {
    ///             queue.add(number.parse::<u64>()?); // without the guard, `?` here would hang
    ///         }
    ///         queue.shut_down_with_drain();
    ///         Ok(worker.join().unwrap())
    ///     })
    /// }
    ///
    /// assert_eq!(run("1 2 3"), Ok(6));
    /// assert!(run("1 2 many").is_err());
    /// ```
    pub fn shut_down_on_drop(&self) -> ShutDownOnDrop<'_, K, V> {
        ShutDownOnDrop(&self.core)
    }

    /// Waits until the queue is shut down, by any call, and so refuses every add. Does not wait for
    /// its keys, and does not shut the queue down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait, and changes nothing.
    ///
    /// ```
    /// # use futures_lite::future::{block_on, poll_once};
    /// # use keyqueue::WorkQueue;
    /// # block_on(async {
    /// let queue = WorkQueue::<u64>::new();
    /// let mut closed = queue.closed();
    /// assert!(poll_once(&mut closed).await.is_none());
    /// queue.shut_down();
    /// closed.await;
    /// # });
    /// ```
    #[must_use = "futures do nothing unless polled"]
    pub fn closed(&self) -> impl Future<Output = ()> {
        let closing = &self.core.closing;
        let mut listener = Listener::new(&closing.drainers);
        poll_fn(move |context| listener.poll(context, || closing.has_begun().then_some(())))
    }

    /// Shuts the queue down and waits until no key is queued or processing, or until
    /// [`shut_down`](Self::shut_down) is called.
    ///
    /// The workers must continue to get and finish keys meanwhile: with queued keys and no worker
    /// left, this never returns ([`drain_timeout`](Self::drain_timeout) does), and a thread that
    /// drains while it holds an [`Item`](crate::Item) deadlocks. Any number of threads and tasks
    /// may drain at once. Pending delays, retries included, are dropped and counted in what this
    /// returns, or delivered now if the queue was built with
    /// [`drain_delays`](crate::Builder::drain_delays).
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// queue.add_all(0..100);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| while let Some(item) = queue.get() { drop(item) });
    ///     let drained = queue.shut_down_with_drain();
    ///     assert!(drained.is_finished());
    ///     assert!(drained.is_nothing());
    /// });
    /// ```
    #[doc(alias("drain", "flush"))]
    pub fn shut_down_with_drain(&self) -> Remaining {
        Drain::begin(&self.core).wait(None)
    }

    /// Like [`shut_down_with_drain`](Self::shut_down_with_drain), but waits for at most `limit`,
    /// and then returns what is left (S7): with a queue whose workers have ended, the keys that
    /// nobody will get (S10).
    ///
    /// The queue stays shut down, and can be drained again. Like [`shut_down`](Self::shut_down), the
    /// call visits every key first, and may exceed the limit by that.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add("a");
    /// let drained = queue.drain_timeout(Duration::ZERO);
    /// assert!(!drained.is_finished());
    /// assert_eq!(drained.queued, 1);
    /// drop(queue.get());
    /// assert!(queue.drain_timeout(Duration::ZERO).is_finished());
    /// ```
    pub fn drain_timeout(&self, limit: Duration) -> Remaining {
        let deadline = deadline_in(limit);
        Drain::begin(&self.core).wait(deadline)
    }

    /// Like [`shut_down_with_drain`](Self::shut_down_with_drain), for tasks of any executor.
    ///
    /// The queue is shut down when the future is first polled: that poll visits every key, like
    /// [`shut_down`](Self::shut_down).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait, and what this drain delivers again, as if its time were over (S16); the queue
    /// stays shut down. So any timer of the executor limits the drain, and [`shut_down`](Self::shut_down) says what is
    /// left then (S7, S10):
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let queue = WorkQueue::new();
    /// queue.add("a"); // there is no worker
    /// let drained = tokio::time::timeout(Duration::from_millis(5), queue.drain_async()).await;
    /// assert!(drained.is_err());
    /// assert_eq!(queue.shut_down().queued, 1);
    /// # });
    /// ```
    pub fn drain_async(&self) -> impl Future<Output = Remaining> {
        let core = &self.core;
        async move { Drain::begin(core).await }
    }
}

/// Shuts a queue down when it is dropped: see [`WorkQueue::shut_down_on_drop`].
#[must_use = "dropping the guard shuts the queue down: bind it to a name, not to `_`"]
pub struct ShutDownOnDrop<'q, K, V = ()>(&'q Core<K, V>);

impl<K, V> Drop for ShutDownOnDrop<'_, K, V> {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl<K, V> fmt::Debug for ShutDownOnDrop<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShutDownOnDrop").finish_non_exhaustive()
    }
}
