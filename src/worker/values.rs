//! Workers over a queue whose keys carry values: their function gets the value as well.

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use super::lend::{Loan, WithValue};
use super::{IntoVerdict, Running, Workers};
use crate::{ConfigError, DefaultHasher, Valued};

/// Workers whose function gets a key and its value; from [`Workers::values`].
pub type ValueWorkers<'a, K, V, S = DefaultHasher, E = Infallible> =
    Workers<'a, Valued<K, V>, S, E, WithValue>;

impl<'a, K, V, S, E> Workers<'a, Valued<K, V>, S, E> {
    /// Makes these the workers of a [`ValueQueue`](crate::ValueQueue): their function gets the key and
    /// its value, and so does the hook of [`on_give_up`](ValueWorkers::on_give_up).
    ///
    /// The value is `&mut V`: what the function leaves in it goes with a retry, and with
    /// [`RequeueAfter`](super::Outcome::RequeueAfter) and [`Later`](super::Outcome::Later), and
    /// newer values are merged into it (V3). After a success it is dropped; so it is with these two if
    /// the queue is shut down, because that refuses them.
    ///
    /// ```
    /// use keyqueue::worker::Workers;
    /// use keyqueue::{WorkQueue, merge};
    ///
    /// let queue = WorkQueue::builder().merge(merge::append).build()?;
    /// queue.put("a", vec![1, 2]);
    /// queue.put("a", vec![3]);
    /// Workers::new(&queue)
    ///     .values()
    ///     .threads(1)
    ///     .max_retries(1)
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
    pub fn values(self) -> ValueWorkers<'a, K, V, S, E> {
        Workers {
            inner: self.inner,
            lends: PhantomData,
        }
    }
}

impl<K, V, S, E> ValueWorkers<'_, K, V, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher + Send + Sync,
    E: fmt::Display,
{
    /// Runs `f` on every key with its value; see [`Workers::run`](Workers::run).
    ///
    /// # Errors
    ///
    /// The same as for [`Workers::run`].
    pub fn run<R>(self, f: impl Fn(&K, &mut V) -> R + Sync) -> Result<(), ConfigError>
    where
        R: IntoVerdict<Error = E>,
    {
        let f = |key: &Valued<K, V>, loan: &mut Loan<V>| f(key, loan.get()).into_verdict();
        self.inner.run::<WithValue>(&f)
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
        // `move`, because the compiler cannot prove that the future of a closure that borrows `f` is `Send`.
        let f = async move |key: &Valued<K, V>, loan: &mut Loan<V>| f(key, loan.get()).await;
        self.inner.run_async::<WithValue, _, R>(f).await
    }

    /// Runs `f` on every key with its value, on background threads; see [`Workers::spawn`].
    ///
    /// # Errors
    ///
    /// The same as for [`Workers::spawn`].
    pub fn spawn<R: IntoVerdict<Error = E>>(
        self,
        f: impl Fn(&K, &mut V) -> R + Send + Sync + 'static,
    ) -> Result<Running<Valued<K, V>, S>, ConfigError>
    where
        Self: 'static,
    {
        let f = move |key: &Valued<K, V>, loan: &mut Loan<V>| f(key, loan.get()).into_verdict();
        self.inner.spawn::<WithValue>(Box::new(f))
    }
}
