//! Adds that keep the bound of the queue: [`crate::wait::room`] has the protocol.

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::keys::hash::hash_of;
use crate::wait::blocking::{block_until, deadline_in};
use crate::wait::room::{Share, Turn};
use crate::{Added, WorkQueue};

impl<K, L, S> WorkQueue<K, L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Adds a key if the queue has room for it (B1, B2); see
    /// [`Builder::capacity`](crate::Builder::capacity). A key that is queued, delayed or processing
    /// needs no room. Otherwise like [`add`](Self::add), and the same in a queue without a bound.
    ///
    /// # Errors
    ///
    /// Returns the key if there is no room, or if other adds wait for room.
    ///
    /// ```
    /// # use keyqueue::{Added, Full, WorkQueue};
    /// let queue = WorkQueue::builder().capacity(2).build()?;
    /// assert_eq!(queue.try_add("a"), Ok(Added::Queued));
    /// assert_eq!(queue.try_add("b"), Ok(Added::Queued));
    /// assert_eq!(queue.try_add("a"), Ok(Added::Merged)); // needs no room
    /// assert_eq!(queue.try_add("c"), Err(Full("c")));
    /// let item = queue.get().unwrap(); // makes room
    /// assert_eq!(queue.try_add("c"), Ok(Added::Queued));
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `Hash` or `Eq` panics; then nothing was added.
    pub fn try_add(&self, key: K) -> Result<Added, Full<K>> {
        let core = &*self.core;
        let Some(room) = core.room() else {
            return Ok(self.add(key));
        };
        self.add_in(&mut Share::within(room), key)
    }

    /// Adds a key, and waits until the queue has room for it (B2). Adds that wait get room in the order
    /// in which they came. Otherwise like [`try_add`](Self::try_add).
    ///
    /// A shut-down ends the wait with [`Added::ShutDown`]. A consumer that waits for room in its own
    /// queue may deadlock: adds of consumers should not wait.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::builder().capacity(10).build()?;
    /// std::thread::scope(|scope| {
    ///     let _end = queue.shut_down_on_drop();
    ///     let worker = scope.spawn(|| queue.iter().count());
    ///     for n in 0..1000 {
    ///         queue.add_wait(n);
    ///         assert!(queue.len() <= 10);
    ///     }
    ///     queue.shut_down_with_drain();
    ///     assert_eq!(worker.join().unwrap(), 1000);
    /// });
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`try_add`](Self::try_add) would.
    #[doc(alias = "backpressure")]
    pub fn add_wait(&self, key: K) -> Added {
        let added = self.add_until(key, None);
        added.expect("without a limit, the wait ends with room")
    }

    /// Like [`add_wait`](Self::add_wait), but waits for at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns the key if there was no room in time.
    ///
    /// # Panics
    ///
    /// Panics if [`try_add`](Self::try_add) would.
    pub fn add_wait_timeout(&self, key: K, limit: Duration) -> Result<Added, Full<K>> {
        self.add_until(key, Some(limit))
    }

    fn add_until(&self, key: K, limit: Option<Duration>) -> Result<Added, Full<K>> {
        let mut added = self.try_add(key);
        if added.is_ok() {
            return added;
        }
        let deadline = limit.and_then(deadline_in);
        while let Err(Full(key)) = added {
            let mut turn = self.turn_to_add();
            if block_until(&mut turn, deadline).is_none() {
                return Err(Full(key));
            }
            added = self.add_in(&mut turn.share(), key);
        }
        added
    }

    /// Like [`add_wait`](Self::add_wait), for tasks of any executor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready drops the key, and loses its place among the adds that
    /// wait. It has added nothing then.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::builder().capacity(1).build()?;
    /// assert_eq!(queue.add_async("a").await, Added::Queued);
    /// let add = queue.add_async("b");
    /// let get = async { queue.get_async().await.unwrap().done() };
    /// assert_eq!(futures_lite::future::zip(add, get).await.0, Added::Queued);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`try_add`](Self::try_add) would.
    pub async fn add_async(&self, key: K) -> Added {
        let mut added = self.try_add(key);
        loop {
            let Full(key) = match added {
                Ok(added) => return added,
                Err(full) => full,
            };
            let mut turn = self.turn_to_add();
            (&mut turn).await;
            added = self.add_in(&mut turn.share(), key);
        }
    }

    fn turn_to_add(&self) -> Turn<'_> {
        Turn::new(self.core.room().expect("only a bounded queue is full"), 1)
    }

    /// Adds a key, if this share has or gets room for it.
    fn add_in(&self, share: &mut Share<'_>, key: K) -> Result<Added, Full<K>> {
        let core = &*self.core;
        let hash = hash_of(&self.hasher, &key);
        core.add_at(hash, core.default_level(), key, share)
            .map_err(Full)
    }
}

/// The error of an add or a put for which the queue has no room. It has what was to be added.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Full").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full")
    }
}

impl<T> Error for Full<T> {}
