//! The outcome of a worker's function, and the report of a key that is given up.

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
    RequeueAfter(Duration),
}

/// A return value of a worker's function.
///
/// Implemented for `Result<Outcome, E>` and `Result<(), E>`, for functions that can fail, and for
/// [`Outcome`] and `()`, for those that cannot.
pub trait IntoOutcome {
    /// The error that is passed to the hook of [`on_give_up`](super::Workers::on_give_up).
    type Error;

    /// Converts the value to an outcome or an error.
    ///
    /// # Errors
    ///
    /// Returns an error if processing the key failed.
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
}

/// The report of a key that was given up, for the hook of
/// [`on_give_up`](super::Workers::on_give_up).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GivenUp<E> {
    /// The last failure.
    pub failure: Failure<E>,
    /// The number of retries, one less than the number of failures. Zero if the limiter panicked
    /// before the count was known.
    pub retries: u32,
    /// Why it is not retried again.
    pub reason: Reason,
}

impl<E: Error> Error for GivenUp<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.source()
    }
}

/// Writes the last failure and the number of retries: `no route to host (retries: 5)`.
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
