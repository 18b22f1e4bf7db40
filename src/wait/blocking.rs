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
    let parker = ThreadParker::current();
    let mut context = Context::from_waker(parker.waker());
    loop {
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut context) {
            return Some(output);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
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
