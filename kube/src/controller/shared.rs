//! Subscriptions to a reflector that several controllers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::{self, Stream, StreamExt};

/// How many objects in a row may be gone.
const MOST: usize = 1 << 16;

/// Polls a stream once more that is pending and has kept no waker: nobody would wake it.
///
/// kube-runtime's subscription is so when it comes to an object that is not in the store any more: one that was changed and deleted
/// before the subscription was polled. Without this, no later change would be seen.
pub(super) fn asked_again<S: Stream + Send + 'static>(
    stream: S,
) -> impl Stream<Item = S::Item> + Send {
    let mut stream = Box::pin(stream);
    stream::poll_fn(move |context| {
        let waking = Arc::new(Waking {
            waker: context.waker().clone(),
            is_woken: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&waking));
        // A bound, since a stream that never yields anything keeps no waker either.
        for _ in 0..MOST {
            let polled = stream.poll_next_unpin(&mut Context::from_waker(&waker));
            // The two here, and that of the stream.
            if polled.is_ready() || Arc::strong_count(&waking) > 2 || waking.is_woken.load(Relaxed)
            {
                return polled;
            }
        }
        Poll::Pending
    })
}

struct Waking {
    waker: Waker,
    is_woken: AtomicBool,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Relaxed);
        self.waker.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// K3. A subscription is pending without a waker for each object that is gone. Nor does one that ends, or never yields, hang.
    #[test]
    fn a_stream_that_keeps_no_waker_is_polled_again() {
        let mut left = 1000;
        let gone = stream::poll_fn(move |_| {
            left -= 1;
            match left {
                1.. => Poll::Pending,
                _ => Poll::Ready((left == 0).then_some("there")),
            }
        });
        let mut again = asked_again(gone);
        assert_eq!(again.next().now_or_never(), Some(Some("there")));
        assert_eq!(again.next().now_or_never(), Some(None));
        let mut never = asked_again(stream::pending::<()>());
        assert_eq!(never.next().now_or_never(), None);
    }
}
