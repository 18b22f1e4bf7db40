//! Waiting for what is told to all who wait: the end of a drain, the begin of a shut-down, the end of a delivery.

use std::task::{Context, Poll};

use super::{WaitList, Waiter};

/// One waiter on a list whose notifications go to every waiter, with the protocol of [`super`].
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
