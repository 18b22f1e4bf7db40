//! Several keys at once: how they are waited for. [`crate::engine::lingering`] has the protocol of a linger.

use std::time::{Duration, Instant};

use crate::engine::lingering::{Glance, Linger};
use crate::sync::{ThreadParker, thread};
use crate::wait::blocking::{block_unless, deadline_in};
use crate::wait::let_others_run;
use crate::{Batch, GetError, Item, WorkQueue};

/// The number of items that a batch has room for at first.
const ROOM: usize = 64;

/// The size of a [`Batch`], and how long to wait until it is full.
///
/// A number of keys is one without a wait: `get_batch(500)`.
///
/// ```
/// # use keyqueue::{Clock, UpTo, WorkQueue};
/// # use std::thread;
/// # use std::time::Duration;
/// let (clock, time) = Clock::mock();
/// let queue = WorkQueue::builder().clock(clock).build()?;
/// queue.add(1);
/// let up_to = UpTo::new(3).linger(Duration::from_millis(50));
/// thread::scope(|scope| {
///     // Full: no time passes on this clock.
///     let batch = scope.spawn(|| queue.get_batch(up_to).unwrap().len());
///     queue.add_all([2, 3]);
///     assert_eq!(batch.join().unwrap(), 3);
///
///     // The time is over.
///     let batch = scope.spawn(|| queue.get_batch(up_to).unwrap().len());
///     queue.add(4);
///     while !batch.is_finished() {
///         time.advance(Duration::from_millis(50));
///     }
///     assert_eq!(batch.join().unwrap(), 1);
/// });
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "it is passed to `get_batch`"]
pub struct UpTo {
    max: usize,
    linger: Duration,
}

impl UpTo {
    /// At most `max` keys, and what is there at once. A `max` of 0 counts as 1.
    pub const fn new(max: usize) -> Self {
        UpTo {
            max: if max == 0 { 1 } else { max },
            linger: Duration::ZERO,
        }
    }

    /// Waits for at most `time` for more, from when the first key is seen. On the queue's clock, to a
    /// [tick](crate::Builder::tick).
    ///
    /// The getter takes nothing while it waits: keys stay queued, merge adds, and may be taken by other getters,
    /// which are woken as if this one were not there. Then it takes all at once. If others have taken all, it waits
    /// for a first key again.
    ///
    /// It waits no longer once
    ///
    /// * `max` keys may be delivered;
    /// * keys are left over because of a [limit](crate::Builder::group_limit) or a
    ///   [rate](crate::Builder::dispatch_rate): these would wait for this batch in vain;
    /// * the [capacity](crate::Builder::capacity) is used up, so that adds are refused or wait;
    /// * the queue is shut down, so a drain does not wait for it.
    ///
    /// It notices that when it comes about: when a key is added, or when keys may be delivered for another reason, for
    /// example because a group is released or the queue goes on after a pause. That a delay has used up the last of
    /// the capacity is noticed when an add finds no room.
    ///
    /// The first getter that has to wait for more starts the queue's timer thread, which ends the time. With
    /// [`manual_timers`](crate::Builder::manual_timers), [`fire_due`](crate::WorkQueue::fire_due) does.
    pub const fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }
}

impl From<usize> for UpTo {
    fn from(max: usize) -> Self {
        UpTo::new(max)
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static, S> WorkQueue<K, V, S> {
    /// Takes between 1 and `max` keys from the head of the queue, in order. Waits for the first
    /// like [`get`](Self::get), and does not wait for more, unless `max` is [`UpTo`] with a linger. Returns `None`
    /// when `get` does. A `max` of 0 counts as 1.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// let queue = WorkQueue::new();
    /// queue.add_all([1, 2, 3]);
    /// let batch = queue.get_batch(2).unwrap();
    /// assert_eq!(batch.iter().map(|item| **item).collect::<Vec<_>>(), [1, 2]);
    /// batch.done();
    /// queue.shut_down();
    /// while let Some(batch) = queue.get_batch(100) {
    ///     assert_eq!(batch.len(), 1);
    /// }
    /// ```
    #[doc(alias("chunk", "recv_many", "linger"))]
    #[must_use = "dropping the batch at once finishes all of its keys"]
    pub fn get_batch(&self, max: impl Into<UpTo>) -> Option<Batch<'_, K, V>> {
        let up_to = max.into();
        if !up_to.linger.is_zero() {
            return self
                .linger(up_to, None, &ThreadParker::current(), || false)
                .ok();
        }
        Some(self.fill(self.get()?, up_to.max))
    }

    /// Like [`get_batch`](Self::get_batch), but waits for the first key for at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error when [`get_timeout`](Self::get_timeout) does.
    ///
    /// ```
    /// # use keyqueue::{GetError, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::from_iter([1, 2, 3]);
    /// let limit = Duration::from_millis(1);
    /// assert_eq!(queue.get_batch_timeout(2, limit).unwrap().len(), 2);
    /// assert_eq!(queue.get_batch_timeout(2, limit).unwrap().len(), 1); // did not wait for another
    /// assert_eq!(queue.get_batch_timeout(2, limit).unwrap_err(), GetError::Empty);
    /// ```
    pub fn get_batch_timeout(
        &self,
        max: impl Into<UpTo>,
        limit: Duration,
    ) -> Result<Batch<'_, K, V>, GetError> {
        let up_to = max.into();
        if !up_to.linger.is_zero() {
            return self.linger(up_to, deadline_in(limit), &ThreadParker::current(), || {
                false
            });
        }
        Ok(self.fill(self.get_timeout(limit)?, up_to.max))
    }

