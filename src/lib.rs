//! A keyed work queue: add a key as often as you like; it is delivered once, to one worker at a
//! time, and no add is lost.
//!
//! It is the queue under Kubernetes controllers, client-go's `workqueue`, rebuilt around one atomic
//! state machine per key instead of a single lock. Use it to keep one thing in sync with another
//! (controllers, caches, indexers, mirrors), when it matters *that* a key changed, not how many
//! times. When it matters *with what*, a key can carry a value: [`ValueQueue`].
//!
#![doc = include_str!("docs/state.svg")]
//!
//! # Quick start
//!
//! [`worker::Workers`] runs a function on every key, and retries with back-off what fails:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use keyqueue::WorkQueue;
//! use keyqueue::limiter::ItemExponentialFailure;
//! use keyqueue::worker::{Outcome, Workers};
//!
//! # fn main() -> Result<(), keyqueue::ConfigError> {
//! let backoff = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(60))?;
//! let queue = Arc::new(WorkQueue::builder().rate_limiter(backoff).build()?);
//! let workers = Workers::shared(Arc::clone(&queue))
//!     .threads(4)
//!     .max_retries(5)
//!     .on_give_up(|key, given_up| eprintln!("gave up {key}: {given_up}"))
//!     .spawn(|key: &&str| {
//!         println!("reconciling {key}");
//!         std::io::Result::Ok(Outcome::Done)
//!     })?;
//! queue.add("pod/a");
//! queue.shut_down_with_drain(); // refuses adds; returns when every queued key is done
//! workers.join();
//! # Ok(())
//! # }
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
//! # Guide
//!
//! | to | use |
//! | --- | --- |
//! | add a key (and see what that did: [`Added`]), a borrowed key, many keys | [`add`](WorkQueue::add), [`add_ref`](WorkQueue::add_ref), [`add_all`](WorkQueue::add_all) |
//! | add a key by parts of it, or by a `str` for `Arc<str>` | [`add_with`](WorkQueue::add_with) |
//! | add one key repeatedly without hashing | a [`KeyHandle`] from [`handle`](WorkQueue::handle) |
//! | add a key with a value, merged while it waits: the latest, a sum, all in order | a [`ValueQueue`] from [`Builder::merge`]: [`put`](ValueQueue::put), [`merge`] |
//! | wait until an add has been processed | the [`Receipt`] of [`put_tracked`](ValueQueue::put_tracked) or [`add_tracked`](ValueQueue::add_tracked) |
//! | bound what waits, and wait for room | [`Builder::capacity`], [`add_wait`](WorkQueue::add_wait), [`try_add`](WorkQueue::try_add); with values [`put_wait`](ValueQueue::put_wait), [`try_put`](ValueQueue::try_put) |
//! | let groups of keys take turns, with limits and rates for each | [`Builder::group_by`], [`group_limit`](Builder::group_limit), [`group_weight`](Builder::group_weight), [`group_rate`](Builder::group_rate), [`hold_group`](WorkQueue::hold_group), [`groups`](WorkQueue::groups) |
//! | deliver no faster than a rate, or each key no sooner than an interval | [`Builder::dispatch_rate`], [`Builder::min_interval`] |
//! | run workers with retries, in threads or tasks | [`worker`] |
//! | wait for a key in a thread, for a limited time, not at all | [`get`](WorkQueue::get), [`get_timeout`](WorkQueue::get_timeout), [`try_get`](WorkQueue::try_get) |
//! | wait for a key in a task | [`get_async`](WorkQueue::get_async) |
//! | loop over the keys | `for item in &queue`, [`iter`](WorkQueue::iter), [`try_iter`](WorkQueue::try_iter) |
//! | get a key that moves into a spawned task | [`get_owned_async`](WorkQueue::get_owned_async), [`get_owned`](WorkQueue::get_owned) |
//! | get several keys at once | [`get_batch`](WorkQueue::get_batch), [`get_batch_timeout`](WorkQueue::get_batch_timeout), [`try_get_batch`](WorkQueue::try_get_batch), [`get_batch_async`](WorkQueue::get_batch_async) |
//! | finish a key | drop its [`Item`], or call [`done`](Item::done) |
//! | add a key later, or cancel that | [`add_after`](WorkQueue::add_after), [`cancel`](WorkQueue::cancel) |
//! | retry a key | [`Item::retry`], [`add_rate_limited`](WorkQueue::add_rate_limited), a [`limiter`] |
//! | retry a key unless its work succeeds, also after `?` or a panic | [`Item::retry_on_drop`] |
//! | shut down without waiting; queued keys are still delivered | [`shut_down`](WorkQueue::shut_down) |
//! | shut down and wait until every queued key is done | [`shut_down_with_drain`](WorkQueue::shut_down_with_drain), [`drain_timeout`](WorkQueue::drain_timeout), [`drain_async`](WorkQueue::drain_async), [`drain_until`](WorkQueue::drain_until) |
//! | shut down and discard what is queued | [`shut_down_now`](WorkQueue::shut_down_now) |
//! | shut down when a scope is left, wait for a shut-down, compare all of these | [`shut_down_on_drop`](WorkQueue::shut_down_on_drop), [`closed`](WorkQueue::closed), [`docs::how_it_ends`] |
//! | drop what is queued | [`clear`](WorkQueue::clear) |
//! | look at one key, count the keys, list them | [`state`](WorkQueue::state), [`contains`](WorkQueue::contains); [`len`](WorkQueue::len), [`counts`](WorkQueue::counts); [`snapshot`](WorkQueue::snapshot), [`stuck`](WorkQueue::stuck) |
//! | report metrics | a [name](Builder::name) and feature `metrics` |
//! | release the memory of idle keys now | [`shrink`](WorkQueue::shrink) |
//! | set the name, clock, hasher, shards, ring, what drains do with delays, ... | [`WorkQueue::builder`] |
//!
//! [`docs::how_to`] has a page with a program for each of what many programs need: graceful
//! shutdown, leader election, debounce and throttle, messages in order, batches, tests, ...
//! Further pages, on semantics, how a queue ends, performance, metrics, limitations, client-go's
//! calls and internals, are in [`docs`].
//!
//! # Features
//!
//! None is on by default; waiting in tasks needs none.
//!
//! | feature | adds |
//! | --- | --- |
//! | `metrics` | named queues report client-go's series, and more: [`docs::metrics`] |
//! | `futures-core` | `WorkQueue::stream`, a `Stream` of what [`get_async`](WorkQueue::get_async) returns |
//! | `serde` | what [`snapshot`](WorkQueue::snapshot) returns can be serialised |
//! | `tokio` | `Workers::spawn_on`: workers that are tasks on a runtime's threads; `backoff::tokio`: retries and loops with tokio's sleep |
//! | `tracing` | a span for each key in the worker loop: [`worker`] |
//!
//! The hot path takes no global lock, and allocates nothing for a recurring key while the ring has
//! room: see [`docs::performance`]. The crate needs no runtime, and starts no thread before the
//! first delay (or the first add, if the queue reports metrics).
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

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
mod values;
mod wait;
pub mod worker;

pub use error::{ConfigError, GetTimeoutError, TryGetError};
pub use fifo::groups::grouping::GroupCounts;
pub use keys::delay::DelayPolicy;
pub use keys::hasher::DefaultHasher;
pub use keys::state::State;
pub use queue::WorkQueue;
pub use queue::added::{Added, DrainEnd, Drained, Remaining};
pub use queue::batch::Batch;
pub use queue::bounded::Full;
pub use queue::builder::Builder;
pub use queue::end::ShutDownOnDrop;
pub use queue::get::GetAsync;
pub use queue::handle::KeyHandle;
pub use queue::item::Item;
pub use queue::iter::Iter;
pub use queue::owned::OwnedItem;
pub use queue::retry_on_drop::RetryOnDrop;
pub use queue::snapshot::{Counts, KeySnapshot};
#[cfg(feature = "futures-core")]
pub use queue::stream::GetStream;
pub use time::clock::{Clock, MockClock};
pub use values::receipt::{Ended, Receipt};
pub use values::{ValueItem, ValueQueue, Valued, merge};

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
