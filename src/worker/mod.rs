//! The loop around the queue: workers that get keys, process them, and retry those that failed.
//!
//! ```text
//!     get --> your function --> Ok(Done)             forget, done
//!      ^                    --> Ok(RequeueAfter(d))  forget, add after d, done
//!      |                    --> Ok(Later(d))         add after d, done
//!      |                    --> Ok(RequeueRateLimited)  add rate limited, done
//!      |                    --> Ok(HoldGroup(d))     hold the group for d, add, done
//!      |                    --> Err(e), or a panic   retries left: add rate limited, done
//!      |                                             none left:    forget, report, done
//!      +------------------------------------------------------------+
//!                           --> give up              forget, report, done
//! ```
//!
//! The function gets a [`Job`]: the key, and its value. With an error it can choose what follows, by
//! [`give_up`](Job::give_up) or [`retry_after`](Job::retry_after). An error with a delay differs from another one only in
//! the time of the retry.
//!
//! "Forget" and "add rate limited" use the queue's limiter: see
//! [`Builder::rate_limiter`](crate::Builder::rate_limiter). A key stays processing through all of
//! this, including the report, so if it is added meanwhile, it is queued again afterwards.
//!
//! | | workers are | the call |
//! | --- | --- | --- |
//! | [`Workers::run`] | scoped threads, which may borrow | blocks until the queue is shut down and empty |
//! | [`Workers::spawn`] | background threads | returns a handle to stop and join them |
//! | [`Workers::run_async`] | futures, within one task of any executor | returns a future that is ready then |
//! | `Workers::spawn_on` | tasks of a tokio runtime (feature `tokio`) | returns a handle to stop and join them |
//!
//! Each of these calls has a twin whose function gets many jobs at a time: see [`Workers::run_batches`]. With
//! [`Workers::each`] the function of each of these calls, but not that of a twin, gets the messages of a key one by one.
//!
//! A shut-down of the queue stops workers (promise W4): they process what is queued, finish the
//! items they hold, and end. [`Running::abort`] ends them while the queue stays open. A panic in the
//! function, the hook, a limiter or a waker does not stop them.
//!
//! # Which retries count
//!
//! [`max_retries`](Workers::max_retries) is compared with the larger of two numbers: the limiter's
//! [`num_requeues`](crate::WorkQueue::num_requeues), and the retries that this `Workers` made since
//! it last forgot the key. So the limit holds with any limiter, including one that counts nothing
//! ([`NoLimit`](crate::limiter::NoLimit), a [`Bucket`](crate::limiter::Bucket) alone) and one that forgets a key while it is
//! processing.
//!
//! # Retries after a shut-down
//!
//! A queue that is shut down refuses retries: a key that fails then is given up, with
//! [`Reason::ShutDown`]. A retry that is pending at the shut-down is dropped and counted like any
//! other delay, and the key is given up with its last failure and [`Reason::Dropped`] (S5). If the queue
//! was built with [`drain_delays`](crate::Builder::drain_delays), a drain delivers such keys
//! immediately instead. Not reported are:
//!
//! * an [`Outcome::RequeueAfter`], [`Outcome::Later`] or [`Outcome::RequeueRateLimited`] that is dropped, since the key did not fail;
//! * a retry that was cancelled, or whose delay has ended and whose key another getter has got;
//! * a retry whose time another `add_after` has changed: it is that call's delay from then on;
//! * a retry whose workers have been aborted or dropped: the delay stays in the queue, and workers
//!   that are started later know neither its failure nor, unless the limiter counts, its retries;
//! * a retry whose key is also queued, if [`shut_down_now`](crate::WorkQueue::shut_down_now) discards
//!   the key.
//!
//! By default a retry that is pending when its key is added stays pending, even if that delivery gives the key up.
//! [`supersede_delays`](crate::Builder::supersede_delays) and
//! [`adds_wait_for_retries`](crate::Builder::adds_wait_for_retries) change that.
//!
//! # Traces
//!
//! With feature `tracing`, each delivered key has a span named `key`, with target `keyqueue` and
//! level info, around the call of the function and the handling of its outcome. Its fields are the
//! `queue`'s name; the `key`, if `trace_keys` is called; the `attempt`, from 1; `queue_seconds`, if
//! the queue is timed; and the `outcome`, one of `done`, `requeue_after`, `later`,
//! `requeue_rate_limited`, `hold_group`, `retry` and `given_up`. Events, with the same target:
//!
//! | event | level | fields |
//! | --- | --- | --- |
//! | the function panicked | error | `panic`: the message |
//! | a key failed (W7) | warn | `error`, `attempt`, and `next_delay_seconds` unless it is given up |
//! | a key is given up | warn | `error`, `reason`, `retries` |
//! | a batch failed as a whole (W10) | warn | `error`, `keys`: how many |
//!
//! A failure and a give-up also have the `key`, if `trace_keys` is called. A give-up for
//! [`Reason::Dropped`] is outside of any span. The call of a function for a batch is outside of any span, too: each of
//! its keys has a span around the handling of its outcome only. With [`each`](Workers::each) each message has a span.
//!
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue::limiter::ItemExponentialFailure;
//! use keyqueue::worker::{Outcome, Workers};
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), keyqueue::ConfigError> {
//! let limiter = ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_secs(1))?;
//! let queue = WorkQueue::builder().rate_limiter(limiter).build()?;
//! queue.add_all(["good", "bad"]);
//!
//! let tries = AtomicU32::new(0);
//! Workers::new(&queue)
//!     .concurrency(2)
//!     .max_retries(3)
//!     .on_give_up(|key, given_up| {
//!         assert_eq!(*key, "bad");
//!         assert_eq!(given_up.to_string(), "it is bad (retries: 3)");
//!         queue.shut_down();
//!     })
//!     .run(|job| {
//!         if *job == "good" {
//!             return Ok(Outcome::Done);
//!         }
//!         tries.fetch_add(1, Ordering::Relaxed);
//!         Err("it is bad")
//!     })?;
//! assert_eq!(tries.into_inner(), 4);
//! # Ok(())
//! # }
//! ```

mod batches;
mod by_key;
mod dead_letters;
mod each;
mod failures;
mod job;
mod join;
mod lending;
mod letters;
mod outcome;
mod pending;
mod running;
#[cfg(feature = "tokio")]
mod runtime;
mod settle;
pub(crate) mod stop;
mod tasks;
mod threads;
#[cfg_attr(not(feature = "tracing"), path = "trace_off.rs")]
mod trace;

use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

pub use dead_letters::{DeadLetters, Letter};
use each::Each;
pub use each::Turn;
pub use failures::{Failures, LastFailure};
pub use job::Job;
pub use outcome::{Failed, Failure, GivenUp, IntoVerdict, IntoVerdicts, Outcome, Reason, Verdict};
use pending::Pending;
pub use running::Running;
use settle::Lost;

use crate::limiter::ItemFastSlow;
use crate::{ConfigError, KeyHandle, WorkQueue};

/// A configuration of workers over a queue: their number, and what they do with failures. The
/// [module](self) shows the loop they run.
///
/// `E` is the error of the workers' function, from which the compiler infers it. A hook that is set
/// before may have to name the type: `.on_give_up(|key, given_up: GivenUp<MyError>| ...)`. The function gets a
/// [`Job`]. `'a` is how long its hooks live.
#[must_use = "workers do nothing until they run"]
pub struct Workers<'a, K, V = (), E = Infallible> {
    inner: Loop<'a, K, V, E>,
}

