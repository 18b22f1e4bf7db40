//! Back-off for your own loops: growing delays, retries, and loops that run until stopped.
//!
//! The names are those of apimachinery's `wait` package. This module is for the code around a queue
//! that connects, watches or polls; for the delays of keys, see [`limiter`](crate::limiter).
//!
//! | | |
//! | --- | --- |
//! | [`Backoff`] | a sequence of growing delays, with cap and jitter |
//! | [`ExponentialBackoffManager`] | an endless sequence, which starts over after an idle time |
//! | [`jitter()`] | a delay with a random part added |
//! | [`retry()`], [`retry_with`], [`retry_async`] | a limited number of tries of a fallible operation |
//! | [`backoff_until`], [`backoff_until_async`] | run something repeatedly until stopped |
//! | [`Interval`] | whether their delays begin with a run or after it |
//! | [`Stop`] | stops a blocking loop, and wakes it from its sleep |
//!
//! Delays are iterators over [`Duration`](std::time::Duration). The async functions take a function
//! that sleeps, so they work with any executor; with the feature `tokio`, the module
//! `backoff::on_tokio` provides them with tokio's `sleep`.

mod jitter;
mod manager;
#[cfg(feature = "tokio")]
pub mod on_tokio;
mod retry;
mod steps;
mod stop;
mod until;

pub use jitter::jitter;
pub use manager::ExponentialBackoffManager;
pub use retry::{retry, retry_async, retry_with};
pub use steps::Backoff;
pub use stop::Stop;
pub use until::{Interval, backoff_until, backoff_until_async};
