//! Waiting for a queue that is shut down to come to rest: threads and tasks.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::sync::ThreadParker;
use crate::wait::Waiter;

/// One drainer. Waits on its own list with the protocol of `wait.rs`.
pub(crate) struct Drain<'q, K> {
    core: &'q Core<K>,
    /// How often drainers had been released when this one began.
    releases: usize,
    waiter: Option<Waiter>,
}

/// How a drain ends.
#[derive(PartialEq, Eq)]
enum End {
    AtRest,
    Released,
}

impl<'q, K> Drain<'q, K> {
    /// Shuts the queue down, and with `deliver` adds what is delayed now. A `shut_down` that
    /// begins after this releases the drainer.
    pub(crate) fn begin(core: &'q Core<K>, deliver: bool) -> Self {
        let releases = core.closing().releases();
        core.close(deliver);
        Drain {
            core,
            releases,
            waiter: None,
        }
    }

    fn end(&self) -> Option<End> {
        if self.core.closing().all_finished() {
            Some(End::AtRest)
        } else if self.core.closing().releases() != self.releases {
            Some(End::Released)
        } else {
            None
        }
    }

    fn leave(&mut self) {
        // A notification of drainers goes to all of them, so there is none to pass on.
        if let Some(waiter) = self.waiter.take() {
            self.core.closing().drainers.cancel(waiter);
        }
    }

    /// One step of waiting: answers the end, or registers and answers none.
    fn step(&mut self, waker: &std::task::Waker) -> Option<End> {
        if let Some(waiter) = &self.waiter {
            if !waiter.is_notified(waker) {
                return None;
            }
            self.waiter = None;
        }
        if let Some(end) = self.end() {
            return Some(end);
        }
        self.waiter = Some(self.core.closing().drainers.register(waker));
        let end = self.end();
        if end.is_some() {
            self.leave();
        }
        end
    }

    /// Blocks until the end or the deadline; true if the queue is at rest.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> bool {
        ThreadParker::with(|parker| {
            loop {
                if let Some(end) = self.step(parker.waker()) {
                    return end == End::AtRest;
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    self.leave();
                    return self.end() == Some(End::AtRest);
                }
                parker.park(deadline);
            }
        })
    }
}

impl<K> Future for Drain<'_, K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.step(context.waker()) {
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        }
    }
}

impl<K> Drop for Drain<'_, K> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The moment `limit` from now; none if that is beyond what the clock can say, which is for ever.
pub(crate) fn deadline_in(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}
