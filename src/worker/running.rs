//! The handle to workers that run in the background, as threads or as tasks of a runtime.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::stop::StopFlag;
use crate::queue::open::Open;

/// A handle to workers in the background: to threads, from [`Workers::spawn`](super::Workers::spawn), or
/// to tasks of a tokio runtime, from `Workers::spawn_on`. `W` is the handle of one worker.
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
#[must_use = "dropping it aborts the workers"]
pub struct Running<K, V = (), W: Worker = JoinHandle<()>> {
    pub(super) queue: Arc<Open<K, V>>,
    pub(super) stop: Arc<StopFlag>,
    pub(super) workers: Vec<W>,
}

/// The handle to one worker.
pub trait Worker {
    fn is_finished(&self) -> bool;

    /// Cancels the work, if that is possible.
    fn abort(&self) {}
}

impl Worker for JoinHandle<()> {
    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}

impl<K, V, W: Worker> Running<K, V, W> {
    pub(super) fn over(queue: &Arc<Open<K, V>>) -> Self {
        Running {
            queue: Arc::clone(queue),
            stop: Arc::new(StopFlag::new()),
            workers: Vec::new(),
        }
    }

    /// Stops the workers without waiting, and leaves the queue open: it accepts adds, and queued keys stay queued.
    /// [`WorkQueue::shut_down`](crate::WorkQueue::shut_down) ends the queue, and the workers once it is empty.
    ///
    /// A worker that waits for a key ends immediately. A thread that holds a key or is just getting
    /// one ends after it. The work of a task on its key is cancelled at its next await point, and the key
    /// is put back ([`requeue_cancelled`](super::Workers::requeue_cancelled)); code that blocks its
    /// thread is not interrupted. [`join`](Self::join) waits until all have ended.
    pub fn abort(&self) {
        self.stop.set();
        self.workers.iter().for_each(W::abort);
    }

    /// Returns whether the workers have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.workers.iter().all(W::is_finished)
    }
}

impl<K, V, W: Worker> Drop for Running<K, V, W> {
    fn drop(&mut self) {
        self.abort();
    }
}

impl<K, V, W: Worker> fmt::Debug for Running<K, V, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("queue", &self.queue.core.name())
            .field("workers", &self.workers.len())
            .finish()
    }
}
