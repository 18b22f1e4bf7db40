//! New workers, and their settings. The first module of [`super`], so that rustdoc shows it first.

#[cfg(feature = "tracing")]
use std::fmt;
use std::sync::Arc;

use super::pending::Pending;
use super::settle::Lost;
use super::{Failed, GivenUp, Hook, Loop, OnGiveUp, Report, Workers, threads};
use crate::{KeyHandle, WorkQueue};

impl<'a, K, V, E> Workers<'a, K, V, E> {
    /// Creates workers over a queue. What fails is retried after the delay of the queue's
    /// [`rate_limiter`](crate::Builder::rate_limiter), and forever unless there is a [limit](Self::max_retries).
    ///
    /// The workers hold the queue, which they keep open: it is not shut down when the last reference to it is
    /// dropped, but when these workers are, too.
    pub fn new<S>(queue: &WorkQueue<K, V, S>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = processors.min(threads::MOST_THREADS);
        let inner = Loop {
            queue: WorkQueue {
                core: Arc::clone(&queue.core),
                open: Arc::clone(&queue.open),
                hasher: (),
            },
            concurrency: processors,
            max_retries: None,
            on_error: None,
            on_give_up: None,
            clone_value: None,
            dead_letters: None,
            failures: None,
            each: None,
            requeue_cancelled: true,
            #[cfg(feature = "tracing")]
            trace_keys: None,
        };
        Workers { inner }
    }

