//! Workers over a queue whose keys carry values: their function gets the value as well.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::{GivenUp, IntoVerdict, Reason, Running, Workers};
use crate::limiter::{NoLimit, RateLimiter};
use crate::{ConfigError, DefaultHasher, Valued};

impl<'a, K, V, L, S, E> Workers<'a, Valued<K, V>, L, S, E> {
    /// Makes these the workers of a [`ValueQueue`](crate::ValueQueue): their function gets the key and
    /// its value.
    ///
    /// The value is `&mut V`: what the function leaves in it goes with a retry, and with
    /// [`RequeueAfter`](super::Outcome::RequeueAfter) and [`Later`](super::Outcome::Later), and
    /// newer values are merged into it (V3). After a success it is dropped; so it is with these two if
    /// the queue is shut down, because that refuses them.
    ///
    /// Call it last: it has the methods that run, and an [`on_give_up`](ValueWorkers::on_give_up)
    /// that gets the value.
    ///
    /// ```
    /// use keyqueue::worker::Workers;
    /// use keyqueue::{WorkQueue, merge};
    ///
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1, 2]);
    /// queue.put("a", vec![3]);
    /// let workers = Workers::new(&queue).threads(1).max_retries(1).values();
    /// workers
    ///     .on_give_up(|key, value, given_up| {
    ///         assert_eq!((*key, value), ("a", Some(vec![2, 3])));
    ///         assert_eq!(given_up.failure.to_string(), "2 is even");
    ///         queue.shut_down();
    ///     })
    ///     .run(|_, numbers| {
    ///         while let Some(number) = numbers.first() {
    ///             if number % 2 == 0 {
    ///                 return Err(format!("{number} is even"));
    ///             }
    ///             numbers.remove(0); // a retry does not see it again
    ///         }
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn values(self) -> ValueWorkers<'a, K, V, L, S, E> {
        ValueWorkers(self)
    }
}

/// Workers whose function gets a key and its value; from [`Workers::values`].
#[must_use = "workers do nothing until they run"]
pub struct ValueWorkers<'a, K, V, L = NoLimit, S = DefaultHasher, E = std::convert::Infallible>(
    pub(super) Workers<'a, Valued<K, V>, L, S, E>,
);

/// Returns the value of the delivery.
///
/// # Safety
///
/// The caller is the worker that holds the key, and calls this once for each delivery.
#[allow(clippy::mut_from_ref, reason = "the worker has the exclusive right")]
unsafe fn value_of<K, V>(key: &Valued<K, V>) -> &mut V {
    // SAFETY: by the caller's promise.
    let value = unsafe { key.loaded() }.as_mut();
    value.expect("a key is delivered with a value")
}

impl<'a, K, V, L, S, E> ValueWorkers<'a, K, V, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Calls `hook` with every key that is given up, its value and the reason, like
    /// [`Workers::on_give_up`], which it replaces: for a dead letter.
    ///
    /// The value is `None` if it was taken back with [`remove`](crate::ValueQueue::remove), which only
    /// happens to a retry that a shut-down has dropped.
    pub fn on_give_up(self, hook: impl Fn(&K, Option<V>, GivenUp<E>) + Send + Sync + 'a) -> Self
    where
        E: Send + 'a,
    {
        ValueWorkers(self.0.on_give_up(move |key, given_up| {
            let value = match given_up.reason {
                // No worker holds the key, and none will.
                Reason::Dropped => key.take_waiting(),
                // SAFETY: the worker that holds the key calls this hook, after the function.
                _ => unsafe { key.loaded() }.take(),
            };
            hook(key, value, given_up);
        }))
    }
}

impl<K, V, L, S, E> ValueWorkers<'_, K, V, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    L: RateLimiter<Valued<K, V>>,
    S: BuildHasher + Send + Sync,
    E: fmt::Display,
{
    /// Runs `f` on every key with its value; see [`Workers::run`].
    ///
    /// # Errors
    ///
    /// The same as for [`Workers::run`].
    pub fn run<R>(self, f: impl Fn(&K, &mut V) -> R + Sync) -> Result<(), ConfigError>
    where
        R: IntoVerdict<Error = E>,
    {
        // SAFETY: the loop calls this once for each key that it holds.
        self.0.run(|key| f(key, unsafe { value_of(key) }))
    }

    /// Runs `f` on every key with its value, as futures; see [`Workers::run_async`].
    ///
    /// # Errors
    ///
    /// The same as for [`Workers::run_async`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Workers::run_async`]: the keys whose work is cancelled go back into the queue, with
    /// their values as the function has left them.
    pub async fn run_async<F, R>(self, f: F) -> Result<(), ConfigError>
    where
        F: AsyncFn(&K, &mut V) -> R,
        R: IntoVerdict<Error = E>,
    {
        // SAFETY: the loop calls this once for each key that it holds. `move`, because the compiler
        // cannot prove that the future of a closure that borrows `f` is `Send`.
        let work = async move |key: &Valued<K, V>| f(key, unsafe { value_of(key) }).await;
        self.0.run_async(work).await
    }
}

impl<K, V, L, S, E> ValueWorkers<'static, K, V, L, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    L: RateLimiter<Valued<K, V>> + 'static,
    S: BuildHasher + Send + Sync + 'static,
    E: fmt::Display + 'static,
{
    /// Runs `f` on every key with its value, on background threads; see [`Workers::spawn`].
    ///
    /// # Errors
    ///
    /// The same as for [`Workers::spawn`].
    pub fn spawn<R: IntoVerdict<Error = E>>(
        self,
        f: impl Fn(&K, &mut V) -> R + Send + Sync + 'static,
    ) -> Result<Running<Valued<K, V>, L, S>, ConfigError> {
        // SAFETY: the loop calls this once for each key that it holds.
        self.0.spawn(move |key| f(key, unsafe { value_of(key) }))
    }
}

impl<K, V, L, S, E> fmt::Debug for ValueWorkers<'_, K, V, L, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ValueWorkers").field(&self.0).finish()
    }
}
