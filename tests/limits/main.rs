//! Rate limits, back-off, and retries by them.

#[path = "../common/mod.rs"]
mod common;

mod backoff;
mod bucket;
mod give_back;
mod limiters;
mod loops;
mod retry;
mod retry_on_drop;
