//! A keyed work queue: add a key as often as you like; it is delivered once, to one worker at a
//! time, and no add is lost.
//!
//! It is the queue under Kubernetes controllers, client-go's `workqueue`, rebuilt around one atomic
//! state machine per key instead of a single lock. Use it to keep one thing in sync with another
//! (controllers, caches, indexers, mirrors), when it matters *that* a key changed, not how many
//! times. When it matters *with what*, a key can carry a value: [`Builder::merge`].
//!
#![doc = include_str!("docs/state.svg")]
//!
//! # Quick start
//!
//! [`worker::Workers`] runs a function on every key, and retries what fails, with a back-off:
//!
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue::worker::{Job, Workers};
//!
//! // Looks at the current state behind the key and acts on it.
//! fn reconcile(job: Job<String>) -> std::io::Result<()> {
//!     println!("reconciling {}, try {}", *job, job.attempt());
//!     Ok(()) // an error, or a panic, is retried with back-off
//! }
//!
//! # fn main() -> Result<(), keyqueue::ConfigError> {
//! let queue = WorkQueue::new(); // backs off from 5 ms to 1000 s; `WorkQueue::builder()` has the settings
//! let workers = Workers::new(&queue)
//!     .concurrency(4)
//!     .max_retries(5)
//!     .on_give_up(|key, given_up| eprintln!("gave up {key}: {given_up}"))
//!     .spawn(reconcile)?;
//!
//! queue.add("pod/a".to_owned());
//! queue.add("pod/a".to_owned()); // merged, or delivered once more after the first delivery is done
//! queue.shut_down_with_drain(); // refuses adds; returns when every queued key is done
//! workers.join();
//! # Ok(())
//! # }
//! ```
//!
//! A key can carry a value, which is merged while the key waits:
//!
//! ```
//! use keyqueue::{WorkQueue, merge};
//!
//! let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
//! queue.put("account/1", vec!["deposit 5"]);
//! queue.put("account/1", vec!["withdraw 3"]);
//!
//! let item = queue.get().unwrap(); // no other worker gets account/1 until the item is dropped
//! assert_eq!((*item.key(), item.value().len()), ("account/1", 2));
//! ```
//!
//! Your own loop, in threads. Change the state behind a key first, then add the key: a delivery
//! that starts after the add sees the change.
//!
//! ```
//! let queue = keyqueue::WorkQueue::new();
//! std::thread::scope(|scope| {
//!     let _end = queue.shut_down_on_drop(); // the workers end even if the scope is left early
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             // Waits for a key. `None`: the queue is shut down and empty.
//!             while let Some(key) = queue.get() {
//!                 println!("no other worker gets {} until the item is dropped", *key);
//!             }
//!         });
//!     }
//!     queue.add_all(["pod/a", "pod/b", "pod/a"]);
//!     queue.shut_down_with_drain();
//! });
//! ```
//!
//! In tasks of any executor, use [`get_async`](WorkQueue::get_async) and
//! [`drain_async`](WorkQueue::drain_async).
//!
//! | to | start with |
//! | --- | --- |
//! | add keys, get them, shut the queue down | [`WorkQueue`] |
//! | carry a value with each key | [`Builder::merge`], [`WorkQueue::put`] |
//! | set a name, a limiter, levels, groups, a bound ... | [`Builder`], from [`WorkQueue::builder`] |
//! | have a function called for each key, with retries | [`worker::Workers`], whose function gets a [`worker::Job`] |
//! | add a key at a level, later, with a receipt, or wait for room | [`Entry`], from [`WorkQueue::entry`] |
//! | end at Ctrl-C or SIGTERM within a limit | [`docs::how_to::graceful_shutdown`] |
//! | do another common task | [`docs::how_to`], a page with a program for each |
//!
#![doc = include_str!("docs/links.md")]
#![doc = include_str!("docs/calls.md")]
//!
//! # Pages
//!
//! [`docs`] lists all pages, and the three to read first. [`docs::how_to`] has a page with a program
//! for each common task: graceful shutdown, leader election, debounce and throttle, messages in
//! order, batches, tests, ...
//!
#![doc = include_str!("docs/features.md")]
//!
//! Without levels, groups and a pace the hot path takes no global lock, and allocates nothing for a
//! recurring key while the ring has room: see [`docs::performance`]. The crate needs no runtime. It
//! starts no thread before the first delay or another time to wait for, such as the limit of an async verb, or before the
//! first add if the queue reports metrics.
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod added;
pub mod backoff;
pub mod docs;
mod engine;
mod error;
mod fifo;
#[cfg(keyqueue_loom)]
#[doc(hidden)]
pub mod internals;
mod keys;
pub mod limiter;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/off.rs"]
mod metrics;
mod queue;
mod sync;
mod time;
mod timer;
pub mod track;
mod values;
mod wait;
pub mod worker;

pub use added::{Added, Left, LeftReason, Remaining};
pub use error::{ConfigError, GetError};
pub use fifo::groups::grouping::GroupCounts;
pub use keys::hasher::DefaultHasher;
pub use keys::rule::DelayPolicy;
pub use keys::state::State;
pub use queue::WorkQueue;
pub use queue::batch::Batch;
pub use queue::builder::Builder;
pub use queue::end::ShutDownOnDrop;
pub use queue::entry::{Entry, Full};
pub use queue::get_batch::UpTo;
pub use queue::handle::KeyHandle;
pub use queue::item::Item;
pub use queue::iter::Iter;
pub use queue::page::{Cursor, Listed, Page};
pub use queue::retry_on_drop::RetryOnDrop;
pub use queue::snapshot::{Counts, KeySnapshot};
pub use time::clock::{Clock, MockClock};
pub use values::merge;
pub use wait::receipt::{Ended, Receipt};

#[cfg(test)]
mod scaled {
    /// `n`, or a hundredth of it (at least one) under Miri, which is slow.
    pub(crate) const fn scaled(n: usize) -> usize {
        if cfg!(miri) { n.div_ceil(100) } else { n }
    }
}

/// Runs the code blocks of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
