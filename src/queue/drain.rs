//! Drains: threads and tasks wait until a queue that is shut down is at rest.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::engine::Core;
use crate::queue::added::{DrainEnd, Drained, Remaining};
use crate::sync::ThreadParker;
use crate::wait::Waiter;

/// One drainer. Drainers have their own wait list, with the protocol of [`crate::wait`].
pub(crate) struct Drain<'q, K> {
    core: &'q Core<K>,
    /// The number of releases of drainers before this one began.
    releases: usize,
    waiter: Option<Waiter>,
}

impl<'q, K> Drain<'q, K> {
    /// Shuts the queue down, and adds the delayed keys now if the queue is set to. A `shut_down` that
    /// begins after this call releases the drainer.
    pub(crate) fn begin(core: &'q Core<K>) -> Self {
        let releases = core.closing.releases();
        core.close(core.drain_delays);
        Drain {
            core,
            releases,
            waiter: None,
        }
    }

    fn end(&self) -> Option<DrainEnd> {
        if self.core.closing.all_finished() {
            Some(DrainEnd::Finished)
        } else if self.core.closing.releases() != self.releases {
            Some(DrainEnd::Released)
        } else {
            None
        }
    }

    fn leave(&mut self) {
        // A notification of drainers goes to all of them, so there is none to pass on.
        if let Some(waiter) = self.waiter.take() {
            self.core.closing.drainers.cancel(waiter);
        }
    }

    /// Takes one step of waiting: returns the end, or registers and returns `None`.
    fn step(&mut self, waker: &std::task::Waker) -> Option<DrainEnd> {
        if let Some(waiter) = &self.waiter {
            if !waiter.is_notified(waker) {
                return None;
            }
            self.waiter = None;
        }
        if let Some(end) = self.end() {
            return Some(end);
        }
        self.waiter = Some(self.core.closing.drainers.register(waker));
        let end = self.end();
        if end.is_some() {
            self.leave();
        }
        end
    }

    /// Blocks until the end or the deadline.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> Drained {
        let parker = ThreadParker::current();
        loop {
            if let Some(end) = self.step(parker.waker()) {
                return self.drained(end);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.leave();
                return self.drained(DrainEnd::TimedOut);
            }
            parker.park(deadline);
        }
    }

    /// Returns the result of a drain that ends like this. If nothing is left by now, it has
    /// finished after all.
    fn drained(&self, end: DrainEnd) -> Drained {
        let left = match end {
            // Counting visits every key, and none is left to count.
            DrainEnd::Finished => Remaining::dropped(self.core.closing.dropped()),
            _ => self.core.remaining(),
        };
        let end = if left.queued == 0 && left.processing == 0 {
            DrainEnd::Finished
        } else {
            end
        };
        Drained { end, left }
    }
}

impl<K> Future for Drain<'_, K> {
    type Output = Drained;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Drained> {
        match self.step(context.waker()) {
            Some(end) => Poll::Ready(self.drained(end)),
            None => Poll::Pending,
        }
    }
}

impl<K> Drop for Drain<'_, K> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns the moment `limit` from now; `None` if the clock cannot represent it, so that there is
/// no limit.
pub(crate) fn deadline_in(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}
