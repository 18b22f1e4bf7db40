//! A queue in this process, as the workloads see it.
//!
//! The workloads are generic over these traits, so that each is compiled for each queue and a timed
//! loop calls nothing through a pointer.

use std::time::Duration;

use crate::keys::Key;

/// A deduplicating queue for keys of kind `Q`.
pub(crate) trait Queue<Q: Key + ?Sized>: Send + Sync + 'static {
    /// What `add` takes; made before the clock starts.
    type Key: Send + 'static;
    /// What `get` returns.
    type Item<'a>: Send;
    /// A key resolved beforehand; the key itself where the queue has no such thing.
    type Handle: Send + Sync;

    fn new() -> Self;
    fn key(key: Q::Owned) -> Self::Key;
    fn key_of<'a>(item: &'a Self::Item<'_>) -> &'a Q;

    fn add(&self, key: Self::Key);
    fn add_ref(&self, key: &Q);
    fn handle(&self, key: Q::Owned) -> Self::Handle;
    fn add_handle(&self, handle: &Self::Handle);

    /// Blocks; `None` once the queue is shut down and empty.
    fn get(&self) -> Option<Self::Item<'_>>;
    fn done(&self, item: Self::Item<'_>);

    fn len(&self) -> usize;
    fn shut_down(&self);
    fn shrink(&self);
}

/// A queue whose workers may be tasks.
pub(crate) trait Tasked: Queue<u64> {
    /// Waits without blocking; `None` once the queue is shut down and empty.
    fn get_in_task(&self) -> impl Future<Output = Option<Self::Item<'_>>> + Send;
}

/// Something that delivers keys when their time has come; the earlier of two times counts.
pub(crate) trait Delays: Sync {
    /// Whether a delay can be cancelled.
    const CANCELS: bool = true;

    fn new() -> Self;
    fn add_after(&self, key: u64, delay: Duration);
    /// Whether a delay was pending.
    fn cancel(&self, key: u64) -> bool;
    /// Returns when every delay so far is set, for those that only note an add and set it later.
    fn settle(&self) {}
    /// Blocks.
    fn get(&self) -> u64;
}
