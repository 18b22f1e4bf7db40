//! Two candidates.
