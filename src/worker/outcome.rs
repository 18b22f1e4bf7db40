//! What a worker's function returns, and the reports of failures and of keys that are given up.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// What to do with a key that was processed without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Nothing more. The key's failures are forgotten.
    #[default]
    Done,
    /// Add the key again after this time. Its failures are forgotten.
    ///
    /// This is an [`add_after`](crate::WorkQueue::add_after): zero queues the key again
    /// immediately, and if a delay is pending already, the queue's
    /// [`DelayPolicy`](crate::DelayPolicy) decides between them.
    ///
    /// A value goes with the key, and its receipts end with a later delivery. If the function has
    /// [taken](super::Job::take) it, they end as [`Done`](crate::Ended::Done) now, and the key is delivered again only when another one
    /// is put. With [`each`](super::Workers::each), the messages behind what was taken go with the key, and so do the receipts.
    RequeueAfter(Duration),
    /// Add the key again after this time, and keep its failures: it is not the time to process it.
    ///
    /// Like [`RequeueAfter`](Self::RequeueAfter), but it neither forgets the failures nor counts as
    /// one. So a key that fails and is throttled in turns still reaches
    /// [`max_retries`](super::Workers::max_retries).
    Later(Duration),
    /// Add the key again after the delay that the queue's limiter returns: the work is not done, and
    /// nothing has failed. client-go's `AddRateLimited` without an error, controller-runtime's
    /// `Result{Requeue: true}`.
    ///
    /// A limiter that counts, such as the default one, makes its delays grow with each one in a row, and counts it towards
    /// [`max_retries`](super::Workers::max_retries): after that many of them, the first failure gives the key
    /// up. The outcome itself never does. A limiter that panics here makes it a failure, with
    /// [`Reason::Limiter`].
    RequeueRateLimited,
    /// Add the key again now, keep its failures, and hold its [group](crate::Builder::group_by) for this
    /// time: no key of the group is delivered before (G6). A longer hold stays as it is. For "429: not before
    /// 30 s".
    ///
    /// In a queue without groups this is [`Later`](Self::Later).
    HoldGroup(Duration),
}

/// What to do with a key that was processed, with or without an error.
///
/// A function may return a `Result` instead; see [`IntoVerdict`].
///
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::worker::{Outcome, Reason, Verdict, Workers};
/// use std::time::Duration;
///
/// fn fetch(key: &str) -> Result<Outcome, u16> {
///     match key {
///         "good" => Ok(Outcome::Done),
///         "throttled" => Err(429),
///         _ => Err(404),
///     }
/// }
///
/// let queue = WorkQueue::from_iter(["good", "throttled", "gone"]);
/// Workers::new(&queue)
///     .concurrency(1)
///     .on_give_up(|key, given_up| {
///         assert_eq!((*key, given_up.reason), ("gone", Reason::GiveUp));
///         queue.shut_down();
///     })
///     .run(|job| match fetch(&job) {
///         Err(429) => Verdict::RetryAfter(429, Duration::from_secs(30)),
///         Err(404) => Verdict::GiveUp(404),
///         result => result.into(), // any other error is `Verdict::Retry`
///     })?;
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict<E> {
    /// It was processed without an error.
    Ok(Outcome),
    /// It failed: retry it after the delay that the queue's limiter returns.
    Retry(E),
    /// It failed: retry it after this time.
    ///
    /// This counts as a failure like any other: it is charged to the limiter, a
    /// [`Bucket`](crate::limiter::Bucket)'s token included, whose delay is ignored, and counts towards [`max_retries`](super::Workers::max_retries).
    RetryAfter(E, Duration),
    /// It failed, and another try would fail, too. The key's failures are forgotten, and it is
    /// reported to the hook of [`on_give_up`](super::Workers::on_give_up), with
    /// [`Reason::GiveUp`].
    GiveUp(E),
}

impl<E> From<Result<Outcome, E>> for Verdict<E> {
    fn from(result: Result<Outcome, E>) -> Self {
        result.map_or_else(Verdict::Retry, Verdict::Ok)
    }
}

