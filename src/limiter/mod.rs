//! When to try again.

/// No limit: a retry is due at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLimit;
