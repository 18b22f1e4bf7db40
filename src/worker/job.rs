//! What a worker's function gets: the job.
//!
//! # What a job does
//!
//! | the job | threads | futures and tasks |
//! | --- | --- | --- |
//! | is dropped by the function, before or after it returns an error | nothing: the result of the function decides | the same |
//! | is moved to a thread or task that outlives the function | cannot be: it borrows | the worker does not wait for it; a value that is still in it is lost, and the key is settled without one |
//! | is leaked | the value stays with the key | the same as one that outlives |
//! | the function panics | the panic counts as a failure; the value stays with the key | the same |
//! | the future is cancelled | | the key is added again, with its value ([`requeue_cancelled`](super::Workers::requeue_cancelled)) |
//!
//! A thread's job borrows the item that the worker holds. A future may outlive any borrow, so its job owns the value, and
//! gives it back when it is dropped: to its lane, from which the worker takes it before it settles the key or puts it
//! back. There is one [`Lane`] for each task of the workers.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::each::Rest;
use super::lending::{Lane, Lending};
use super::{Key, Loop, Verdict};
use crate::engine::Core;
use crate::keys::node::Interned;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::catch_panic::catch_panic;
use crate::time::nanos;
use crate::{Item, KeyHandle, RetryOnDrop};

/// A key that is being processed, as the function of [`Workers`](super::Workers) gets it: it derefs to the key.
///
/// It is the same in threads, futures and tasks (W9), and in [batches](super::Workers::run_batches). `Job<K>` is its type in a
/// queue without values, and `Job<K, V>` in one with values; the lifetime is how long a thread lends it, and `'static` in a
/// future. Where the lints `rust_2018_idioms` are on, name it: `Job<'_, K>`.
///
/// The function's result decides what becomes of the key; dropping the job decides nothing. To decide more than by an
/// error, return [`give_up`](Self::give_up) or [`retry_after`](Self::retry_after) instead of one.
///
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::worker::{Job, Workers};
/// use std::num::ParseIntError;
/// use std::time::Duration;
///
/// fn parse(job: Job<String>) -> Result<(), ParseIntError> {
///     match job.parse::<u32>() {
///         Ok(number) => println!("{number}, at try {}", job.attempt()),
///         Err(error) if job.is_empty() => return job.give_up(error), // no other try would help
///         Err(error) => return job.retry_after(error, Duration::from_millis(1)),
///     }
///     let _half = job[..1].parse::<u32>()?; // any other error: after the limiter's delay
///     Ok(())
/// }
///
/// let queue = WorkQueue::<String>::new();
/// for key in ["7", "seven", ""] {
///     queue.entry_ref(key).add();
/// }
/// queue.shut_down();
/// let given_up = std::sync::Mutex::new(Vec::new());
/// Workers::new(&queue)
///     .concurrency(1)
///     .on_give_up(|key, _| given_up.lock().unwrap().push(key.clone()))
///     .run(parse)?;
/// assert_eq!(given_up.into_inner().unwrap(), ["seven", ""]); // a queue that is shut down refuses the retry
/// # Ok::<(), keyqueue::ConfigError>(())
/// ```
pub struct Job<'j, K, V = ()> {
    kind: Kind<'j, K, V>,
    level: usize,
    queue_time: Option<Duration>,
}

enum Kind<'j, K, V> {
    Lent(Lent<'j, K, V>),
    Owned(Owned<K, V>),
}

/// What a thread lends.
struct Lent<'j, K, V> {
    core: &'j Arc<Core<K, V>>,
    key: &'j Interned<K>,
    /// `None` in a queue without values.
    value: Option<&'j mut Option<V>>,
    mark: &'j Mark,
    attempt: &'j Attempt<'j, K>,
}

/// Asks the limiter.
type Attempt<'j, K> = dyn Fn(&K) -> u32 + Sync + 'j;

/// What a future owns.
struct Owned<K, V> {
    key: KeyHandle<K, V>,
    attempt: u32,
    back: Back<V>,
    lane: Lane<V>,
}

