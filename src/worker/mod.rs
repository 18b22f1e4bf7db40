//! The loop around the queue: workers that get keys, work on them, and try again what failed.
//!
//! ```text
//!     get --> your function --> Ok(Done)             forget, done
//!      ^                    --> Ok(RequeueAfter(d))  forget, add after d, done
//!      |                    --> Err(e), or a panic   retries left: add rate limited, done
//!      |                                             none left:    forget, report, done
//!      +------------------------------------------------------------+
//! ```
//!
//! "Forget" and "rate limited" are the queue's limiter's: see
//! [`Builder::rate_limiter`](crate::Builder::rate_limiter). A key stays with its worker through all
//! of this, the report included, so whatever adds it meanwhile brings it back afterwards.
//!
//! | | workers are | and it |
//! | --- | --- | --- |
//! | [`Workers::run`] | threads, which may borrow | blocks until the queue is shut down and empty |
//! | [`Workers::spawn`] | threads of their own | returns a handle to stop and join them |
//! | [`Workers::run_async`] | futures, within one task of any executor | is ready then |
//!
//! # What stops workers
//!
//! Shutting the queue down does, and nothing else (promise W4): they work off what is queued, finish
//! what they hold, and end. A panic of the function, of the hook, of a limiter or of a waker does not.
//!
//! # Which retries count
//!
//! [`max_retries`](Workers::max_retries) is compared with
//! [`num_requeues`](crate::WorkQueue::num_requeues), so what else adds a key rate limited counts.
//! A limiter may say zero of a key that was tried again: because it counts nothing
//! ([`NoLimit`](crate::limiter::NoLimit), a [`Bucket`](crate::limiter::Bucket) alone), or because the
//! work took longer than it remembers. Such retries the workers themselves count, for a day at most;
//! those of one `Workers` alone. So a limit holds with any limiter. The delays do not grow if it forgets
//! between two failures: see
//! [`remember_for`](crate::limiter::ItemExponentialFailure::remember_for).
//!
//! # Retries after a shut-down
//!
//! The queue refuses them. A key that fails then is given up at once, and reported with
//! [`Reason::ShutDown`]. A retry that is pending as the queue is shut down is dropped with the other
//! delays and counted in [`Remaining::delayed`](crate::Remaining); a drain of a queue that was built with
//! [`drain_delays`](crate::Builder::drain_delays) makes it at once. What [`Outcome::RequeueAfter`]
//! asks for after a shut-down is not reported: the key did not fail.
//!
//! # Traces
//!
//! With feature `tracing` each delivered key has a span, `key`, of target `keyqueue` and level info, around
//! the function and what is done about its outcome. Its fields: the `queue`'s name; the `key`, if
//! `trace_keys` is called; the `attempt`, from 1; `queue_seconds`, if the queue is timed; and the `outcome`,
//! one of `done`, `requeue_after`, `retry` and `given_up`. A panic is an event of level error, a key that is
//! given up one of level warn, with the `reason` and the number of `retries`.
//!
//! # Examples
//!
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue::limiter::ItemExponentialFailure;
//! use keyqueue::worker::{Outcome, Workers};
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::thread;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), keyqueue::ConfigError> {
//! let limiter = ItemExponentialFailure::new(Duration::from_millis(1), Duration::from_secs(1))?;
//! let queue = WorkQueue::builder().rate_limiter(limiter).build()?;
//! queue.add_all(["good", "bad"]);
//!
//! let tries = AtomicU32::new(0);
//! Workers::new(&queue)
//!     .threads(2)
//!     .max_retries(3)
//!     .on_give_up(|key, given_up| {
//!         assert_eq!(*key, "bad");
//!         assert_eq!(given_up.to_string(), "it is bad (retries: 3)");
//!         queue.shut_down();
//!     })
//!     .run(|key| {
//!         if *key == "good" {
//!             return Ok(Outcome::Done);
//!         }
//!         tries.fetch_add(1, Ordering::Relaxed);
//!         Err("it is bad")
//!     })?;
//! assert_eq!(tries.into_inner(), 4);
//! # Ok(())
//! # }
//! ```

mod join;
mod outcome;
mod settle;
mod tasks;
mod threads;
#[cfg_attr(not(feature = "tracing"), path = "trace_off.rs")]
mod trace;

use std::fmt;
use std::sync::{Arc, OnceLock};

pub use outcome::{Failure, GivenUp, IntoOutcome, Outcome, Reason};
pub use threads::Running;

use crate::error::ConfigError;
use crate::limiter::ItemExponentialFailure;
use crate::queue::WorkQueue;

/// More workers than anybody can have use for.
const MOST: usize = 1 << 16;

/// Workers over a queue: their number, and what they do with failures.
///
/// See the [module](self) for what they do, and for an example.
///
/// `E` is the error of the function that they are given in the end; the compiler finds it from
/// that. In a hook that is written before, its type may have to be named:
/// `.on_give_up(|key, given_up: GivenUp<MyError>| ...)`.
#[must_use = "workers do nothing until they run"]
pub struct Workers<'a, K, L, S, E> {
    queue: Source<'a, K, L, S>,
    /// The name of the setting that gave the number, and the number; none: one for each processor.
    count: Option<(&'static str, usize)>,
    max_retries: Option<u32>,
    on_give_up: Option<Box<Hook<'a, K, E>>>,
    #[cfg(feature = "tracing")]
    trace_keys: trace::Keys<K>,
    /// The retries that the limiter does not count, or may forget. Made when there is one.
    uncounted: OnceLock<ItemExponentialFailure<K>>,
}

type Hook<'a, K, E> = dyn Fn(&K, GivenUp<E>) + Send + Sync + 'a;

enum Source<'a, K, L, S> {
    Borrowed(&'a WorkQueue<K, L, S>),
    Shared(Arc<WorkQueue<K, L, S>>),
}

impl<K, L, S> Source<'_, K, L, S> {
    fn get(&self) -> &WorkQueue<K, L, S> {
        match self {
            Source::Borrowed(queue) => queue,
            Source::Shared(queue) => queue,
        }
    }
}

