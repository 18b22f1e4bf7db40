//! Workers that are futures.
//!
//! # Where a future is dropped
//!
//! What holds if the future of a worker, or of a call that waits for workers, is dropped at its await (S16).
//! `tests/workers/cancelled.rs` has a test for each row.
//!
//! | it awaits | then |
//! | --- | --- |
//! | a key | the worker holds none; a wake-up that it has had goes to the next getter (C9) |
//! | the function's future | that is dropped first. Then the key is added again, with its value; after a shut-down it is left, or delivered again if it is dirty or a drain redelivers; with `requeue_cancelled(false)` it is done |
//! | the report of a key that it holds | the same. The key's failures are kept, and the key is not counted as given up |
//! | the turn of others, after a key | the worker holds none |
//! | the report of a retry that a shut-down has dropped | the key, which is idle, is left; with `requeue_cancelled(false)` it is done. Retries that are not claimed yet are reported by another worker that ends, or left |
//! | the drain of `drain_within` and `run_until` | the drain ends its own redelivery; the workers go on |
//! | the end of the workers, there | the workers go on, reports too |
//! | the signal of `run_until` | nothing has changed |
//! | the end of the workers, in `join` | the workers are aborted: the rows above |
//!
//! The other awaits in this folder pass on what they await, and hold nothing.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::join::Join;
use super::lend::{KeyOnly, Lend};
use super::settle::Said;
use super::trace::Span;
use super::{IntoVerdict, Key, Loop, Report, Verdict, Workers, attempt};
use crate::sync::catch_panic::{catch_panic, catch_panic_async};
use crate::wait::let_others_run;
use crate::{ConfigError, Item};

/// The most tasks of one [`Workers`].
pub(super) const MOST_TASKS: usize = 1 << 16;

impl<K, S, E> Workers<'_, K, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
    E: fmt::Display,
{
    /// Like [`run`](Self::run), for any async executor: processes up to [`tasks`](Self::tasks) keys
    /// at the same time. The future is ready once the queue is shut down and empty and every key is
    /// done.
    ///
    /// It is a single future, so the work on all keys interleaves on the thread that polls it. To
    /// use more than one processor, spawn several of these futures over one queue, or use
    /// `spawn_on` (feature `tokio`), which runs each key in flight on a task.
    ///
    /// It is `Send`, as `tokio::spawn` requires, if the workers are [`shared`](Self::shared) and `f`
    /// is `Send` and `Sync` and owns what it uses: a function, or a closure `async move |key| ...`. Give the
    /// future itself to `spawn`, as below. The compiler cannot prove that an `async` block around
    /// it, or a future with a closure that borrows, is `Send`.
    ///
    /// A panic of `f`'s future counts as a failure of the key.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of tasks is out of range; no key was delivered then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the work on the processing keys at its current await points, and
    /// puts these keys back into the queue, unless
    /// [`requeue_cancelled`](Self::requeue_cancelled) is set to `false`. Queued keys stay queued.
    /// To end without cancelling work, shut the queue down and await the future instead.
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
    ///
    /// Spawned, with the application's state moved in:
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::Workers;
    /// # use std::sync::Arc;
    /// # struct App;
    /// # impl App {
    /// #     async fn refresh(&self, _: &u64) -> Result<(), String> { Ok(()) }
    /// # }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (queue, app) = (Arc::new(WorkQueue::new()), Arc::new(App));
    /// let workers = Workers::shared(Arc::clone(&queue)).tasks(8);
    /// let running = tokio::spawn(workers.run_async(async move |key| app.refresh(key).await));
    ///
    /// queue.add(1);
    /// queue.drain_async().await;
    /// running.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_async<F, R>(self, f: F) -> Result<(), ConfigError>
    where
        F: AsyncFn(&K) -> R,
        R: IntoVerdict<Error = E>,
    {
        let f = async move |key: &K, _: &mut ()| f(key).await;
        self.inner.run_async::<KeyOnly, _, R>(f).await
    }
}

impl<K: Key, S: BuildHasher, E: fmt::Display> Loop<'_, K, S, E> {
    pub(super) async fn run_async<M: Lend<K>, F, R>(self, f: F) -> Result<(), ConfigError>
    where
        F: AsyncFn(&K, &mut M::Loan) -> R,
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
                let began = workers.epoch();
                let mut held = workers.lend::<M>(item);
                let (item, loan) = &mut *held;
                let work = async { f(item.key(), loan).await.into_verdict() };
                let said = workers.complete(item, &span, work).await;
                // `said` must not be kept over the next await: errors need not be `Send`.
                let given_up = workers.settle(M::take_back(held.into_item()), said, &span, began);
                workers.report(given_up, &span).await;
            }
            workers.report_dropped_async().await;
        };
        Join::new((0..count).map(|_| work(Arc::clone(&shared)))).await;
        Ok(())
    }

    /// Runs the work on a key to its end.
    pub(super) async fn complete(
        &self,
        item: &Item<'_, K, S>,
        span: &Span,
        work: impl Future<Output = Verdict<E>>,
    ) -> Said<E> {
        let work = attempt::around(|| self.attempt(item), work);
        catch_panic_async(span.around(work)).await
    }

    /// Awaits the report of a key that is given up, which [`settle`](Self::settle) returns, and
    /// finishes the key. Then lets other tasks run.
    pub(super) async fn report(&self, given_up: Option<(Item<'_, K, S>, Report<'_>)>, span: &Span) {
        if let Some((item, report)) = given_up {
            // The key is given up only once it is reported.
            let held = self.lend::<KeyOnly>(item);
            let _ = catch_panic_async(span.around(report)).await;
            self.end_tries(held.0.key());
            let _ = catch_panic(|| held.done());
        }
        // Otherwise keys whose work is always ready would keep the thread, and starve other tasks.
        let_others_run().await;
    }

    /// Like [`report_dropped`](Self::report_dropped), and awaits the reports.
    pub(super) async fn report_dropped_async(&self) {
        for (key, report) in self.report_dropped() {
            let held = self.hold_dropped(key);
            let _ = catch_panic_async(report).await;
            self.end_tries(&held.into_item());
        }
    }
}
