//! Waiting for one of two futures.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits until one of two futures is ready, and returns its output: of `one` as `Ok`, of `other` as `Err`.
/// If both are ready, that is `one`.
pub(crate) async fn race<A: Future, B: Future>(
    mut one: Pin<&mut A>,
    mut other: Pin<&mut B>,
) -> Result<A::Output, B::Output> {
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => other.as_mut().poll(context).map(Err),
    })
    .await
}
