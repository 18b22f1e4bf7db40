//! Groups that leave (G8): what they have waiting is taken back, and the end of what workers hold of them is waited for.
//!
//! A key knows the number of its group only once it was queued, so the keys of a group are found by a walk over all
//! keys, which calls `group_by` for those that it looks for, when no shard is locked.
//!
//! # Taking back
//!
//! First what waits for a delay, a retry or the end of a delivery, then what is queued: a key only moves from the former to the
//! latter by itself, so one that moves in between is found. But a thread that ends a delay or a delivery holds the key for a moment
//! before the key is in its group: a call finds neither then. Each key is taken in one step with others: its delay under the lock of its
//! value or of its shard, as a cancel does; its entry under the lock of the groups, as a getter does. In a queue without values the
//! delay of a queued key is taken after its entry: a getter that is faster leaves it where it is. A key in hand that is
//! dirty for the value that is taken is processing then. A worker that holds a key may put it back after the walk.
//!
//! # The end
//!
//! ```text
//!     a thread that drains                          a worker
//!     1 raise `leaving`                             1 finish: the key is idle, or queued
//!     2 register, fence(SeqCst)                     2 fence(SeqCst)
//!     3 find the keys that are not idle             3 if `leaving` is above 0: notify the drainers
//!     4 sleep until notified, look at those again
//!     5 when all are idle: from 2, until there are none
//! ```
//!
//! The fences, of which the drainer's is that of its registration ([`crate::wait`]), guarantee that the worker sees `leaving`,
//! or the drainer sees that the key is idle. A key that was queued is held before it is idle again, so each change that is
//! waited for is followed by a notification.

use std::any::Any;
use std::cell::RefCell;
use std::pin::Pin as Pinning;
use std::task::{Context, Poll};

use crate::added::Remaining;
use crate::engine::Core;
use crate::fifo::groups::grouping::Ordered;
use crate::keys::node::{Node, Pin, Pinned};
use crate::keys::state::State;
use crate::keys::visit::Census;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::fence_after_rmw;
use crate::wait::listener::Listener;
use crate::wait::receipt::Ended;
use crate::wait::room::Share;
use crate::{LeftReason, values::Merger};

impl<K, V> Core<K, V> {
    /// Pins the keys of a group for which `look` returns something, as [`Keys::pin_all`](crate::keys::Keys::pin_all)
    /// does. Runs user code.
    pub(crate) fn pin_group<T>(
        &self,
        group: &dyn Any,
        look: impl Fn(&Node<K>) -> Option<T>,
    ) -> Vec<(Pinned<K>, T)> {
        let Some(groups) = self.groups() else {
            return Vec::new();
        };
        let found = self.keys.pin_all(look);
        found
            .filter(|(pin, _)| groups.has(group, pin.0.key()))
            .collect()
    }

    /// Takes back what waits for a key's delay or, with values, for the end of its delivery; not what is queued. Returns
    /// the value, and the reason for which it has waited.
    pub(crate) fn take_delayed(&self, pin: &Pin<K>) -> Option<(Option<V>, LeftReason)> {
        match self.values() {
            None => self
                .cancel_pinned(pin)
                .then_some((None, LeftReason::Delayed)),
            Some(values) => self.take_value(values, pin),
        }
    }

    /// Cancels the pending delay of a pinned key of a queue without values, unless the key is queued. Returns whether it did.
    pub(crate) fn cancel_pinned(&self, pin: &Pin<K>) -> bool {
        // Dropped last: what the delay had room for is offered to others.
        let mut share = Share::exceeding(self.room());
        let shard = self.keys.lock_of(pin);
        // It goes with the entry, which a getter may be faster to take: then it stays.
        if pin.phase() == State::Queued {
            return false;
        }
        let Some(stamp) = pin.delay().cancel() else {
            return false;
        };
        share.receive(stamp.is_retry());
        share.give_back();
        drop(shard);
        self.note_cancelled();
        true
    }

