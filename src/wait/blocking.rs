//! Waiting for a future in a thread.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::sync::ThreadParker;

/// Blocks until `future` is ready, or until `deadline`; then returns `None`. Polls once more after
/// the deadline.
pub(crate) fn block_until<F: Future + Unpin>(
    future: &mut F,
    deadline: Option<Instant>,
) -> Option<F::Output> {
    block_unless(future, deadline, &ThreadParker::current(), || false)
}

/// Like [`block_until`], but returns `None` once `stopped` returns true. The thread that makes it true then wakes
/// `parker`, the parker of this thread.
pub(crate) fn block_unless<F: Future + Unpin>(
    future: &mut F,
    deadline: Option<Instant>,
    parker: &ThreadParker,
    stopped: impl Fn() -> bool,
) -> Option<F::Output> {
    let mut context = Context::from_waker(parker.waker());
    loop {
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut context) {
            return Some(output);
        }
        if stopped() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return None;
        }
        parker.park(deadline);
    }
}

/// Returns the moment `limit` from now; `None` if the clock cannot represent it, so that there is
/// no limit.
pub(crate) fn deadline_in(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}