/// A return value of a worker's function.
///
/// | function | returns |
/// | --- | --- |
/// | cannot fail | `()` or [`Outcome`] |
/// | can fail | `Result<(), E>` or `Result<Outcome, E>`; an error is [`Verdict::Retry`] |
/// | can fail, and chooses what an error leads to | the same, with [`Job::give_up`](super::Job::give_up) and [`Job::retry_after`](super::Job::retry_after); or [`Verdict<E>`](Verdict) |
///
/// A `Result` with another value is refused; drop the value:
///
/// ```
/// # use keyqueue::WorkQueue;
/// # use keyqueue::worker::Workers;
/// # let queue = WorkQueue::from_iter(["1"]);
/// # queue.shut_down();
/// Workers::new(&queue).run(|job| job.parse::<u64>().map(drop))?;
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
///
/// ```compile_fail,E0277
/// # use keyqueue::WorkQueue;
/// # use keyqueue::worker::Workers;
/// # let queue = WorkQueue::from_iter(["1"]);
/// # queue.shut_down();
/// Workers::new(&queue).run(|job| job.parse::<u64>())?;
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a worker's function cannot return `{Self}`",
    label = "returns `{Self}`",
    note = "it may return `()`, `Outcome`, `Result<(), E>`, `Result<Outcome, E>` or `Verdict<E>`",
    note = "to drop the value of a `Result`, write `.map(drop)`"
)]
pub trait IntoVerdict {
    /// The error, which hooks get. Traces, [`Failures`](super::Failures) and [dead letters](super::DeadLetters) write it with
    /// `{:#}`, because an `anyhow::Error` writes its causes only then. Most errors are the same with `{}`; one that takes
    /// several lines with `{:#}`, such as a JSON value, needs a wrapper.
    type Error: fmt::Display;

    /// Converts the value to a verdict.
    fn into_verdict(self) -> Verdict<Self::Error>;
}

impl IntoVerdict for () {
    type Error = Infallible;

    fn into_verdict(self) -> Verdict<Infallible> {
        Verdict::Ok(Outcome::Done)
    }
}

impl IntoVerdict for Outcome {
    type Error = Infallible;

    fn into_verdict(self) -> Verdict<Infallible> {
        Verdict::Ok(self)
    }
}

impl<E: fmt::Display> IntoVerdict for Result<Outcome, E> {
    type Error = E;

    fn into_verdict(self) -> Verdict<E> {
        self.into()
    }
}

impl<E: fmt::Display> IntoVerdict for Result<(), E> {
    type Error = E;

    fn into_verdict(self) -> Verdict<E> {
        self.map(|()| Outcome::Done).into()
    }
}

impl<E: fmt::Display> IntoVerdict for Verdict<E> {
    type Error = E;

    fn into_verdict(self) -> Self {
        self
    }
}

/// A return value of a function that gets [batches](super::Workers::run_batches) of jobs.
///
/// | it returns | and then |
/// | --- | --- |
/// | what a function of one job does ([`IntoVerdict`]) | a success is that of each job; an error is that of the batch as a whole, which is tried again in two halves |
/// | a `Vec` of those, one for each job, in their order | each is what became of its job |
/// | a `Result` of such a `Vec` | the one or the other |
///
/// To retry all of a batch, for example if the database is down, say so for each:
/// `vec![Verdict::RetryAfter("down", delay); jobs.len()]`.
#[diagnostic::on_unimplemented(
    message = "a function of many jobs cannot return `{Self}`",
    label = "returns `{Self}`",
    note = "for all jobs it may return `()`, `Outcome`, `Result<(), E>`, `Result<Outcome, E>` or `Verdict<E>`",
    note = "for each it may return a `Vec` of these, or a `Result` of such a `Vec`"
)]
pub trait IntoVerdicts {
    /// The error, as that of an [`IntoVerdict`].
    type Error: fmt::Display;

    /// Converts the value to a verdict for each job.
    ///
    /// # Errors
    ///
    /// Returns a verdict for all jobs, which may be [`Verdict::Ok`], if that is what it is.
    fn into_verdicts(self) -> Result<Vec<Verdict<Self::Error>>, Verdict<Self::Error>>;
}

impl<R: IntoVerdict> IntoVerdicts for R {
    type Error = R::Error;

    fn into_verdicts(self) -> Result<Vec<Verdict<R::Error>>, Verdict<R::Error>> {
        Err(self.into_verdict())
    }
}

impl<R: IntoVerdict> IntoVerdicts for Vec<R> {
    type Error = R::Error;

    fn into_verdicts(self) -> Result<Vec<Verdict<R::Error>>, Verdict<R::Error>> {
        Ok(self.into_iter().map(R::into_verdict).collect())
    }
}

