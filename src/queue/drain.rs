//! Drains: threads and tasks wait until a queue that is shut down is at rest. They are on one list
//! with the tasks that wait for a shut-down to begin.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use crate::engine::Core;
use crate::wait::blocking::block_until;
use crate::wait::race::race;
use crate::wait::{WaitList, Waiter};
use crate::{DrainEnd, Drained, Remaining};

/// One waiter on a list whose notifications go to every waiter, with the protocol of [`crate::wait`].
pub(crate) struct Listener<'q> {
    list: &'q WaitList,
    waiter: Option<Waiter>,
}

impl<'q> Listener<'q> {
    pub(crate) fn new(list: &'q WaitList) -> Self {
        Listener { list, waiter: None }
    }

    /// Waits until `check` returns something. A notification may have changed what it returns.
    pub(crate) fn poll<T>(
        &mut self,
        context: &Context<'_>,
        check: impl Fn() -> Option<T>,
    ) -> Poll<T> {
        let waker = context.waker();
        if let Some(waiter) = &self.waiter
            && !waiter.is_notified(waker)
        {
            return Poll::Pending;
        }
        self.waiter = None;
        let found = check().or_else(|| {
            self.waiter = Some(self.list.register(waker));
            check()
        });
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        // A notification goes to every waiter, so there is none to pass on.
        if let Some(waiter) = self.waiter.take() {
            self.list.cancel(waiter);
        }
    }
}

/// The part of one drain in the redelivery of what is retried. Ends when it is dropped.
struct Redelivery<'q, K, V>(&'q Core<K, V>);

impl<K, V> Drop for Redelivery<'_, K, V> {
    fn drop(&mut self) {
        self.0.leave_redelivery();
    }
}

/// One drainer.
pub(crate) struct Drain<'q, K, V> {
    core: &'q Core<K, V>,
    /// Until the drain is out of time.
    redelivery: Option<Redelivery<'q, K, V>>,
    /// The number of releases of drainers before this one began.
    releases: usize,
    listener: Listener<'q>,
}

impl<'q, K, V> Drain<'q, K, V> {
    /// Shuts the queue down, and adds the delayed keys now if the queue is set to. A `shut_down`
    /// that begins after this call releases the drainer.
    pub(crate) fn begin(core: &'q Core<K, V>) -> Self {
        let drain = Drain {
            core,
            redelivery: Some(Redelivery(core)),
            releases: core.closing.releases(),
            listener: Listener::new(&core.closing.drainers),
        };
        core.close(core.drain_delays);
        drain
    }

    /// Blocks until the end or the deadline.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> Drained {
        let drained = block_until(&mut self, deadline);
        drained.unwrap_or_else(|| self.drained(DrainEnd::TimedOut))
    }

    /// Waits until the end, or until `deadline` is ready.
    pub(crate) async fn until(mut self, deadline: impl Future) -> Drained {
        let drained = race(Pin::new(&mut self), pin!(deadline)).await;
        drained.unwrap_or_else(|_| self.drained(DrainEnd::TimedOut))
    }

    /// Returns the result of a drain that ends like this. If nothing is left by now, it has
    /// finished after all.
    fn drained(&mut self, end: DrainEnd) -> Drained {
        if end == DrainEnd::TimedOut {
            self.redelivery = None;
        }
        let left = match end {
            // Counting visits every key, and none is left to count.
            DrainEnd::Finished => Remaining {
                delayed: self.core.closing.dropped(),
                refused: self.core.closing.refused(),
                ..Remaining::default()
            },
            DrainEnd::Released | DrainEnd::TimedOut => self.core.remaining(),
        };
        let end = match left.queued + left.processing {
            0 => DrainEnd::Finished,
            _ => end,
        };
        Drained { end, left }
    }
}

impl<K, V> Future for Drain<'_, K, V> {
    type Output = Drained;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Drained> {
        let (closing, releases) = (&self.core.closing, self.releases);
        let end = self.listener.poll(context, || {
            if closing.all_finished() {
                return Some(DrainEnd::Finished);
            }
            (closing.releases() != releases).then_some(DrainEnd::Released)
        });
        end.map(|end| self.drained(end))
    }
}
