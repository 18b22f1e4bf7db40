//! What a worker's function says about a key, and what is said about one that is given up.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// What becomes of a key that was worked on without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing: its failures are forgotten.
    #[default]
    Done,
    /// Its failures are forgotten, and it is added again after this time.
    ///
    /// As [`add_after`](crate::WorkQueue::add_after), so zero queues it again at once, and the
    /// queue's [`DelayPolicy`](crate::DelayPolicy) decides if a delay is pending already.
    RequeueAfter(Duration),
}

/// What the function of a worker may return.
///
/// A `Result` of [`Outcome`] or of `()` where it can fail, a plain `Outcome` or `()` where it cannot, and
/// what else this is implemented for.
pub trait IntoOutcome {
    /// The error that the hook of [`on_give_up`](super::Workers::on_give_up) gets.
    type Error;

    /// The outcome, or what went wrong.
    ///
    /// # Errors
    ///
    /// The work on the key has failed.
    fn into_outcome(self) -> Result<Outcome, Self::Error>;
}

impl IntoOutcome for () {
    type Error = Infallible;

    fn into_outcome(self) -> Result<Outcome, Infallible> {
        Ok(Outcome::Done)
    }
}

impl IntoOutcome for Outcome {
    type Error = Infallible;

    fn into_outcome(self) -> Result<Outcome, Infallible> {
        Ok(self)
    }
}

impl<E> IntoOutcome for Result<Outcome, E> {
    type Error = E;

    fn into_outcome(self) -> Result<Outcome, E> {
        self
    }
}

impl<E> IntoOutcome for Result<(), E> {
    type Error = E;

    fn into_outcome(self) -> Result<Outcome, E> {
        self.map(|()| Outcome::Done)
    }
}

/// How the work on a key failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

/// Why a key that failed is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It was tried again as often as [`max_retries`](super::Workers::max_retries) allows.
    MaxRetries,
    /// The queue is shut down and took no retry.
    ShutDown,
    /// The queue's rate limiter panicked as it was asked about the retry.
    Limiter,
}

/// The end of a key that was given up: for the hook of [`on_give_up`](super::Workers::on_give_up).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GivenUp<E> {
    /// The last failure.
    pub failure: Failure<E>,
    /// How often it was tried again: one less than it failed. Zero if the limiter panicked as it was
    /// asked.
    pub retries: u32,
    /// Why it is not tried once more.
    pub reason: Reason,
}

/// The last failure, and the number of retries: `no route to host (retries: 5)`.
impl<E: fmt::Display> fmt::Display for GivenUp<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (retries: {}", self.failure, self.retries)?;
        f.write_str(match self.reason {
            Reason::MaxRetries => ")",
            Reason::ShutDown => ", shut down)",
            Reason::Limiter => ", the rate limiter panicked)",
        })
    }
}
