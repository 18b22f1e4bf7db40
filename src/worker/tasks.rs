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
//! | the drain of `drain_within_async` and `run_until` | the drain ends its own redelivery; the workers go on |
//! | the end of the workers, there | the workers go on, reports too |
//! | the signal of `run_until` | nothing has changed |
//! | the end of the workers, in `join_async` | the workers are aborted: the rows above |
//!
//! A worker with a batch holds several keys at these awaits: each that is not settled is treated so, in order.
//!
//! The other awaits in this folder pass on what they await, and hold nothing.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::join::Join;
use super::lending::{Lane, Lending, free};
use super::trace::Span;
use super::{IntoVerdict, Job, Key, Loop, Report, Workers};
use crate::sync::catch_panic::{catch_panic_async, drop_caught};
use crate::wait::let_others_run;
use crate::{ConfigError, Item, RetryOnDrop};

/// The most tasks of one [`Workers`].
pub(super) const MOST_TASKS: usize = 1 << 16;

impl<K, V, E> Workers<'_, K, V, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    E: fmt::Display,
{
    /// Like [`run`](Self::run), for any async executor: processes up to [`concurrency`](Self::concurrency)
    /// keys at the same time. The future is ready once the queue is shut down and empty and every key is
    /// done.
    ///
    /// It is a single future, so the work on all keys interleaves on the thread that polls it. To
    /// use more than one processor, spawn several of these futures over one queue, or use
    /// `spawn_on` (feature `tokio`), which runs each key in flight on a task.
    ///
    /// It is `Send`, as `tokio::spawn` requires, if `f`
    /// is `Send` and `Sync` and owns what it uses: an async function, or a closure `async move |job| ...`. Give the
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
    /// # use keyqueue::worker::{Job, Workers};
    /// # use std::cell::RefCell;
    /// # fn main() -> Result<(), keyqueue::ConfigError> {
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::new();
    /// queue.add_all([1, 2, 3]);
    /// queue.shut_down();
    ///
    /// let doubled = RefCell::new(Vec::new());
    /// Workers::new(&queue)
    ///     .concurrency(2)
    ///     .run_async(async |job: Job<u64>| doubled.borrow_mut().push(*job * 2))
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
    /// let (queue, app) = (WorkQueue::<u64>::new(), Arc::new(App));
    /// let workers = Workers::new(&queue).concurrency(8);
    /// let running = tokio::spawn(workers.run_async(async move |job| app.refresh(&job).await));
    ///
    /// queue.add(1);
    /// queue.drain_async().await;
    /// running.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_async<F, R>(self, f: F) -> Result<(), ConfigError>
    where
        F: AsyncFn(Job<'static, K, V>) -> R,
        R: IntoVerdict<Error = E>,
    {
        let count = self.inner.count(MOST_TASKS)?;
        // Each future owns its share instead of borrowing: the compiler cannot prove that a future
        // with such borrows is `Send`.
        let shared = Arc::new((self.inner, f));
        let work = |shared: Arc<(_, F)>| async move {
            let (workers, f): &(Loop<'_, K, V, E>, F) = &shared;
            let mut lane = Lane::default();
            while let Some(item) = workers.queue.get_async().await {
                workers.work_on(item, &mut lane, |job| call(f, job)).await;
            }
            workers.report_dropped_async().await;
        };
        Join::new((0..count).map(|_| work(Arc::clone(&shared)))).await;
        Ok(())
    }
}

impl<K: Key, V: Send + 'static, E: fmt::Display> Loop<'_, K, V, E> {
    /// Calls a future's function for an item, or for each message of its turn, and settles its key. Lets other tasks run after
    /// each call: keys whose work is always ready would keep the thread, and starve them.
    pub(super) async fn work_on<F, R>(
        &self,
        mut item: Item<'_, K, V>,
        lane: &mut Lane<V>,
        f: impl Fn(Job<'static, K, V>) -> F,
    ) where
        F: Future<Output = R>,
        R: IntoVerdict<Error = E>,
    {
        let (mut rest, mut turn, mut goes_on) = self.begin(&mut item);
        while goes_on {
            let span = Span::of(self, &item);
            let began = self.epoch();
            let mut lent = self.lend(item, rest, free(lane));
            let job = self.own(&mut lent);
            let work = async { f(job).await.into_verdict() };
            let said = span.around(work).await;
            let mark;
            (item, mark, rest) = lent.into_item().take_back();
            // `said` must not be kept over the next await: errors need not be `Send`.
            let said = said.map(|verdict| mark.on(verdict));
            if let Some(report) = self.settle((&mut item, &mut rest), said, &span, began) {
                let held = self.lend(item, rest, free(lane));
                let held = self.report(held, report, &span).await;
                (item, _, rest) = held.into_item().take_back();
            }
            goes_on = self.goes_on(&mut turn, (&mut item, &mut rest), false);
            if goes_on {
                let next = Lending::of(item, rest, free(lane));
                let held = RetryOnDrop::new(next, Lending::put_back);
                let_others_run().await;
                (item, _, rest) = held.into_item().take_back();
            }
        }
        drop_caught(item);
        let_others_run().await;
    }

    /// Awaits the report of a key that is given up, which [`settle`](Self::settle) returns.
    pub(super) async fn report<'q>(
        &self,
        held: RetryOnDrop<Lending<'q, K, V>>,
        report: Report<'_>,
        span: &Span,
    ) -> RetryOnDrop<Lending<'q, K, V>> {
        // The key is given up only once it is reported.
        let _ = span.around(report).await;
        self.end_tries(&held.item);
        held
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

/// Calls the function. What this returns is opaque, so that the future that awaits it is `Send`: in that the compiler forgets
/// lifetimes, also `'static`, and would ask whether `F` takes jobs of every lifetime.
fn call<K, V, F, R>(f: &F, job: Job<'static, K, V>) -> impl Future<Output = R>
where
    F: AsyncFn(Job<'static, K, V>) -> R,
{
    f(job)
}