    /// Sets the number of workers, which is the number of keys, or of batches, that are processing at the same time: 1 to
    /// 8192 threads, or 1 to 65 536 futures or tasks. Default: one for each processor.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.inner.concurrency = workers;
        self
    }

    /// Sets the number of times a failed key is retried before it is given up: with 5 retries, a
    /// key is given up at its sixth failure in a row.
    ///
    /// Default: no limit. A key that is given up is gone, and only traces tell, unless there is a hook
    /// ([`on_give_up`](Self::on_give_up)) or a store of [`dead_letters`](Self::dead_letters). See the
    /// [module](super#which-retries-count) for the retries that count.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.inner.max_retries = Some(retries);
        self
    }

    /// Calls `hook` with every failure, before the retry and also when the key is given up (W7).
    ///
    /// The worker still holds the key. The hook runs on the worker's thread or in its future, so it
    /// should not block. A panic of the hook is caught. Default: no hook.
    ///
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::worker::Workers;
    ///
    /// let queue = WorkQueue::from_iter(["pod"]);
    /// let failures = std::sync::Mutex::new(Vec::new());
    /// Workers::new(&queue)
    ///     .concurrency(1)
    ///     .max_retries(1)
    ///     .on_error(|key, failed| {
    ///         failures.lock().unwrap().push(format!("{key}: {failed}"));
    ///         if failed.next.is_none() {
    ///             queue.shut_down();
    ///         }
    ///     })
    ///     .run(|_| Err::<(), _>("no route"))?;
    /// assert_eq!(
    ///     failures.into_inner().unwrap(),
    ///     ["pod: no route (attempt 1, the next in 5ms)", "pod: no route (attempt 2, given up)"],
    /// );
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn on_error(mut self, hook: impl Fn(&K, &Failed<'_, E>) + Send + Sync + 'a) -> Self {
        self.inner.on_error = Some(Box::new(hook));
        self
    }

    /// Calls `hook` with every key that is given up, and a report of why: with its [value](GivenUp::value), if keys carry
    /// some.
    ///
    /// The worker still holds the key, and the limiter has forgotten it, so a key that the hook
    /// adds is queued again without failures. A panic of the hook is caught.
    ///
    /// A retry that is pending when the queue is shut down is reported, too, with
    /// [`Reason::Dropped`](super::Reason::Dropped), by a worker that ends: once no other delivery can follow. For this the
    /// workers keep the last failure of each key whose retry is pending, so `E` must be `Send`.
    ///
    /// Default: no hook. Replaces the hook of [`on_give_up_async`](Self::on_give_up_async).
    pub fn on_give_up(self, hook: impl Fn(&K, GivenUp<E, V>) + Send + Sync + 'a) -> Self
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        E: Send + 'a,
    {
        let hook = move |mut lost: Lost<'_, '_, _, _>, mut given_up: GivenUp<E, V>| {
            given_up.value = lost.take_value();
            hook(lost.key(), given_up);
        };
        self.report_to(Hook::Sync(Box::new(hook)))
    }

    /// Like [`on_give_up`](Self::on_give_up), for a hook that waits, for workers that are futures.
    /// Replaces the hook of `on_give_up`. The report has no value: that stays with the key, which may be put back. With
    /// [`values_in_reports`](Self::values_in_reports) it has a clone.
    ///
    /// The worker holds the key until the hook's future is ready, and processes no other key
    /// meanwhile. Only then the limiter forgets the key. Panics of the hook and of its future are caught. Threads
    /// ([`run`](Self::run), [`spawn`](Self::spawn)) refuse this hook with an error.
    ///
    /// # Cancel safety
    ///
    /// If the worker's future is dropped, the hook's future is dropped with it, and the key is put
    /// back ([`requeue_cancelled`](Self::requeue_cancelled)) and tried again. It keeps its failures, so if the
    /// next try fails, it is reported again. After a shut-down it is left for
    /// [`take_left`](crate::WorkQueue::take_left), also if it is a retry that the shut-down has dropped (S16).
    ///
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::worker::{Job, Verdict, Workers};
    ///
    /// # fn main() -> Result<(), keyqueue::ConfigError> {
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::from_iter(["a"]);
    /// let (letters, dead) = std::sync::mpsc::channel();
    /// Workers::new(&queue)
    ///     .on_give_up_async(|key, given_up| {
    ///         let (queue, letters) = (&queue, letters.clone());
    ///         async move {
    ///             // Here it would await a write to a store of dead letters.
    ///             letters.send(format!("{}: {}", key.key(), given_up.failure)).unwrap();
    ///             queue.shut_down();
    ///         }
    ///     })
    ///     .run_async(async |_: Job<&str>| Verdict::GiveUp("no such pod"))
    ///     .await?;
    /// assert_eq!(dead.recv().unwrap(), "a: no such pod");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn on_give_up_async<Fut>(
        self,
        hook: impl Fn(KeyHandle<K, V>, GivenUp<E, V>) -> Fut + Send + Sync + 'a,
    ) -> Self
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        E: Send + 'a,
        Fut: Future<Output = ()> + Send + 'a,
    {
        let hook = move |key, given_up| -> Report<'a> {
            let report = hook(key, given_up);
            #[allow(
                clippy::redundant_async_block,
                reason = "drops `report` in the poll that ends it, where a panic is caught"
            )]
            Box::pin(async move { report.await })
        };
        self.report_to(Hook::Async(Box::new(hook)))
    }

    /// Lets the reports of [`on_give_up_async`](Self::on_give_up_async) have a clone of the value, which stays with the key until
    /// the report is made: for a store of dead letters that is written to in a task.
    ///
    /// Default: they have none. If `Clone` panics, that report has none.
    ///
    /// ```
    /// use keyqueue::worker::{Job, Verdict, Workers};
    /// use keyqueue::{WorkQueue, merge};
    ///
    /// # fn main() -> Result<(), keyqueue::ConfigError> {
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1, 2]);
    /// queue.shut_down();
    /// let workers = Workers::new(&queue).each(100).values_in_reports();
    /// workers
    ///     .on_give_up_async(async |_, given_up| {
    ///         assert_eq!(given_up.value.unwrap().len(), 1); // here it would be written to a table
    ///     })
    ///     .run_async(async |_: Job<&str, Vec<u32>>| Verdict::GiveUp("no such account"))
    ///     .await
    /// # })
    /// # }
    /// ```
    pub fn values_in_reports(mut self) -> Self
    where
        V: Clone,
    {
        self.inner.clone_value = Some(V::clone);
        self
    }

    fn report_to(mut self, hook: Hook<'a, K, V, E>) -> Self
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        E: Send + 'a,
    {
        let pending = Box::new(Pending::<K, V, E>::new(usize::MAX));
        self.inner.on_give_up = Some(OnGiveUp { hook, pending });
        self
    }

    /// Sets what happens to the keys whose work is cancelled, because the future of
    /// [`run_async`](Self::run_async) is dropped, or a task is aborted or dropped with its runtime
    /// (W6).
    ///
    /// | | `true`, the default | `false` |
    /// | --- | --- | --- |
    /// | the queue is open | the key goes back into the queue, at the tail; its failures are neither counted nor forgotten | the key is done |
    /// | the queue is shut down | the key is left for [`take_left`](crate::WorkQueue::take_left), or delivered again if a drain does that ([`drain_delays`](crate::Builder::drain_delays)) | the key is done |
    ///
    /// The same goes for a key whose report is cancelled ([`on_give_up_async`](Self::on_give_up_async)). In both
    /// columns a key that was added meanwhile is delivered once more.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::{Job, Workers};
    /// # use std::future::{pending, ready};
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::new();
    /// queue.add_all([1, 2]);
    /// let workers = Workers::new(&queue).concurrency(1);
    /// let work = workers.run_async(async |_: Job<u64>| pending::<()>().await);
    /// let leadership_lost = ready(());
    /// futures_lite::future::or(async { _ = work.await }, leadership_lost).await;
    /// assert_eq!(queue.len(), 2); // for the next leader: 2, 1
    /// # });
    /// ```
    pub fn requeue_cancelled(mut self, requeue: bool) -> Self {
        self.inner.requeue_cancelled = requeue;
        self
    }

    /// Records each key in its span and events, in its `Debug` form. Default: keys are not recorded, because
    /// they may be long or confidential.
    #[cfg(feature = "tracing")]
    pub fn trace_keys(mut self) -> Self
    where
        K: fmt::Debug,
    {
        self.inner.trace_keys = Some(|key| format!("{key:?}"));
        self
    }
}