/// The loop that all workers run, with what they share.
struct Loop<'a, K, V, E> {
    queue: WorkQueue<K, V, ()>,
    concurrency: usize,
    max_retries: Option<u32>,
    on_error: Option<Box<ErrorHook<'a, K, E>>>,
    on_give_up: Option<OnGiveUp<'a, K, V, E>>,
    /// Clones the value for a report that waits.
    clone_value: Option<fn(&V) -> V>,
    /// Keeps a key that is given up, and returns whether it does.
    dead_letters: Option<Box<Keep<'a, K, V, E>>>,
    failures: Option<Failures<K, V>>,
    /// `None` if the value of a key is tried as a whole.
    each: Option<Each<V>>,
    requeue_cancelled: bool,
    /// How a key is formatted for its span; `None` if it is not recorded.
    #[cfg(feature = "tracing")]
    trace_keys: Option<fn(&K) -> String>,
    /// The number of retries of each key. Created at the first retry.
    retries: OnceLock<ItemFastSlow<K>>,
}

trait Key: Hash + Eq + Send + Sync + 'static {}

impl<K: Hash + Eq + Send + Sync + 'static> Key for K {}

type ErrorHook<'a, K, E> = dyn Fn(&K, &Failed<'_, E>) + Send + Sync + 'a;

