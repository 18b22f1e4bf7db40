//! Keys that carry values, and receipts for their adds.

#[allow(dead_code, reason = "TODO-VALUES: no add hands out a receipt yet")]
pub(crate) mod receipt;
