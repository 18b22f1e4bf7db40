//! The handle to workers that run in the background, as threads or as tasks of a runtime.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::Source;
use super::stop::StopFlag;
use crate::DefaultHasher;

/// A handle to workers in the background: to threads, from [`Workers::spawn`](super::Workers::spawn), or
/// to tasks of a tokio runtime, from `Workers::spawn_on`. `W` is the handle of one worker.
///
/// Dropping it is [`abort`](Self::abort): it does not wait, and the queue stays open.
///
/// ```
/// # use keyqueue::WorkQueue;
/// # use keyqueue::worker::Workers;
/// # use std::sync::Arc;
/// let queue = Arc::new(WorkQueue::new());
/// let running = Workers::shared(Arc::clone(&queue)).threads(2).spawn(|_: &u64| ())?;
/// running.abort();
/// running.join();
/// queue.add(1);
/// assert_eq!(queue.len(), 1); // it is kept for other workers
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[must_use = "dropping it aborts the workers"]
pub struct Running<K: 'static, S: 'static = DefaultHasher, W: Worker = JoinHandle<()>> {
    pub(super) queue: Arc<Source<'static, K, S>>,
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

impl<K: 'static, S: 'static, W: Worker> Running<K, S, W> {
    pub(super) fn over(queue: &Arc<Source<'static, K, S>>) -> Self {
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

impl<K: 'static, S: 'static, W: Worker> Drop for Running<K, S, W> {
    fn drop(&mut self) {
        self.abort();
    }
}

impl<K: 'static, S: 'static, W: Worker> fmt::Debug for Running<K, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("queue", &**self.queue)
            .field("workers", &self.workers.len())
            .finish()
    }
}