/// The hook for keys that are given up, and the failures that it may have to be called with later.
struct OnGiveUp<'a, K, V, E> {
    hook: Hook<'a, K, V, E>,
    /// Behind a pointer that is `Send` and `Sync` whatever E is: without this hook, errors need not
    /// be `Send`.
    pending: Box<dyn Borrow<Pending<K, V, E>> + Send + Sync + 'a>,
}

enum Hook<'a, K, V, E> {
    Sync(Box<SyncHook<'a, K, V, E>>),
    Async(Box<AsyncHook<'a, K, V, E>>),
}

type SyncHook<'a, K, V, E> = dyn Fn(Lost<'_, '_, K, V>, GivenUp<E, V>) + Send + Sync + 'a;

type Keep<'a, K, V, E> = dyn Fn(&mut Lost<'_, '_, K, V>, &GivenUp<E, V>) -> bool + Send + Sync + 'a;

type AsyncHook<'a, K, V, E> =
    dyn Fn(KeyHandle<K, V>, GivenUp<E, V>) -> Report<'a> + Send + Sync + 'a;

/// A call of an async hook.
type Report<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl<K, V, E> OnGiveUp<'_, K, V, E> {
    fn pending(&self) -> &Pending<K, V, E> {
        (*self.pending).borrow()
    }
}

impl<'a, K, V, E> Workers<'a, K, V, E> {
    /// Creates workers over a queue, which they keep open: it is not shut down when the last reference to it is
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
            retries: OnceLock::new(),
        };
        Workers { inner }
    }

    /// Calls `hook` with every key that is given up, and a report of why: with its [value](GivenUp::value), if keys carry
    /// some.
    ///
    /// The worker still holds the key, and the limiter has forgotten it, so a key that the hook
    /// adds is queued again without failures. A panic of the hook is caught.
    ///
    /// A retry that is pending when the queue is shut down is reported, too, with
    /// [`Reason::Dropped`], by a worker that ends: once no other delivery can follow. For this the
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

    /// Sets the number of workers, which is the number of keys, or of batches, that are processing at the same time: 1 to
    /// 8192 threads, or 1 to 65 536 futures or tasks. Default: one for each processor.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.inner.concurrency = workers;
        self
    }

    /// Sets the number of times a failed key is retried before it is given up: with 5 retries, a
    /// key is given up at its sixth failure in a row.
    ///
    /// Default: no limit. See the [module](self#which-retries-count) for the retries that count.
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
    ///     ["pod: no route (attempt 1, the next in 0ns)", "pod: no route (attempt 2, given up)"],
    /// );
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn on_error(mut self, hook: impl Fn(&K, &Failed<'_, E>) + Send + Sync + 'a) -> Self {
        self.inner.on_error = Some(Box::new(hook));
        self
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

impl<K, V, E> Loop<'_, K, V, E> {
    /// Returns the number of workers, or an error if it is 0 or above `most`.
    fn count(&self, most: usize) -> Result<usize, ConfigError> {
        ConfigError::check_range("workers", "concurrency", 1..=most, self.concurrency)?;
        self.check_each()?;
        Ok(self.concurrency)
    }
}

impl<K, V, E> fmt::Debug for Workers<'_, K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("queue", &self.inner.queue.core.name())
            .field("concurrency", &self.inner.concurrency)
            .field("max_retries", &self.inner.max_retries)
            .finish_non_exhaustive()
    }
}