/// What a function has decided about its error: nothing, to give the key up, or in nanoseconds and one more, a delay.
#[derive(Default)]
pub(super) struct Mark(AtomicU64);

const GIVE_UP: u64 = u64::MAX;

impl Mark {
    fn set(&self, mark: u64) {
        // Ordering: Relaxed; the job comes back to the worker, which orders it.
        self.0.store(mark, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        // Ordering: Relaxed; as in `set`.
        self.0.load(Ordering::Relaxed) != 0
    }

    pub(super) fn gives_up(&self) -> bool {
        // Ordering: Relaxed; as in `set`.
        self.0.load(Ordering::Relaxed) == GIVE_UP
    }

    /// Returns what a function has returned, with what it has decided.
    pub(super) fn on<E>(&self, verdict: Verdict<E>) -> Verdict<E> {
        // Ordering: Relaxed; as in `set`.
        match (self.0.load(Ordering::Relaxed), verdict) {
            (0, verdict) => verdict,
            (GIVE_UP, Verdict::Retry(error)) => Verdict::GiveUp(error),
            (delay, Verdict::Retry(error)) => {
                Verdict::RetryAfter(error, Duration::from_nanos(delay - 1))
            }
            (_, verdict) => verdict,
        }
    }
}

/// What a job of a future gives back.
pub(super) struct Back<V> {
    pub(super) value: Option<V>,
    pub(super) mark: Mark,
}

impl<V> Default for Back<V> {
    fn default() -> Self {
        let (value, mark) = (None, Mark::default());
        Back { value, mark }
    }
}

impl<K, V> Job<'_, K, V> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        match &self.kind {
            Kind::Lent(job) => job.key.key(),
            Kind::Owned(job) => job.key.key(),
        }
    }

    /// Returns the value: all that was put for the key since its last delivery began, merged.
    ///
    /// # Panics
    ///
    /// Panics if the value was [taken](Self::take), or if the queue was built without [`merge`](crate::Builder::merge).
    #[must_use]
    pub fn value(&self) -> &V {
        let value = match &self.kind {
            Kind::Lent(job) => job.value.as_ref().and_then(|value| value.as_ref()),
            Kind::Owned(job) => job.back.value.as_ref(),
        };
        value.expect(TAKEN)
    }

    /// Returns the value, to be changed. What the function leaves in it goes with a retry, and with
    /// [`RequeueAfter`](super::Outcome::RequeueAfter) and its like, and newer values are merged into it (V3). After a
    /// success it is dropped.
    ///
    /// ```
    /// use keyqueue::worker::Workers;
    /// use keyqueue::{WorkQueue, merge};
    ///
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1, 2]);
    /// queue.put("a", vec![3]);
    /// Workers::new(&queue)
    ///     .concurrency(1)
    ///     .max_retries(1)
    ///     .on_give_up(|key, given_up| {
    ///         assert_eq!((*key, given_up.value), ("a", Some(vec![2, 3])));
    ///         assert_eq!(given_up.failure.to_string(), "2 is even");
    ///         queue.shut_down();
    ///     })
    ///     .run(|mut job| {
    ///         while let Some(number) = job.value().first() {
    ///             if number % 2 == 0 {
    ///                 return Err(format!("{number} is even"));
    ///             }
    ///             job.value_mut().remove(0); // a retry does not see it again
    ///         }
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`value`](Self::value).
    #[must_use]
    pub fn value_mut(&mut self) -> &mut V {
        self.slot().and_then(Option::as_mut).expect(TAKEN)
    }

    /// Takes the value out; `None` if it was taken before, or if the queue carries none.
    ///
    /// If the work fails after this, the key is not tried again for this value, and no delay begins: its receipts end as
    /// [`GivenUp`](crate::Ended::GivenUp). `on_give_up` is not called, unless the function [gives up](Self::give_up) or no
    /// retry is left; then it gets no value. So take it when the work has succeeded, or clone it.
    ///
    /// After [`RequeueAfter`](super::Outcome::RequeueAfter), which is a success, they end as [`Done`](crate::Ended::Done), and after
    /// the outcomes that say that the work is not done, such as [`Later`](super::Outcome::Later), as `GivenUp`. The key has no
    /// value then, and is delivered again only when one is put: leave the value there, or a clone, if it is to come by itself.
    /// With [`each`](super::Workers::each), the messages behind this one go with the key, and the receipts end with them.
    #[must_use]
    pub fn take(&mut self) -> Option<V> {
        self.slot()?.take()
    }

    fn slot(&mut self) -> Option<&mut Option<V>> {
        match &mut self.kind {
            Kind::Lent(job) => job.value.as_deref_mut(),
            Kind::Owned(job) => Some(&mut job.back.value),
        }
    }

    /// Returns the number of the try, from 1: one more than the number of
    /// [retries that count](super#which-retries-count).
    ///
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::worker::Workers;
    ///
    /// let queue = WorkQueue::from_iter(["key"]);
    /// Workers::new(&queue).concurrency(1).run(|job| {
    ///     if job.attempt() < 3 {
    ///         return Err(format!("{} fails for time {}", *job, job.attempt()));
    ///     }
    ///     queue.shut_down();
    ///     Ok(())
    /// })?;
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    #[must_use]
    pub fn attempt(&self) -> u32 {
        match &self.kind {
            Kind::Lent(job) => (job.attempt)(job.key.key()),
            Kind::Owned(job) => job.attempt,
        }
    }

    /// Returns the level at which the key was delivered; 0 in a queue without [levels](crate::Builder::levels).
    #[must_use]
    pub fn level(&self) -> usize {
        self.level
    }

    /// Returns how long the key was queued before this delivery; `None` if the queue is not timed
    /// ([`Builder::timing`](crate::Builder::timing)).
    #[must_use]
    pub fn queue_time(&self) -> Option<Duration> {
        self.queue_time
    }

    /// Returns a handle to the key, which adds it again and may outlive the job.
    ///
    /// # Panics
    ///
    /// Panics if 2^25 handles to the key are alive.
    pub fn handle(&self) -> KeyHandle<K, V> {
        let handle = match &self.kind {
            Kind::Lent(job) => KeyHandle::new(Arc::clone(job.core), job.key.pin()),
            Kind::Owned(job) => job.key.share(),
        };
        handle.granted()
    }

    /// Returns `error`, and gives the key up if the function returns an error: another try would fail, too. Like
    /// [`Verdict::GiveUp`].
    ///
    /// ```
    /// # use keyqueue::worker::Job;
    /// fn parse(job: Job<String>) -> Result<(), std::num::ParseIntError> {
    ///     let number: u32 = job.parse().or_else(|error| job.give_up(error))?;
    ///     println!("{}: {number}", *job);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Always returns `error`, for the function to return.
    pub fn give_up<T, E>(&self, error: E) -> Result<T, E> {
        self.mark().set(GIVE_UP);
        Err(error)
    }

    /// Returns `error`, and retries the key after `delay`, instead of the limiter's, if the function returns an error. Like
    /// [`Verdict::RetryAfter`].
    ///
    /// # Errors
    ///
    /// Always returns `error`, for the function to return.
    pub fn retry_after<T, E>(&self, error: E, delay: Duration) -> Result<T, E> {
        let delay = nanos::saturating(delay).min(GIVE_UP - 2);
        self.mark().set(delay + 1);
        Err(error)
    }

    fn mark(&self) -> &Mark {
        match &self.kind {
            Kind::Lent(job) => job.mark,
            Kind::Owned(job) => &job.back.mark,
        }
    }
}

