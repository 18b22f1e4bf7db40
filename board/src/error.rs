//! The errors of this crate. Each names what was refused, and its value.

use thiserror::Error;

/// A queue that a [`Board`](crate::Board) does not take.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("board `name` {rule}, but is {value:?}")]
pub struct NameError {
    rule: &'static str,
    value: String,
}

impl NameError {
    pub(crate) fn new(rule: &'static str, value: &str) -> Self {
        NameError {
            rule,
            value: value.to_owned(),
        }
    }

    /// Returns the name that was refused.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}