    fn take_value(&self, values: &Merger<V>, pin: &Pin<K>) -> Option<(Option<V>, LeftReason)> {
        let waiting = pin.carried(&values.carries).waiting.lock();
        let reason = match self.withdraw(pin, &waiting)? {
            // It goes with the entry.
            (State::Queued, _) => return None,
            (State::Idle | State::Processing, true) => LeftReason::Delayed,
            _ => LeftReason::Queued,
        };
        let mut load = values.take(waiting);
        let value = load.value.take();
        load.end(Some(Ended::Dropped));
        value.map(|value| (Some(value), reason))
    }

    /// Notes that a delivery has ended, for those who wait for the end of a group's.
    #[inline]
    pub(super) fn note_finished(&self, ordered: &Ordered<K>) {
        // Ordering: SeqCst, after the read-modify-write that has finished the key; pairs with the fence of a
        // drainer's registration.
        fence_after_rmw();
        // Ordering: Relaxed; ordered by the fence.
        if ordered.leaving.load(Ordering::Relaxed) > 0 {
            self.closing.drainers.notify_all();
        }
    }

    /// Counts what a group has. Runs user code.
    pub(crate) fn remaining_of_group(&self, group: &dyn Any) -> Remaining {
        let mut census = Census::default();
        // Both under the lock: the end of a delay moves a key from one to the other.
        let look = |node: &Node<K>| {
            let (phase, is_delayed) = (node.state.phase(), node.delay.due().is_some());
            (phase != State::Idle || is_delayed).then_some((phase, is_delayed))
        };
        for (Pinned(pin), (phase, is_delayed)) in &self.pin_group(group, look) {
            let (phase, is_delayed) = match self.values() {
                Some(values) if *is_delayed => self.look_for_delayed(values, pin),
                _ => (*phase, *is_delayed),
            };
            census.count(phase);
            census.delayed += usize::from(is_delayed);
        }
        census.remaining()
    }
}

/// Counts one who waits.
struct Counted<'q>(&'q AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // Ordering: Relaxed; a worker that reads the old value notifies nobody.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until no key of a group is queued or held by a worker.
pub(crate) struct Leaving<'q, K, V> {
    core: &'q Core<K, V>,
    group: &'q (dyn Any + Sync),
    /// Those that were not idle when they were looked at.
    keys: RefCell<Vec<Pinned<K>>>,
    listener: Listener<'q>,
    _counted: Counted<'q>,
}

impl<'q, K, V> Leaving<'q, K, V> {
    /// Returns `None` if the queue has no groups of this type.
    pub(crate) fn begin(core: &'q Core<K, V>, group: &'q (dyn Any + Sync)) -> Option<Self> {
        let ordered = core.ordered().filter(|ordered| ordered.groups.are(group))?;
        // Ordering: Relaxed; ordered by the fence of the registration.
        ordered.leaving.fetch_add(1, Ordering::Relaxed);
        Some(Leaving {
            core,
            group,
            keys: RefCell::default(),
            listener: Listener::new(&core.closing.drainers),
            _counted: Counted(&ordered.leaving),
        })
    }
}

impl<K, V> Future for Leaving<'_, K, V> {
    type Output = ();

    fn poll(mut self: Pinning<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let is_idle = |pin: &Pinned<K>| pin.0.phase() == State::Idle;
        this.listener.poll(context, || {
            let mut keys = this.keys.borrow_mut();
            while keys.pop_if(|pin| is_idle(pin)).is_some() {}
            if keys.is_empty() {
                let is_busy = |node: &Node<K>| (node.state.phase() != State::Idle).then_some(());
                let found = this.core.pin_group(this.group, is_busy).into_iter();
                *keys = found.map(|(pin, ())| pin).collect();
            }
            // If all of these are idle by now, that was notified, too. Another walk at once could be followed by others, without an end.
            keys.is_empty().then_some(())
        })
    }
}
