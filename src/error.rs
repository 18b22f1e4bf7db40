//! The crate's error types. Each message names what was refused, and why.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Why [`WorkQueue::try_get`](crate::WorkQueue::try_get) has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TryGetError {
    /// Nothing is queued now.
    Empty,
    /// The queue is shut down, and nothing is queued or will be.
    ShutDown,
}

impl TryGetError {
    /// Whether nothing is queued now, but something may be later.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::<u64>::new();
    /// assert!(queue.try_get().is_err_and(|error| error.is_empty()));
    /// queue.shut_down();
    /// assert!(queue.try_get().is_err_and(|error| error.is_shut_down()));
    /// ```
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == TryGetError::Empty
    }

    /// Whether the queue is shut down, and nothing is queued or will be.
    #[must_use]
    pub fn is_shut_down(self) -> bool {
        self == TryGetError::ShutDown
    }
}

impl fmt::Display for TryGetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryGetError::Empty => "the queue is empty",
            TryGetError::ShutDown => "the queue is shut down and empty",
        })
    }
}

impl Error for TryGetError {}

/// Why [`WorkQueue::get_timeout`](crate::WorkQueue::get_timeout) has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GetTimeoutError {
    /// No key was queued in time.
    Timeout,
    /// The queue is shut down, and nothing is queued or will be.
    ShutDown,
}

impl GetTimeoutError {
    /// Whether no key was queued in time, but one may be later.
    #[must_use]
    pub fn is_timeout(self) -> bool {
        self == GetTimeoutError::Timeout
    }

    /// Whether the queue is shut down, and nothing is queued or will be.
    #[must_use]
    pub fn is_shut_down(self) -> bool {
        self == GetTimeoutError::ShutDown
    }
}

impl fmt::Display for GetTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GetTimeoutError::Timeout => "no key was queued in time",
            GetTimeoutError::ShutDown => "the queue is shut down and empty",
        })
    }
}

impl Error for GetTimeoutError {}

/// A setting that a constructor or builder refused.
///
/// The message names the setting and carries the value as it was given. Errors with the same
/// message are equal, whatever their [`source`](Error::source).
///
/// ```
/// use keyqueue::WorkQueue;
///
/// let refused = WorkQueue::<u64>::builder().ring(0).build().unwrap_err();
/// assert_eq!(refused.field(), "ring");
/// assert_eq!(refused.value(), "0");
/// assert_eq!(
///     refused.to_string(),
///     "queue `ring` must be between 1 and 16777216, but is 0",
/// );
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConfigError {
    field: &'static str,
    value: String,
    message: String,
    cause: Option<Arc<io::Error>>,
}

impl ConfigError {
    /// Refuses the `value` of a `field` of `part` ("rate limiter"), which does not meet the
    /// `requirement` ("must be above 0").
    #[cold]
    pub(crate) fn new(
        part: &str,
        field: &'static str,
        requirement: impl fmt::Display,
        value: impl fmt::Debug,
    ) -> Self {
        let value = format!("{value:?}");
        Self {
            message: format!("{part} `{field}` {requirement}, but is {value}"),
            field,
            value,
            cause: None,
        }
    }

    pub(crate) fn check_range<T: PartialOrd + fmt::Debug>(
        part: &str,
        field: &'static str,
        range: RangeInclusive<T>,
        value: T,
    ) -> Result<(), Self> {
        if range.contains(&value) {
            return Ok(());
        }
        let (least, most) = range.into_inner();
        let requirement = format!("must be between {least:?} and {most:?}");
        Err(Self::new(part, field, requirement, value))
    }

    /// Sets the operating system's error as the [`source`](Error::source).
    pub(crate) fn caused_by(mut self, error: io::Error) -> Self {
        self.cause = Some(Arc::new(error));
        self
    }

    /// Returns the name of the refused field: a constructor's parameter, or a public field.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// Returns the refused value in its `Debug` form, such as `NaN`, `-1.0` or `5ms`.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}

impl PartialEq for ConfigError {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

impl Eq for ConfigError {}
