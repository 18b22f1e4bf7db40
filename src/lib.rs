//! A keyed work queue: add a key as often as you like; it is handed out once, to one worker at a time, and never
//! lost.
//!
//! It is the queue under Kubernetes controllers, client-go's `workqueue`, made anew with one atomic state machine
//! per key and no global lock. It is for whatever keeps something in step with something else: *that* a key
//! changed matters, and not how often.
//!
//! ```text
//!     idle --add--> queued --get--> processing --done--> idle
//!                                       |
//!                                       +--add--> processing-dirty --done--> queued (at the tail)
//! ```
//!
//! # Quick start
//!
//! Threads:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//!
//! use keyqueue::WorkQueue;
//!
//! let sold = Mutex::new(HashMap::new()); // what the keys stand for
//! let shown = Mutex::new(HashMap::new());
//! let queue = WorkQueue::new();
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             // Waits for a key. `None`: the queue is shut down, and empty.
//!             while let Some(fruit) = queue.get() {
//!                 // While the item is held, no other worker gets the same fruit.
//!                 let count: u32 = sold.lock().unwrap()[*fruit];
//!                 shown.lock().unwrap().insert(*fruit, count);
//!             } // Dropping the item is "done". If the fruit was added meanwhile, it comes once more.
//!         });
//!     }
//!     for fruit in ["apple", "banana", "apple", "cherry", "apple"] {
//!         // Change the state first, then add: a delivery that begins after the add sees the change.
//!         *sold.lock().unwrap().entry(fruit).or_default() += 1;
//!         queue.add(fruit);
//!     }
//!     queue.shut_down_with_drain(); // no more adds; returns when everything is done
//! });
//! assert_eq!(shown.lock().unwrap()["apple"], 3);
//! ```
//!
//! Tasks, of any executor:
//!
//! ```
//! use std::sync::Arc;
//!
//! use keyqueue::{Added, WorkQueue};
//!
//! # #[tokio::main]
//! # async fn main() {
//! let queue = Arc::new(WorkQueue::<String>::new());
//! let worker = tokio::spawn({
//!     let queue = Arc::clone(&queue);
//!     async move {
//!         let mut delivered = 0;
//!         // Cancel-safe: it may stand in a `select!`.
//!         while let Some(key) = queue.get_async().await {
//!             assert!(key.starts_with("pod/"));
//!             delivered += 1;
//!         }
//!         delivered
//!     }
//! });
//! assert_eq!(queue.add_ref("pod/a"), Added::Queued); // copies the key only if it is unknown
//! queue.drain_async().await;
//! assert_eq!(worker.await.unwrap(), 1);
//! # }
//! ```
//!
//! # Guide
//!
//! | to | take |
//! | --- | --- |
//! | add a key, a borrowed key, many keys | [`add`](WorkQueue::add), [`add_ref`](WorkQueue::add_ref), [`add_all`](WorkQueue::add_all) |
//! | know what an add did | its answer, [`Added`] |
//! | add one key again and again, without hashing | a [`KeyHandle`], by [`handle`](WorkQueue::handle) |
//! | wait for a key in a thread, for a time, not at all | [`get`](WorkQueue::get), [`get_timeout`](WorkQueue::get_timeout), [`try_get`](WorkQueue::try_get) |
//! | wait for a key in a task | [`get_async`](WorkQueue::get_async) |
//! | take several keys at once | [`get_batch`](WorkQueue::get_batch) |
//! | finish a key | drop its [`Item`], or call [`done`](Item::done) |
//! | end at once, handing out what is queued | [`shut_down`](WorkQueue::shut_down) |
//! | end when all is done | [`shut_down_with_drain`](WorkQueue::shut_down_with_drain), [`drain_timeout`](WorkQueue::drain_timeout), [`drain_async`](WorkQueue::drain_async) |
//! | add a key later, or take that back | [`add_after`](WorkQueue::add_after), [`cancel`](WorkQueue::cancel) |
//! | try a key again | [`Item::retry`], [`add_rate_limited`](WorkQueue::add_rate_limited), a [`limiter`] |
//! | not write the loop around it | [`worker`] |
//! | see what it is doing | [`snapshot`](WorkQueue::snapshot), [`stuck`](WorkQueue::stuck), a [name](Builder::name) and feature `metrics` |
//! | give idle keys' memory back now | [`shrink`](WorkQueue::shrink) |
//! | set the shards, the ring, the hasher, a name | [`WorkQueue::builder`] |
//!
//! What a user may rely on is in [`docs::semantics`]; what may surprise, in [`docs::limitations`]; what things cost,
//! in [`docs::performance`]; what it reports, in [`docs::metrics`]; how it works, in [`docs::internals`].
//!
//! # What is there
//!
//! The FIFO queue, waiting by threads and tasks alike, shutting down, and draining; delays; rate limits and
//! back-off; the worker loop; metrics, snapshots and traces.
//!
//! | feature | what |
//! | --- | --- |
//! | `metrics` | a queue with a name reports client-go's series, and more: [`docs::metrics`] |
//! | `serde` | what [`snapshot`](WorkQueue::snapshot) answers can be serialised |
//! | `tracing` | a span for each key that the worker loop gets: [`worker`] |
//!
//! None is on by default.
//!
//! No operation takes a lock that all share. An add takes the lock of one shard of the table, for a probe; `get`,
//! `done`, and adds through a handle take none, unless somebody has to be woken or the ring has run over. The crate
//! starts no thread before the first delay, needs no runtime, and allocates nothing before a queue is used, nor for
//! a recurring key while the ring has room.
#![deny(missing_docs)]

pub mod backoff;
mod builder;
mod caught;
mod clock;
mod closing;
mod core;
pub mod docs;
mod drain;
mod error;
mod fifo;
mod get;
mod ghosts;
mod handle;
mod hash;
mod item;
mod keys;
mod lazy;
pub mod limiter;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/off.rs"]
mod metrics;
mod nanos;
mod node;
mod outcome;
mod overflow;
mod queue;
mod retry;
mod ring;
mod slab;
mod state;
mod sync;
mod table;
mod timer;
mod wait;
mod watch;
pub mod worker;

pub use builder::Builder;
pub use clock::{Clock, MockClock};
pub use error::{ConfigError, GetTimeoutError, TryGetError};
pub use get::GetAsync;
pub use handle::KeyHandle;
pub use item::{Batch, Item};
pub use outcome::{Added, Remaining};
pub use queue::{DefaultHasher, WorkQueue};
pub use timer::DelayPolicy;
pub use watch::{KeySnapshot, State, Timing};

#[cfg(test)]
#[path = "../tests/common/scaled.rs"]
mod scaled;

/// The code of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
