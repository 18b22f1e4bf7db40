//! Puts that keep the bound of the queue: [`crate::wait::room`] has the protocol.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::keys::hash::hash_of;
use crate::wait::blocking::{block_until, deadline_in};
use crate::wait::room::Turn;
use crate::{Added, Full, ValueQueue};

impl<K, V, L, S> ValueQueue<K, V, L, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher,
{
    /// Puts a value for a key if the queue has room for it (B1, B2); see
    /// [`Builder::capacity`](crate::Builder::capacity). Otherwise like [`put`](Self::put), and the same
    /// in a queue without a bound.
    ///
    /// # Errors
    ///
    /// Returns the key and the value if there is no room, or if other puts wait for room.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// let queue = WorkQueue::builder().merge(merge::append).capacity(2).build()?;
    /// assert_eq!(queue.try_put("a", vec![1]), Ok(Added::Queued));
    /// assert_eq!(queue.try_put("b", vec![2]), Ok(Added::Queued));
    /// assert_eq!(queue.try_put("a", vec![3]), Ok(Added::Merged)); // needs no room
    /// let full = queue.try_put("c", vec![4]).unwrap_err();
    /// assert_eq!(full.0, ("c", vec![4]));
    /// let item = queue.get().unwrap(); // makes room
    /// assert!(queue.try_put("c", vec![4]).is_ok());
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`put`](Self::put) would, or if the function for the weight panics: nothing was put
    /// then, or the value was put and is not counted.
    pub fn try_put(&self, key: K, value: V) -> Result<Added, Full<(K, V)>> {
        let merger = self.core.merger();
        let Some(room) = &merger.room else {
            return Ok(self.put(key, value));
        };
        // What a shut-down leaves behind takes room for good, so the caller would never learn of it.
        if self.is_shutting_down() {
            return Ok(Added::ShutDown);
        }
        match Turn::try_new(room, merger.weight(&value)) {
            Some(turn) => Ok(self.put_in_turn((key, value), turn)),
            // Together with a value that waits already, this one weighs 1: it needs no room (B1).
            None if merger.weight.is_none() => {
                let hash = hash_of(&self.hasher, &key);
                let merged = self.core.merge_into_waiting(hash, &key, value);
                merged.map_err(|value| Full((key, value)))
            }
            None => Err(Full((key, value))),
        }
    }

    /// Puts a value for a key, and waits until the queue has room for it (B2). Puts that wait get room
    /// in the order in which they came, even if the key has got a value meanwhile and would need no
    /// room. Otherwise like [`put`](Self::put).
    ///
    /// A shut-down ends the wait with [`Added::ShutDown`]. A consumer that waits for room in its own
    /// queue may deadlock: puts of consumers should not wait.
    ///
    /// ```
    /// # use keyqueue::{ValueQueue, WorkQueue};
    /// let builder = WorkQueue::builder().merge(|text: &mut String, new: String| text.push_str(&new));
    /// let queue: ValueQueue<u64, String> = builder.capacity(1000).weight(String::len).build()?;
    /// std::thread::scope(|scope| {
    ///     let _end = queue.shut_down_on_drop();
    ///     let worker = scope.spawn(|| queue.iter().map(|item| item.value().len()).sum::<usize>());
    ///     for n in 0..100 {
    ///         queue.put_wait(n, "x".repeat(100));
    ///     }
    ///     queue.shut_down_with_drain();
    ///     assert_eq!(worker.join().unwrap(), 10_000);
    /// });
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`try_put`](Self::try_put) would.
    #[doc(alias = "backpressure")]
    pub fn put_wait(&self, key: K, value: V) -> Added {
        let added = self.put_until(key, value, None);
        added.expect("without a limit, the wait ends with room")
    }

    /// Like [`put_wait`](Self::put_wait), but waits for at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns the key and the value if there was no room in time.
    ///
    /// # Panics
    ///
    /// Panics if [`try_put`](Self::try_put) would.
    pub fn put_wait_timeout(
        &self,
        key: K,
        value: V,
        limit: Duration,
    ) -> Result<Added, Full<(K, V)>> {
        self.put_until(key, value, Some(limit))
    }

    fn put_until(&self, key: K, value: V, limit: Option<Duration>) -> Result<Added, Full<(K, V)>> {
        let full = match self.try_put(key, value) {
            Ok(added) => return Ok(added),
            Err(full) => full,
        };
        let mut turn = self.turn(&full);
        match block_until(&mut turn, limit.and_then(deadline_in)) {
            Some(()) => Ok(self.put_in_turn(full.0, turn)),
            None => Err(full),
        }
    }

    /// Like [`put_wait`](Self::put_wait), for tasks of any executor.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready drops the key and the value, and loses its place among
    /// the puts that wait. It has put nothing then.
    ///
    /// ```
    /// # use keyqueue::{Added, WorkQueue, merge};
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::builder().merge(merge::latest).capacity(1).build()?;
    /// assert_eq!(queue.put_async("a", 1).await, Added::Queued);
    /// let put = queue.put_async("b", 2);
    /// let get = async { queue.get_async().await.unwrap().done() };
    /// assert_eq!(futures_lite::future::zip(put, get).await.0, Added::Queued);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if [`try_put`](Self::try_put) would.
    pub async fn put_async(&self, key: K, value: V) -> Added {
        match self.try_put(key, value) {
            Ok(added) => added,
            Err(full) => {
                let mut turn = self.turn(&full);
                (&mut turn).await;
                self.put_in_turn(full.0, turn)
            }
        }
    }

    /// Puts a value for which there is room. It is counted for the weight of the turn, and so never
    /// twice.
    fn put_in_turn(&self, (key, value): (K, V), mut turn: Turn<'_>) -> Added {
        let merger = self.core.merger();
        let hash = hash_of(&self.hasher, &key);
        let level = self.core.default_level();
        self.core.update(hash, level, key, |waiting| {
            waiting.weight += turn.take();
            merger.merge(&mut waiting.load, value.into());
        })
    }

    /// Returns the turn of a value for which there was no room.
    fn turn(&self, Full((_, value)): &Full<(K, V)>) -> Turn<'_> {
        let merger = self.core.merger();
        let room = merger.room.as_ref().expect("only a bounded queue is full");
        Turn::new(room, merger.weight(value))
    }
}