const TAKEN: &str = "the value was taken, or the queue has none";

impl<K, V> Drop for Owned<K, V> {
    fn drop(&mut self) {
        // The lane is empty: it has one job at a time.
        *self.lane.lock() = mem::take(&mut self.back);
    }
}

impl<K, V> Deref for Job<'_, K, V> {
    type Target = K;

    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K: fmt::Display, V> fmt::Display for Job<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Job<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("key", self.key())
            .field("attempt", &self.attempt())
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

impl<K: Key, V: Send + 'static, E: fmt::Display> Loop<'_, K, V, E> {
    /// Calls a thread's function for an item.
    pub(super) fn call(
        &self,
        f: impl FnOnce(Job<'_, K, V>) -> Verdict<E>,
        item: &mut Item<'_, K, V>,
    ) -> Verdict<E> {
        let mark = Mark::default();
        let verdict = f(lend(item, &mark, &|key| self.attempt(key)));
        mark.on(verdict)
    }

    /// Calls a thread's function for many items.
    pub(super) fn call_all<R>(
        &self,
        f: impl FnOnce(Vec<Job<'_, K, V>>) -> R,
        items: &mut [(Item<'_, K, V>, Mark)],
    ) -> R {
        let attempt = |key: &K| self.attempt(key);
        let jobs = items.iter_mut();
        f(jobs
            .map(|(item, mark)| lend(item, mark, &attempt))
            .collect())
    }

    /// Returns the job of a future.
    pub(super) fn own(&self, lent: &mut Lending<'_, K, V>) -> Job<'static, K, V> {
        let Lending { item, lane, .. } = lent;
        let (value, mark) = (item.take(), Mark::default());
        Job {
            kind: Kind::Owned(Owned {
                key: item.handle(),
                attempt: self.attempt(item),
                back: Back { value, mark },
                lane: Arc::clone(lane),
            }),
            level: item.level(),
            queue_time: item.queue_time(),
        }
    }

    fn attempt(&self, key: &K) -> u32 {
        // The limiter is user code.
        let retries = catch_panic(|| self.retries(key).0);
        retries.unwrap_or(0).saturating_add(1)
    }

    /// Begins a call that may be cancelled. If what this returns is dropped, the key is added again, or
    /// given up.
    pub(super) fn lend<'q>(
        &self,
        item: Item<'q, K, V>,
        rest: Rest<V>,
        lane: &Lane<V>,
    ) -> RetryOnDrop<Lending<'q, K, V>> {
        let cancelled = match self.requeue_cancelled {
            true => Lending::put_back,
            false => Lending::give_up,
        };
        RetryOnDrop::new(Lending::of(item, rest, lane), cancelled)
    }

    /// Begins the report of a retry that a shut-down has dropped, which may be cancelled. If what this returns is
    /// dropped, the key is left, or given up.
    pub(super) fn hold_dropped(&self, key: KeyHandle<K, V>) -> RetryOnDrop<KeyHandle<K, V>> {
        RetryOnDrop::new(
            key,
            match self.requeue_cancelled {
                true => |key| key.pin().state().refuse(),
                false => drop,
            },
        )
    }
}

/// Returns the job of a thread.
fn lend<'j, K, V>(
    item: &'j mut Item<'_, K, V>,
    mark: &'j Mark,
    attempt: &'j Attempt<'j, K>,
) -> Job<'j, K, V> {
    let (level, queue_time) = (item.level(), item.queue_time());
    let (core, held) = item.parts();
    let (key, value) = match core.values() {
        None => (&**held, None),
        Some(values) => {
            let (key, load) = held.split(&values.carries);
            (key, Some(&mut load.value))
        }
    };
    Job {
        kind: Kind::Lent(Lent {
            core,
            key,
            value,
            mark,
            attempt,
        }),
        level,
        queue_time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;
    use crate::worker::lending::free;

    #[test] // W9
    fn a_job_that_comes_back_late_leaves_nothing_to_the_next_one() {
        let come_back = |place: Arc<Mutex<Back<u32>>>, value| {
            let (value, mark) = (Some(value), Mark::default());
            mark.set(GIVE_UP);
            *place.lock() = Back { value, mark };
        };
        let mut lane = Lane::default();
        come_back(Arc::clone(free(&mut lane)), 1);
        let late = Arc::clone(free(&mut lane));
        assert_eq!(late.lock().value, None);
        // It is still somewhere when the next one begins.
        let next = Arc::clone(free(&mut lane));
        come_back(late, 2);
        let back = mem::take(&mut *next.lock());
        assert_eq!(back.value, None);
        let verdict = back.mark.on(Verdict::Retry(()));
        assert!(matches!(verdict, Verdict::Retry(())));
    }
}
