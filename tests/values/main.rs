//! Queues whose keys carry values: promises V1 to V4, and the bounds B1 to B3.
//!
//! V5, that other queues pay nothing, is for the job `instructions`.

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod delays;
mod ends;
mod entries;
mod forgotten;
mod held;
mod left;
mod many;
mod memory;
mod merging;
mod panics;
mod parts;
mod put_back;
mod random;
mod receipts;
mod reentry;
mod runtime;
mod tasks;
mod types;
mod without;
mod workers;

use crate::common::there;
use std::hash::Hash;

use keyqueue::limiter::NoLimit;
use keyqueue::{Builder, Clock, GetError, Item, MockClock, Receipt, WorkQueue, merge};

/// A queue whose values are lists, so that a value shows what was merged, and in which order.
pub(crate) type Lists<K = &'static str> = WorkQueue<K, Vec<u32>>;

pub(crate) type ListBuilder<K = &'static str> = Builder<K, Vec<u32>>;

pub(crate) fn lists<K: Hash + Eq + Send + Sync + 'static>() -> Lists<K> {
    let builder = WorkQueue::builder().rate_limiter(NoLimit);
    let builder = builder.merge(merge::append);
    builder.build().expect("the settings are in range")
}

/// The same on a clock that stands still, with other settings.
pub(crate) fn timed_lists(set: impl FnOnce(ListBuilder) -> ListBuilder) -> (Lists, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().rate_limiter(NoLimit);
    let builder = builder.clock(clock).manual_timers();
    let queue = set(builder.merge(merge::append)).build();
    (queue.expect("the settings are in range"), time)
}

/// Takes every queued key with its value, each done before the next.
pub(crate) fn deliveries<K, V>(queue: &WorkQueue<K, V>) -> Vec<(K, V)>
where
    K: Clone + Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
{
    let take = |mut item: Item<'_, K, V>| (item.key().clone(), item.take().expect("a value"));
    there(queue).map(take).collect()
}

/// Puts a value, and returns its receipt.
pub(crate) fn tracked<K, V>(queue: &WorkQueue<K, V>, key: K, value: V) -> Receipt
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
{
    let (entry, receipt) = queue.entry(key).tracked();
    entry.put(value);
    receipt
}

/// Fails if a key is handed out.
#[track_caller]
pub(crate) fn assert_nothing_delivered<K, V>(queue: &WorkQueue<K, V>)
where
    K: std::fmt::Debug,
{
    assert_eq!(queue.try_get().unwrap_err(), GetError::Empty);
}