impl<K, L, S> Clone for Source<'_, K, L, S> {
    fn clone(&self) -> Self {
        match self {
            Source::Borrowed(queue) => Source::Borrowed(queue),
            Source::Shared(queue) => Source::Shared(Arc::clone(queue)),
        }
    }
}

impl<'a, K, L, S, E> Workers<'a, K, L, S, E> {
    /// Workers over a borrowed queue.
    pub fn new(queue: &'a WorkQueue<K, L, S>) -> Self {
        Self::over(Source::Borrowed(queue))
    }

    /// Workers over a shared queue, which may outlive the caller: for [`spawn`](Self::spawn).
    pub fn shared(queue: Arc<WorkQueue<K, L, S>>) -> Self {
        Self::over(Source::Shared(queue))
    }

    fn over(queue: Source<'a, K, L, S>) -> Self {
        Workers {
            queue,
            count: None,
            max_retries: None,
            on_give_up: None,
            #[cfg(feature = "tracing")]
            trace_keys: trace::Keys::none(),
            uncounted: OnceLock::new(),
        }
    }

    /// How many keys are worked on at the same time, each on a thread of its own: 1 to 65 536.
    ///
    /// Default: one for each processor. The same setting as [`tasks`](Self::tasks).
    pub fn threads(mut self, threads: usize) -> Self {
        self.count = Some(("threads", threads));
        self
    }

    /// How many keys [`run_async`](Self::run_async) works on at the same time: 1 to 65 536.
    ///
    /// Default: one for each processor. The same setting as [`threads`](Self::threads).
    pub fn tasks(mut self, tasks: usize) -> Self {
        self.count = Some(("tasks", tasks));
        self
    }

    /// How often a key that fails is tried again before it is given up: with 5 retries it is given up at
    /// its sixth failure in a row.
    ///
    /// Default: there is no limit. See the [module](self#which-retries-count) for what counts.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Tells `hook` of every key that is given up, and why.
    ///
    /// The worker still holds the key, and the limiter has forgotten it: adding the key from the hook
    /// brings it back, as a new one. A panic of the hook is caught, and the key is done all the same.
    ///
    /// Default: nobody is told.
    pub fn on_give_up(mut self, hook: impl Fn(&K, GivenUp<E>) + Send + Sync + 'a) -> Self {
        self.on_give_up = Some(Box::new(hook));
        self
    }

    /// Writes each key into its span, as its `Debug` has it.
    ///
    /// Default: it is not written; a key may be long, or nobody's business.
    #[cfg(feature = "tracing")]
    pub fn trace_keys(mut self) -> Self
    where
        K: fmt::Debug,
    {
        self.trace_keys = trace::Keys::debug();
        self
    }

    fn queue(&self) -> &WorkQueue<K, L, S> {
        self.queue.get()
    }

    /// The number of workers, if it is in range.
    fn count(&self) -> Result<usize, ConfigError> {
        match self.count {
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
            Some((_, count)) if (1..=MOST).contains(&count) => Ok(count),
            Some((field, count)) => {
                let requirement = format!("must be between 1 and {MOST}");
                Err(ConfigError::new("workers", field, requirement, count))
            }
        }
    }
}

impl<K, L, S, E> fmt::Debug for Workers<'_, K, L, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("queue", self.queue())
            .field("count", &self.count.map(|(_, count)| count))
            .field("max_retries", &self.max_retries)
            .finish_non_exhaustive()
    }
}