    /// Like [`get_batch`](Self::get_batch), for tasks of any executor.
    ///
    /// # Cancel safety
    ///
    /// As for [`get_async`](Self::get_async): dropping the future loses nothing. No key is taken
    /// before the poll that returns the batch.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::from_iter([1, 2, 3]);
    /// assert_eq!(queue.get_batch_async(2).await.unwrap().len(), 2);
    /// queue.shut_down();
    /// assert_eq!(queue.get_batch_async(2).await.unwrap().len(), 1);
    /// assert!(queue.get_batch_async(2).await.is_none());
    /// # });
    /// ```
    pub async fn get_batch_async(&self, max: impl Into<UpTo>) -> Option<Batch<'_, K, V>> {
        let up_to = max.into();
        if up_to.linger.is_zero() {
            let first = self.get_async().await?;
            return Some(self.fill(first, up_to.max));
        }
        loop {
            Glance::new(&self.core).await;
            Linger::new(&self.core, up_to.max, up_to.linger).await;
            match self.try_get_batch(up_to.max) {
                Ok(batch) => return Some(batch),
                Err(GetError::ShutDown) => return None,
                // A key without a value, or one that another thread is just about to push or has taken.
                Err(GetError::Empty) => let_others_run().await,
            }
        }
    }

    /// Like [`get_batch`](Self::get_batch), but takes no key and returns `None` once `stopped` returns true. The
    /// thread that makes it true then wakes `parker`, the parker of this thread.
    pub(crate) fn get_batch_unless(
        &self,
        up_to: UpTo,
        parker: &ThreadParker,
        stopped: impl Fn() -> bool,
    ) -> Option<Batch<'_, K, V>> {
        if !up_to.linger.is_zero() {
            return self.linger(up_to, None, parker, stopped).ok();
        }
        Some(self.fill(self.open.get_unless(parker, stopped)?, up_to.max))
    }

    /// Waits for the first key until `deadline`, and then for more. Takes none if `stopped` returns true, also if enough are queued.
    fn linger(
        &self,
        up_to: UpTo,
        deadline: Option<Instant>,
        parker: &ThreadParker,
        stopped: impl Fn() -> bool,
    ) -> Result<Batch<'_, K, V>, GetError> {
        let core = &self.core;
        // Wakes up to sweep idle keys when that is due.
        let until = || deadline.into_iter().chain(core.next_look()).min();
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        loop {
            if stopped() {
                return Err(GetError::Empty);
            }
            while block_unless(&mut Glance::new(core), until(), parker, &stopped).is_none() {
                if stopped() || is_over() {
                    return Err(GetError::Empty);
                }
            }
            let mut linger = Linger::new(core, up_to.max, up_to.linger);
            while block_unless(&mut linger, core.next_look(), parker, &stopped).is_none() {
                if stopped() {
                    return Err(GetError::Empty);
                }
            }
            match self.try_get_batch(up_to.max) {
                // As above.
                Err(GetError::Empty) if !is_over() => thread::yield_now(),
                result => return result,
            }
        }
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Like [`get_batch`](Self::get_batch), but waits for no key at all.
    ///
    /// # Errors
    ///
    /// Returns an error when [`try_get`](Self::try_get) does.
    ///
    /// ```
    /// # use keyqueue::{GetError, WorkQueue};
    /// let queue = WorkQueue::from_iter([1, 2, 3]);
    /// assert_eq!(queue.try_get_batch(100).unwrap().len(), 3);
    /// assert_eq!(queue.try_get_batch(100).unwrap_err(), GetError::Empty);
    /// ```
    pub fn try_get_batch(&self, max: usize) -> Result<Batch<'_, K, V>, GetError> {
        Ok(self.fill(self.try_get()?, max))
    }

    /// Takes what is queued behind `first`, up to `max` keys in all, without waiting.
    fn fill<'q>(&'q self, first: Item<'q, K, V>, max: usize) -> Batch<'q, K, V> {
        let mut items = Vec::with_capacity(max.clamp(1, ROOM));
        items.push(first);
        let push = |held| items.push(Item::of(self.source(), held));
        self.core.take_some(max.saturating_sub(1), push);
        Batch { items }
    }
}