impl<R: IntoVerdict> IntoVerdicts for Result<Vec<R>, R::Error> {
    type Error = R::Error;

    fn into_verdicts(self) -> Result<Vec<Verdict<R::Error>>, Verdict<R::Error>> {
        self.map_err(Verdict::Retry)?.into_verdicts()
    }
}

/// How processing a key failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure<E> {
    /// The function returned this error.
    Error(E),
    /// The function panicked with this message.
    Panic(String),
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Error(error) => error.fmt(f),
            Failure::Panic(message) => write!(f, "panicked: {message}"),
        }
    }
}

impl<E: Error> Error for Failure<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Failure::Error(error) => error.source(),
            Failure::Panic(_) => None,
        }
    }
}

/// A failure, for the hook of [`on_error`](super::Workers::on_error).
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed<'f, E> {
    /// How the key failed.
    pub failure: &'f Failure<E>,
    /// The number of the try that failed, from 1: see [`Job::attempt`](super::Job::attempt).
    pub attempt: u32,
    /// The delay of the retry, from now; `None` if the key is given up, or its value was
    /// [taken](super::Job::take). A delay that is pending already may be kept instead, by the
    /// queue's [`DelayPolicy`](crate::DelayPolicy).
    pub next: Option<Duration>,
}

/// Writes the failure, with `{:#}` as that writes it, and what follows: `no route to host (attempt 2, the next in 10ms)`.
impl<E: fmt::Display> fmt::Display for Failed<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)?;
        write!(f, " (attempt {}, ", self.attempt)?;
        match self.next {
            Some(Duration::ZERO) => f.write_str("the next immediately)"),
            Some(next) => write!(f, "the next in {next:?})"),
            None => f.write_str("given up)"),
        }
    }
}

/// Why a key that failed is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It was retried the number of times that [`max_retries`](super::Workers::max_retries) allows.
    MaxRetries,
    /// The queue is shut down and refused the retry.
    ShutDown,
    /// The queue's rate limiter panicked when the worker called it for the retry.
    Limiter,
    /// The function returned [`Verdict::GiveUp`].
    GiveUp,
    /// Its retry was pending when the queue was shut down, and was dropped.
    Dropped,
    /// Too many keys of a [bounded](crate::Builder::capacity) queue wait for their retries, and this one fails again and
    /// again while others succeed (B5).
    Crowded,
}

/// Writes the reason: `no retries left`.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::MaxRetries => "no retries left",
            Reason::ShutDown => "shut down",
            Reason::Limiter => "the rate limiter panicked",
            Reason::GiveUp => "as the worker decided",
            Reason::Dropped => "the next dropped by the shut-down",
            Reason::Crowded => "too many retries wait",
        })
    }
}

/// The report of a key that was given up, for the hook of
/// [`on_give_up`](super::Workers::on_give_up).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GivenUp<E, V = ()> {
    /// The last failure.
    pub failure: Failure<E>,
    /// What was put for the key and is not finished. `None` if the function has taken it, or
    /// [`remove`](crate::WorkQueue::remove) that of a dropped retry at this moment; in a queue without values; and for
    /// [`on_give_up_async`](super::Workers::on_give_up_async), where the value stays with the key, unless
    /// [`values_in_reports`](super::Workers::values_in_reports) is set.
    pub value: Option<V>,
    /// The number of retries: one less than the number of failures, and what the limiter has counted beyond
    /// that ([`Outcome::RequeueRateLimited`]). Zero if the limiter panicked before the count was known.
    pub retries: u32,
    /// Why it is not retried again.
    pub reason: Reason,
}

impl<E, V> GivenUp<E, V> {
    /// Returns the report alone, to be passed on, and the value.
    #[must_use]
    pub fn split(self) -> (GivenUp<E>, Option<V>) {
        let report = GivenUp {
            failure: self.failure,
            value: None,
            retries: self.retries,
            reason: self.reason,
        };
        (report, self.value)
    }
}

impl<E: Error, V: fmt::Debug> Error for GivenUp<E, V> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.source()
    }
}

/// Writes the last failure, with `{:#}` as that writes it, and the number of retries: `no route to host (retries: 5)`.
impl<E: fmt::Display, V> fmt::Display for GivenUp<E, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)?;
        write!(f, " (retries: {}", self.retries)?;
        match self.reason {
            Reason::MaxRetries => f.write_str(")"),
            reason => write!(f, ", {reason})"),
        }
    }
}
