//! The public face of getting as a stream: feature `futures-core`.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::{GetAsync, Item, WorkQueue};

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
    pub fn stream(&self) -> GetStream<'_, K, V> {
        GetStream(self.get_async())
    }
}

/// The stream of [`WorkQueue::stream`].
// Once the future has returned a key, it can be polled for the next one.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct GetStream<'q, K, V = ()>(GetAsync<'q, K, V>);

impl<'q, K, V> Stream for GetStream<'q, K, V> {
    type Item = Item<'q, K, V>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll(context)
    }
}
