//! Back-off for loops of one's own: growing delays, retries, and loops that run until stopped.
//!
//! What apimachinery's `wait` package is to a Go controller, and with its names. For a key of a queue,
//! see [`limiter`](crate::limiter); this is for what stands around a queue: connecting, watching, polling.
//!
//! | | |
//! | --- | --- |
//! | [`Backoff`] | a sequence of growing delays, with cap and jitter |
//! | [`ExponentialBackoffManager`] | an endless one, which starts over after an idle time |
//! | [`jitter()`] | a delay with a random part added |
//! | [`retry()`], [`retry_with`], [`retry_async`] | try what may fail a limited number of times |
//! | [`backoff_until`], [`backoff_until_async`] | run something again and again until stopped |
//! | [`Stop`] | stops a blocking loop, and wakes it from its sleep |
//!
//! Delays are plain iterators over [`Duration`](std::time::Duration), so the standard adaptors work on them.
//! Nothing here needs an executor: the async loops are given a function that sleeps. With the feature `tokio`,
//! off by default, the module `backoff::tokio` has them with tokio's.

mod jitter;
mod manager;
mod retry;
mod steps;
mod stop;
#[cfg(feature = "tokio")]
pub mod tokio;
mod until;

pub use jitter::jitter;
pub use manager::ExponentialBackoffManager;
pub use retry::{retry, retry_async, retry_with};
pub use steps::Backoff;
pub use stop::Stop;
pub use until::{backoff_until, backoff_until_async};
