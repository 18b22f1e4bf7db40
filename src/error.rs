//! The error values of the crate: what was refused, and why, in words that name it.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// Why [`WorkQueue::try_get`](crate::WorkQueue::try_get) has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TryGetError {
    /// Nothing is queued now.
    Empty,
    /// The queue is shut down, and nothing is queued or will be.
    ShutDown,
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

impl fmt::Display for GetTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GetTimeoutError::Timeout => "no key was queued in time",
            GetTimeoutError::ShutDown => "the queue is shut down and empty",
        })
    }
}

impl Error for GetTimeoutError {}

/// A setting that was refused when something was built from it.
///
/// Names the field and carries its value as it was given, so that a bad line in a configuration
/// file can be told from the message alone.
///
/// # Examples
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    part: &'static str,
    field: &'static str,
    requirement: Cow<'static, str>,
    value: String,
}

impl ConfigError {
    /// Refuses the `value` of a `field` of `part` ("rate limiter"), which does not meet the
    /// `requirement` ("must be above 0").
    #[cold]
    pub(crate) fn new(
        part: &'static str,
        field: &'static str,
        requirement: impl Into<Cow<'static, str>>,
        value: impl fmt::Debug,
    ) -> Self {
        Self {
            part,
            field,
            requirement: requirement.into(),
            value: format!("{value:?}"),
        }
    }

    /// The name of the refused field: the parameter of a constructor, or the public field.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The refused value, as `Debug` writes it: `NaN`, `-1.0`, `5ms`.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            part,
            field,
            requirement,
            value,
        } = self;
        write!(f, "{part} `{field}` {requirement}, but is {value}")
    }
}

impl Error for ConfigError {}
