//! The handle to workers that run in the background, as threads or as tasks of a runtime.

use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::stop::StopFlag;
use crate::queue::drain::Drain;
use crate::queue::open::Open;
use crate::wait::blocking::{block_until, deadline_in};
use crate::{Receipt, Remaining};

/// A handle to workers in the background: to threads, from [`Workers::spawn`](super::Workers::spawn), or
/// to tasks of a tokio runtime, from `Workers::spawn_on`.
///
/// Dropping it is [`abort`](Self::abort): it does not wait, and the queue stays open.
///
/// ```
/// # use keyqueue::WorkQueue;
/// # use keyqueue::worker::{Job, Workers};
/// let queue = WorkQueue::new();
/// let running = Workers::new(&queue).concurrency(2).spawn(|_: Job<u64>| ())?;
/// running.abort();
/// running.join();
/// queue.add(1);
/// assert_eq!(queue.len(), 1); // it is kept for other workers
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[must_use = "dropping it aborts the workers: bind it to a name, not to `_`"]
pub struct Running<K, V = ()> {
    pub(super) queue: Arc<Open<K, V>>,
    pub(super) stop: Arc<StopFlag>,
    pub(super) workers: Vec<Worker>,
}

pub(super) struct Worker {
    /// Its obligation is dropped when the worker has dropped all that it holds, also if it is aborted or panics.
    pub(super) ended: Receipt,
    pub(super) handle: Handle,
}

pub(super) enum Handle {
    Thread(JoinHandle<()>),
    #[cfg(feature = "tokio")]
    Task(tokio::task::AbortHandle),
}

impl<K, V> Running<K, V> {
    pub(super) fn over(queue: &Arc<Open<K, V>>) -> Self {
        Running {
            queue: Arc::clone(queue),
            stop: Arc::default(),
            workers: Vec::new(),
        }
    }

    /// Stops the workers without waiting, and leaves the queue open: it accepts adds, and queued keys stay queued.
    /// [`WorkQueue::shut_down`](crate::WorkQueue::shut_down) ends the queue, and the workers once it is empty.
    ///
    /// A worker that waits for a key ends immediately. A thread that holds a key or is just getting
    /// one ends after it. The work of a task on its key is cancelled at its next await point, and the key
    /// is put back ([`requeue_cancelled`](super::Workers::requeue_cancelled)); code that blocks its
    /// thread is not interrupted. [`join`](Self::join) and [`join_async`](Self::join_async) wait until all have ended.
    pub fn abort(&self) {
        self.stop.set();
        #[cfg(feature = "tokio")]
        for worker in &self.workers {
            if let Handle::Task(task) = &worker.handle {
                task.abort();
            }
        }
    }

    /// Returns whether the workers have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.workers
            .iter()
            .all(|worker| worker.ended.ended().is_some())
    }

    /// Shuts the queue down and waits for at most `grace`, first until no key is queued or
    /// processing, then until the workers have reported the retries that were dropped and have ended; then
    /// [aborts](Self::abort) them (W8). Returns what was left after the first wait: if the time was over, workers may still get some of
    /// the keys that were queued then, until they are aborted. To wait until workers that hold a key have ended,
    /// [`join`](Self::join) next.
    ///
    /// A `grace` beyond the range of the system's clock means no limit. A worker that calls this
    /// waits for its own key until the time is over.
    ///
    /// ```
    /// # use keyqueue::worker::{Job, Workers};
    /// # use keyqueue::{WorkQueue};
    /// # use std::thread;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add_all(0..1000);
    /// let workers = Workers::new(&queue).concurrency(2);
    /// let mut running = workers.spawn(|_: Job<u64>| thread::sleep(Duration::from_millis(10)))?;
    /// let drained = running.drain_within(Duration::from_millis(50));
    /// assert!(!drained.is_finished());
    /// assert!(drained.queued > 900);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn drain_within(&mut self, grace: Duration) -> Remaining {
        let deadline = deadline_in(grace);
        let drained = Drain::begin(&self.queue.core).wait(deadline);
        if drained.is_finished() {
            block_until(&mut pin!(self.ended()), deadline);
        }
        self.abort();
        drained
    }

    /// Blocks until the workers have ended, which they do once the queue is shut down and empty, or
    /// after [`abort`](Self::abort). Does neither itself. A thread of these workers that calls this does not wait for
    /// itself, but the others may wait for its key, if that was added again before a shut-down; a task waits forever.
    pub fn join(mut self) {
        let myself = thread::current().id();
        for worker in mem::take(&mut self.workers) {
            match worker.handle {
                Handle::Thread(thread) if thread.thread().id() == myself => {}
                // The thread catches panics. If it panicked anyway, it has ended, too.
                Handle::Thread(thread) => _ = thread.join(),
                #[cfg(feature = "tokio")]
                Handle::Task(_) => _ = worker.ended.wait(),
            }
        }
    }

    /// Like [`join`](Self::join), for tasks of any executor. A worker that awaits this waits forever, for itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the workers.
    pub async fn join_async(mut self) {
        self.ended().await;
    }

    pub(super) async fn ended(&mut self) {
        for worker in &mut self.workers {
            (&mut worker.ended).await;
        }
    }
}

impl<K, V> Drop for Running<K, V> {
    fn drop(&mut self) {
        // After a join none is left but the thread that has joined the others, which goes on.
        if !self.workers.is_empty() {
            self.abort();
        }
    }
}

impl<K, V> fmt::Debug for Running<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("queue", &self.queue.core.name())
            .field("workers", &self.workers.len())
            .finish()
    }
}
