//! The public face of getting as a stream: feature `futures-core`.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::{Item, WorkQueue};

impl<K, V, S> WorkQueue<K, V, S> {
    /// Returns a stream that takes keys by [`get_async`](Self::get_async): it waits for each, and
    /// ends when the queue is shut down and empty.
    ///
    /// Like [`get_async`](Self::get_async), it is cancel-safe: dropping the stream, or a future of
    /// its next item, loses nothing.
    ///
    /// ```
    /// use futures_lite::{StreamExt, future::poll_once};
    /// use keyqueue::WorkQueue;
    ///
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::new();
    /// let mut stream = queue.stream();
    /// assert!(poll_once(stream.next()).await.is_none()); // it waits
    /// queue.add_all([1, 2]);
    /// assert_eq!(*stream.next().await.unwrap(), 1);
    /// queue.shut_down();
    /// assert_eq!(*stream.next().await.unwrap(), 2);
    /// assert!(stream.next().await.is_none());
    /// # });
    /// ```
    pub fn stream(&self) -> impl Stream<Item = Item<'_, K, V>> + Unpin {
        GetStream(self.get_async())
    }
}

/// The stream of [`WorkQueue::stream`].
// Once the future has returned a key, it can be polled for the next one.
struct GetStream<F>(F);

impl<T, F: Future<Output = Option<T>> + Unpin> Stream for GetStream<F> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        Pin::new(&mut self.0).poll(context)
    }
}
