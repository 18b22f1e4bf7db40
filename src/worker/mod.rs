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
//! function, the hook, a limiter, a waker or a subscriber of `tracing` does not stop them.
//!
//! # Which retries count
//!
//! [`max_retries`](Workers::max_retries) is compared with the larger of two numbers: the limiter's
//! [`num_requeues`](crate::WorkQueue::num_requeues), and the retries that all workers of the queue have made since
//! the key was last forgotten. So the limit holds with any limiter, including one that counts nothing
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
//! * an [`Outcome::RequeueAfter`], [`Outcome::Later`], [`Outcome::RequeueRateLimited`] or [`Outcome::HoldGroup`] that is dropped or
//!   refused, since the key did not fail: [`take_left`](crate::WorkQueue::take_left) returns such keys;
//! * a retry that was cancelled, whose value was taken back, or whose delay has ended and whose key another getter has got;
//! * a retry whose time another `add_after` has changed: it is that call's delay from then on;
//! * a retry whose workers have been aborted or dropped: the delay stays in the queue, and workers
//!   that are started later count on, but do not know its error;
//! * a retry whose key is also queued or processing: the key is reported if that delivery fails, and the retry is left
//!   (S12). But if another getter, or another `Workers`, holds the key at the shut-down, the retry is reported, too.
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

mod settings;

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

pub use dead_letters::{DeadLetters, Letter};
use each::Each;
pub use each::Turn;
pub use failures::{Failures, LastFailure};
pub use job::Job;
pub use outcome::{Failed, Failure, GivenUp, IntoVerdict, IntoVerdicts, Outcome, Reason, Verdict};
use pending::Pending;
pub use running::Running;
use settle::Lost;

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
