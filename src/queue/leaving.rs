//! Groups that leave: [`crate::engine::leaving`] has the protocol.

use std::any::Any;
use std::time::Duration;

use crate::engine::leaving::Leaving;
use crate::keys::node::{Node, Pinned};
use crate::keys::state::State;
use crate::sync::catch_panic::{catch_panic, drop_caught};
use crate::wait::blocking::{block_until, deadline_in};
use crate::{Ended, Item, Left, LeftReason, Remaining, RetryOnDrop, WorkQueue};

impl<K: Clone + Send + Sync + 'static, V: Send + 'static, S> WorkQueue<K, V, S> {
    /// Takes back what a group has waiting, and returns each key with its value and the reason (G8): the tenant is
    /// removed, the partition is revoked. In no particular order. The queue stays open.
    ///
    /// | a key of the group that | is returned as | and then |
    /// | --- | --- | --- |
    /// | is queued, whatever it waits for | [`Queued`](LeftReason::Queued) | is idle |
    /// | waits for a delay or a retry | [`Delayed`](LeftReason::Delayed) | is idle, or processing as before |
    /// | is processing, with a value that was put meanwhile, delayed as well or not | [`Queued`](LeftReason::Queued), with that value | is processing; adds without a value count no more |
    /// | is processing otherwise, also if it was added meanwhile | nothing | is processing, and queued when it is done, as before |
    ///
    /// Receipts of what is taken back end as [`Dropped`](Ended::Dropped). What is added during the call may be taken or not, a key
    /// that comes again meanwhile may be returned twice, and a worker may put a key back after it. A key whose delay or delivery ends
    /// during the call, or just before it, may not be taken. To empty a group, stop adding, and call this and [`drain_group`](Self::drain_group)
    /// until the latter returns that [nothing](Remaining::is_nothing) is left.
    ///
    /// Returns `None` if the queue has no groups of this type. Looks at every key that the queue knows, and calls `group_by` for
    /// those that wait. The metrics count a key that was queued as delivered and done. A key whose `Clone` panics is not
    /// taken; one that is queued goes to the tail.
    ///
    /// ```
    /// # use keyqueue::{LeftReason, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::builder().group_by(|key: &(&'static str, u32)| key.0).build()?;
    /// queue.add_all([("a", 1), ("b", 1)]);
    /// queue.add_after(("a", 2), Duration::from_secs(3600));
    /// let mut left = queue.take_group(&"a").unwrap();
    /// left.sort_by_key(|left| left.key);
    /// assert_eq!((left[0].key, left[0].reason), (("a", 1), LeftReason::Queued));
    /// assert_eq!((left[1].key, left[1].reason), (("a", 2), LeftReason::Delayed));
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use = "what is taken back is not delivered"]
    pub fn take_group<G: 'static>(&self, group: &G) -> Option<Vec<Left<K, V>>> {
        let core = &*self.core;
        let groups = core.groups().filter(|groups| groups.are(group))?;
        let mut taken = Vec::new();
        // The panic hook reports a panic.
        let clone = |key: &K| catch_panic(|| key.clone()).ok();
        let has_values = core.values().is_some();
        let waits = |node: &Node<K>| {
            let is_dirty = || has_values && node.state.phase() == State::Dirty;
            (node.delay.due().is_some() || is_dirty()).then_some(())
        };
        for (Pinned(pin), ()) in &core.pin_group(group, waits) {
            let Some(key) = clone(pin.key()) else {
                continue;
            };
            match core.take_delayed(pin) {
                Some((value, reason)) => taken.push(Left { key, value, reason }),
                None => drop_caught(key),
            }
        }
        let held = core.begin_all(groups.take_group(group)).into_iter();
        let items = held.map(|held| {
            let item = Item::of(self.source(), held);
            RetryOnDrop::new(item, |mut item: Item<'_, K, V>| _ = item.add())
        });
        for item in items.collect::<Vec<_>>() {
            if let Some(key) = clone(item.key()) {
                let mut item = item.into_item();
                if !has_values {
                    // Above it was left to the entry, if the key was queued. A shut-down may have dropped it.
                    let pin = Pinned(item.held.pin());
                    core.cancel_pinned(&pin.0);
                    pin.0.delay().claim();
                }
                item.end_as(Ended::Dropped);
                let (value, reason) = (item.take(), LeftReason::Queued);
                taken.push(Left { key, value, reason });
            }
        }
        Some(taken)
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static, S> WorkQueue<K, V, S> {
    /// Waits until no key of a group is queued or held by a worker, for at most `limit` (G8). Returns what the group has
    /// then: [`is_finished`](Remaining::is_finished) says whether the wait has ended in time, and delays and retries that are
    /// pending, which are not waited for, are counted.
    ///
    /// Refuses nothing: keys of the group that are added meanwhile are waited for as well, and the queue stays open. Keys
    /// of a group that is [held](Self::hold_group) stay queued. To wait for what workers hold alone, first
    /// [take back](Self::take_group) what is queued.
    ///
    /// Returns `None` if the queue has no groups of this type. Looks at every key that the queue knows, at the begin and whenever
    /// what it has found is done.
    ///
    /// A thread that waits while it holds an item of the group waits for the limit.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::builder().group_by(|key: &(&'static str, u32)| key.0).build()?;
    /// queue.add_all([("a", 1), ("b", 1)]);
    /// let item = queue.get().unwrap();
    /// let left = queue.drain_group(&"a", Duration::from_millis(1)).unwrap();
    /// assert_eq!((left.is_finished(), left.processing), (false, 1));
    /// item.done();
    /// assert!(queue.drain_group(&"a", Duration::from_secs(60)).unwrap().is_finished());
    /// assert_eq!(queue.drain_group(&1, Duration::ZERO), None); // groups are `&str`
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// With one group of all keys it waits until the queue has nothing to do, and leaves it open:
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::{Job, Workers};
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// let queue = Arc::new(WorkQueue::builder().group_by(|_: &u32| ()).build()?);
    /// let _running = Workers::new(&queue).spawn(|_: Job<u32>| {})?;
    /// queue.add_all([1, 2, 3]);
    /// assert!(queue.drain_group(&(), Duration::from_secs(60)).unwrap().is_finished());
    /// assert!(queue.add(4).is_accepted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_group<G: Sync + 'static>(&self, group: &G, limit: Duration) -> Option<Remaining> {
        let group: &(dyn Any + Sync) = group;
        let mut leaving = Leaving::begin(&self.core, group)?;
        let _ = block_until(&mut leaving, deadline_in(limit));
        drop(leaving);
        Some(self.core.remaining_of_group(group))
    }

    /// Like [`drain_group`](Self::drain_group), without a limit, for tasks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait. `drain_group` with a limit of zero says what is left then.
    pub async fn drain_group_async<G: Sync + 'static>(&self, group: &G) -> Option<Remaining> {
        let group: &(dyn Any + Sync) = group;
        Leaving::begin(&self.core, group)?.await;
        Some(self.core.remaining_of_group(group))
    }
}
