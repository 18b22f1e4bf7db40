//! Workers that are futures.

use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::Arc;
use std::task::Poll;

use super::join::Join;
use super::trace::Span;
use super::{IntoVerdict, Workers, attempt};
use crate::ConfigError;
use crate::limiter::RateLimiter;
use crate::wait::catch_panic::{catch_panic, catch_panic_async};

/// The most tasks of one [`Workers`].
const MOST_TASKS: usize = 1 << 16;

impl<K, L, S, E> Workers<'_, K, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K>,
    S: BuildHasher,
    E: fmt::Display,
{
    /// Like [`run`](Self::run), for any async executor: processes up to [`tasks`](Self::tasks) keys
    /// at the same time. The future is ready once the queue is shut down and empty and every key is
    /// done.
    ///
    /// It is a single future, so the work on all keys interleaves on the thread that polls it. To
    /// use more than one processor, let `f` spawn the work and await it, or spawn several of these
    /// futures over one queue.
    ///
    /// It is `Send`, as `tokio::spawn` requires, if `f` is `Send` and owns what it uses: a
    /// function, or a closure `async move |key| ...`. For borrowing closures the compiler cannot
    /// prove this.
    ///
    /// A panic of `f`'s future counts as a failure of the key.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of tasks is out of range; no key was delivered then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the work on the processing keys at its current await points.
    /// Each of these keys is done then: it is not forgotten, retried or reported. Queued keys stay
    /// queued. To end without cancelling work, shut the queue down and await the future instead.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::Workers;
    /// # use std::cell::RefCell;
    /// # fn main() -> Result<(), keyqueue::ConfigError> {
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::new();
    /// queue.add_all([1, 2, 3]);
    /// queue.shut_down();
    ///
    /// let doubled = RefCell::new(Vec::new());
    /// Workers::new(&queue)
    ///     .tasks(2)
    ///     .run_async(async |key: &u64| doubled.borrow_mut().push(key * 2))
    ///     .await?;
    /// assert_eq!(doubled.into_inner(), [2, 4, 6]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub async fn run_async<F, R>(self, f: F) -> Result<(), ConfigError>
    where
        F: AsyncFn(&K) -> R,
        R: IntoVerdict<Error = E>,
    {
        let count = self.count(MOST_TASKS)?;
        // Each future owns its share instead of borrowing: the compiler cannot prove that a future
        // with such borrows is `Send`.
        let shared = Arc::new((self, f));
        let work = |shared: Arc<(Self, F)>| async move {
            let (workers, f) = &*shared;
            while let Some(item) = workers.queue.get_async().await {
                let span = Span::of(workers, &item);
                let work = async { f(item.key()).await.into_verdict() };
                let work = attempt::around(|| workers.attempt(&item), work);
                let said = catch_panic_async(span.around(work)).await;
                if let Some((item, report)) = workers.settle(item, said, &span) {
                    let _ = catch_panic_async(span.around(report)).await;
                    let _ = catch_panic(|| drop(item));
                }
                // Otherwise keys whose work is always ready would starve the other tasks.
                let_others_run().await;
            }
            for report in workers.report_dropped() {
                let _ = catch_panic_async(report).await;
            }
        };
        Join::new((0..count).map(|_| work(Arc::clone(&shared)))).await;
        Ok(())
    }
}

/// Yields to the executor: returns `Pending` once.
async fn let_others_run() {
    let mut waited = false;
    poll_fn(|context| {
        if mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
