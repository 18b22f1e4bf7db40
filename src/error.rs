//! The crate's error types. Each message names what was refused, and why.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Why a get returned no key: of [`try_get`](crate::WorkQueue::try_get), and of each get with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GetError {
    /// No key was queued, now or within the limit. One may be later.
    Empty,
    /// The queue is shut down, and no key is queued or will be.
    ShutDown,
}

impl GetError {
    /// Returns whether no key was queued, now or within the limit.
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
        self == GetError::Empty
    }

    /// Returns whether the queue is shut down, and no key is queued or will be.
    #[must_use]
    pub fn is_shut_down(self) -> bool {
        self == GetError::ShutDown
    }
}

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GetError::Empty => "no key is queued",
            GetError::ShutDown => "the queue is shut down and empty",
        })
    }
}

impl Error for GetError {}

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
