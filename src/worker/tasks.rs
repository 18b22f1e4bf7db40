//! Workers that are futures.

use std::future::poll_fn;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::task::Poll;

use super::join::Join;
use super::trace::Span;
use super::{IntoOutcome, Workers};
use crate::caught::caught_async;
use crate::error::ConfigError;
use crate::limiter::RateLimiter;

impl<K, L, S, E> Workers<'_, K, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    L: RateLimiter<K>,
    S: BuildHasher,
{
    /// As [`run`](Self::run), for tasks of any executor: works on up to [`tasks`](Self::tasks) keys at
    /// the same time, and is ready once the queue is shut down and empty and every key is finished.
    ///
    /// It is a single future, and so the work of all keys interleaves on the thread that polls it. To
    /// use more than one processor, let `f` spawn the work and wait for it, or spawn several of these
    /// futures over one queue. Only workers whose key can go on are polled.
    ///
    /// It is `Send`, as for `tokio::spawn`, if `f` is and owns what it uses: a function, or a closure
    /// `async move |key| ...`. Of closures that borrow, the compiler cannot show it.
    ///
    /// A panic of `f`'s future counts as a failure of the key.
    ///
    /// # Errors
    ///
    /// A number of tasks that is out of range; then no key was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work on the keys in flight, wherever it has stopped to wait. Each of
    /// these keys is done then: not forgotten, not tried again, not reported, and never left processing.
    /// Queued keys stay queued. To end without cutting anything off, shut the queue down and wait for
    /// the future instead.
    ///
    /// # Examples
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
        R: IntoOutcome<Error = E>,
    {
        let count = self.count()?;
        // Owned by each, not borrowed: of a future with such borrows in it the compiler cannot show
        // that it is `Send`.
        let shared = Arc::new((self, f));
        let work = |shared: Arc<(Self, F)>| async move {
            let (workers, f) = &*shared;
            while let Some(item) = workers.queue().get_async().await {
                let span = Span::of(workers, &item);
                let work = async { f(item.key()).await.into_outcome() };
                let said = caught_async(span.around(work)).await;
                workers.settle(item, said, &span);
                // Without it, keys whose work never waits would keep everybody else waiting.
                let_others_run().await;
            }
        };
        Join::new((0..count).map(|_| work(Arc::clone(&shared)))).await;
        Ok(())
    }
}

/// Is pending once.
async fn let_others_run() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
