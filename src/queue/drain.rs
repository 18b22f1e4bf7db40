//! Drains: threads and tasks wait until a queue that is shut down is at rest.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::engine::Core;
use crate::sync::ThreadParker;
use crate::wait::Waiter;
use crate::{DrainEnd, Drained, Remaining};

/// One drainer. Drainers have their own wait list, with the protocol of [`crate::wait`].
pub(crate) struct Drain<'q, K> {
    core: &'q Core<K>,
    /// The number of releases of drainers before this one began.
    releases: usize,
    waiter: Option<Waiter>,
}

impl<'q, K> Drain<'q, K> {
    /// Shuts the queue down, and adds the delayed keys now if the queue is set to. A `shut_down`
    /// that begins after this call releases the drainer.
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
        let closing = &self.core.closing;
        if closing.all_finished() {
            return Some(DrainEnd::Finished);
        }
        (closing.releases() != self.releases).then_some(DrainEnd::Released)
    }

    /// Blocks until the end or the deadline.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> Drained {
        let parker = ThreadParker::current();
        let mut context = Context::from_waker(parker.waker());
        loop {
            if let Poll::Ready(drained) = Pin::new(&mut self).poll(&mut context) {
                return drained;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
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
            DrainEnd::Finished => Remaining {
                delayed: self.core.closing.dropped(),
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

impl<K> Future for Drain<'_, K> {
    type Output = Drained;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Drained> {
        let waker = context.waker();
        if let Some(waiter) = &self.waiter
            && !waiter.is_notified(waker)
        {
            return Poll::Pending;
        }
        self.waiter = None;
        let end = self.end().or_else(|| {
            self.waiter = Some(self.core.closing.drainers.register(waker));
            self.end()
        });
        match end {
            Some(end) => Poll::Ready(self.drained(end)),
            None => Poll::Pending,
        }
    }
}

impl<K> Drop for Drain<'_, K> {
    fn drop(&mut self) {
        // A notification of drainers goes to all of them, so there is none to pass on.
        if let Some(waiter) = self.waiter.take() {
            self.core.closing.drainers.cancel(waiter);
        }
    }
}

/// Returns the moment `limit` from now; `None` if the clock cannot represent it, so that there is
/// no limit.
pub(crate) fn deadline_in(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}
