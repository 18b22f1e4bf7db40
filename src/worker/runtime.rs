//! Workers that are tasks of a tokio runtime (feature `tokio`).

use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, Hash};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::lend::{KeyOnly, Lend, Loan, WithValue};
use super::running::Worker;
use super::stop::StopFlag;
use super::tasks::MOST_TASKS;
use super::trace::Span;
use super::{IntoVerdict, Key, Lent, Loop, Running, ValueWorkers, Workers};
use crate::queue::drain::Drain;
use crate::wait::race::race;
use crate::{ConfigError, DefaultHasher, DrainEnd, Drained, KeyHandle, Valued};

impl<K, S, E> Workers<'static, K, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    E: fmt::Display + 'static,
{
    /// Like [`run_async`](Self::run_async), but spawns a task of `runtime` for each of the
    /// [`tasks`](Self::tasks), so keys are processed on all threads of the runtime (W6). Returns
    /// immediately, with a handle to the tasks.
    ///
    /// `f` gets a [`KeyHandle`], which dereferences to the key, and which the future that `f`
    /// returns may own. A panic of `f`, or of this future, counts as a failure of the key.
    ///
    /// The tasks end once the queue is shut down and empty. Aborting or dropping a task otherwise,
    /// also by ending the runtime, cancels the work on its key:
    /// [`requeue_cancelled`](Self::requeue_cancelled) has what happens to the key.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of tasks is out of range; no task was spawned then.
    ///
    /// # Examples
    ///
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::worker::{Outcome, Workers};
    /// use std::sync::Arc;
    /// use tokio::runtime::Handle;
    ///
    /// # struct App;
    /// # impl App {
    /// #     async fn refresh(&self, _: &str) -> Result<Outcome, String> { Ok(Outcome::Done) }
    /// # }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), keyqueue::ConfigError> {
    /// let (queue, app) = (Arc::new(WorkQueue::<String>::new()), Arc::new(App));
    /// let workers = Workers::shared(Arc::clone(&queue)).tasks(8);
    /// let running = workers.spawn_on(&Handle::current(), move |key| {
    ///     let app = Arc::clone(&app); // each future owns what it uses
    ///     async move { app.refresh(&key).await }
    /// })?;
    ///
    /// queue.add_ref("pod/a");
    /// queue.drain_async().await;
    /// running.join().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn_on<F, R>(self, runtime: &Handle, f: F) -> Result<RunningTasks<K, S>, ConfigError>
    where
        F: Fn(KeyHandle<K>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdict<Error = E>> + Send + 'static,
    {
        let f = move |key: KeyHandle<K>, _: &mut ()| f(key);
        self.inner.spawn_on::<KeyOnly, _, R>(runtime, f)
    }
}

impl<K, V, S, E> ValueWorkers<'static, K, V, S, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    S: BuildHasher + Send + Sync + 'static,
    E: fmt::Display + 'static,
{
    /// Runs `f` on every key with its value, as tasks of a tokio runtime; see [`Workers::spawn_on`].
    ///
    /// The function's future may last longer than any borrow, so it gets a [`Lent`] value instead of
    /// `&mut V`.
    ///
    /// # Errors
    ///
    /// The same as for [`Workers::spawn_on`].
    ///
    /// ```
    /// use keyqueue::worker::Workers;
    /// use keyqueue::{ValueQueue, WorkQueue, merge};
    /// use std::sync::Arc;
    /// use tokio::runtime::Handle;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), keyqueue::ConfigError> {
    /// let queue: ValueQueue<&str, Vec<&str>> = WorkQueue::builder().merge(merge::append).build()?;
    /// let queue = Arc::new(queue);
    /// let running = Workers::shared(Arc::clone(&queue)).tasks(4).values().spawn_on(
    ///     &Handle::current(),
    ///     |client, lines| async move {
    ///         println!("{}: {} lines", *client, lines.len());
    ///     },
    /// )?;
    /// queue.put("client-1", vec!["GET /"]);
    /// queue.drain_async().await;
    /// running.join().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn_on<F, R>(
        self,
        runtime: &Handle,
        f: F,
    ) -> Result<RunningTasks<Valued<K, V>, S>, ConfigError>
    where
        F: Fn(KeyHandle<Valued<K, V>>, Lent<V>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdict<Error = E>> + Send + 'static,
    {
        let f = move |key: KeyHandle<Valued<K, V>>, loan: &mut Loan<V>| f(key, loan.lent());
        self.inner.spawn_on::<WithValue, _, R>(runtime, f)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync, E: fmt::Display> Loop<'static, K, S, E> {
    fn spawn_on<M: Lend<K>, F, R>(
        self,
        runtime: &Handle,
        f: F,
    ) -> Result<RunningTasks<K, S>, ConfigError>
    where
        Self: 'static,
        F: Fn(KeyHandle<K>, &mut M::Loan) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdict<Error = E>> + Send + 'static,
    {
        let count = self.count(MOST_TASKS)?;
        let mut running = RunningTasks::over(&self.queue);
        let shared = Arc::new((self, f, Arc::clone(&running.stop)));
        let work = |shared: Arc<(Self, F, Arc<StopFlag>)>| async move {
            let (workers, f, stop) = &*shared;
            loop {
                let mut get = workers.queue.get_async();
                // An aborted task is dropped at its next await point. Until then it takes none of
                // the keys that other aborted tasks put back.
                let item = poll_fn(|context| match stop.is_set() {
                    true => Poll::Ready(None),
                    false => Pin::new(&mut get).poll(context),
                });
                let Some(item) = item.await else {
                    break;
                };
                let span = Span::of(workers, &item);
                let began = workers.epoch();
                let mut held = workers.lend::<M>(item);
                let (item, loan) = &mut *held;
                let work = async { f(item.handle().granted(), loan).await.into_verdict() };
                let said = workers.complete(item, &span, work).await;
                let given_up = workers.settle(M::take_back(held.into_item()), said, &span, began);
                workers.report(given_up, &span).await;
            }
            workers.report_dropped_async().await;
        };
        let spawn = |_| runtime.spawn(work(Arc::clone(&shared)));
        running.workers.extend((0..count).map(spawn));
        Ok(running)
    }
}

/// A handle to workers that are tasks of a tokio runtime, from [`Workers::spawn_on`].
pub type RunningTasks<K, S = DefaultHasher> = Running<K, S, JoinHandle<()>>;

impl Worker for JoinHandle<()> {
    fn is_finished(&self) -> bool {
        self.is_finished()
    }

    fn abort(&self) {
        self.abort();
    }
}

impl<K: 'static, S: 'static> RunningTasks<K, S> {
    /// Waits until the workers have ended, which they do once the queue is shut down and empty, or
    /// after [`abort`](Self::abort). Does neither itself. A worker that awaits this waits forever,
    /// for itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the workers.
    pub async fn join(mut self) {
        self.ended().await;
    }

    /// Shuts the queue down and waits for at most `grace`, first until no key is queued or
    /// processing, then until the workers have ended, who report the retries that were dropped; then
    /// [aborts](Self::abort) them (W8). Returns how the first wait ended and what was left: a key that
    /// was queued then is not delivered to these workers, and the work on one that was processing is
    /// cancelled. To wait until a cancelled task has ended, [`join`](Self::join) next.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time enabled, before it shuts the queue down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue shut down, ends the drain like
    /// [that of `drain_async`](crate::WorkQueue::drain_async), and does not abort the workers.
    pub async fn drain_within(&mut self, grace: Duration) -> Drained {
        // Panics if there is no time, before the drain begins.
        let mut deadline = pin!(sleep(grace));
        let queue = Arc::clone(&self.queue);
        let drained = Drain::begin(&queue.core).until(deadline.as_mut()).await;
        if drained.end == DrainEnd::Finished {
            _ = race(pin!(self.ended()), deadline).await;
        }
        self.abort();
        drained
    }

    /// Waits until `signal` is ready, then [stops within](Self::drain_within) `grace` (W8). Does not
    /// wait for the signal if the workers end before it.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time enabled, at the first poll.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before the signal changes nothing; after it, as for
    /// [`drain_within`](Self::drain_within).
    ///
    /// # Examples
    ///
    /// ```
    /// use keyqueue::worker::Workers;
    /// use keyqueue::{DrainEnd, WorkQueue};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tokio::runtime::Handle;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), keyqueue::ConfigError> {
    /// let queue = Arc::new(WorkQueue::new());
    /// queue.add("pod/a");
    /// let workers = Workers::shared(Arc::clone(&queue)).tasks(8);
    /// let mut running =
    ///     workers.spawn_on(&Handle::current(), |key| async move { println!("{}", *key) })?;
    ///
    /// let signal = async {}; // in a service, `tokio::signal::ctrl_c()`
    /// let drained = running.run_until(signal, Duration::from_secs(20)).await;
    /// assert_eq!(drained.end, DrainEnd::Finished);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_until(&mut self, signal: impl Future, grace: Duration) -> Drained {
        // Panics if there is no time: now, not only at the signal.
        drop(sleep(grace));
        _ = race(pin!(signal), pin!(self.ended())).await;
        self.drain_within(grace).await
    }

    async fn ended(&mut self) {
        while let Some(task) = self.workers.last_mut() {
            // The task catches panics. If it panicked anyway or was aborted, it has ended, too.
            let _ = task.await;
            self.workers.pop();
        }
    }
}
