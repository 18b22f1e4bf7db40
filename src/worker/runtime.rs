//! Workers that are tasks of a tokio runtime (feature `tokio`).

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::lending::Lane;
use super::running::{self, Worker};
use super::stop::StopFlag;
use super::tasks::MOST_TASKS;
use super::{IntoVerdict, IntoVerdicts, Job, Key, Loop, Running, Workers};
use crate::queue::drain::Drain;
use crate::wait::race::race;
use crate::wait::receipt::receipt;
use crate::{ConfigError, Remaining, UpTo};

/// What the tasks share: the loop, the function, and the flag that stops them.
type Shared<K, V, E, F> = Arc<(Loop<'static, K, V, E>, F, Arc<StopFlag>)>;

impl<K, V, E> Workers<'static, K, V, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    E: fmt::Display + 'static,
{
    /// Like [`run_async`](Self::run_async), but spawns as many tasks of `runtime` as
    /// [`concurrency`](Self::concurrency) says, so keys are processed on all threads of the runtime (W6). Returns
    /// immediately, with a handle to the tasks.
    ///
    /// `f` gets a [`Job`], which the future that `f` returns may own. A panic of `f`, or of this future, counts as a failure of the key.
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
    /// let (queue, app) = (WorkQueue::<String>::new(), Arc::new(App));
    /// let workers = Workers::new(&queue).concurrency(8);
    /// let running = workers.spawn_on(&Handle::current(), move |job| {
    ///     let app = Arc::clone(&app); // each future owns what it uses
    ///     async move { app.refresh(&job).await }
    /// })?;
    ///
    /// queue.entry_ref("pod/a").add();
    /// queue.drain_async().await;
    /// running.join_async().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn_on<F, R>(self, runtime: &Handle, f: F) -> Result<Running<K, V>, ConfigError>
    where
        F: Fn(Job<'static, K, V>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdict<Error = E>> + Send + 'static,
    {
        let work = |shared: Shared<K, V, E, F>| async move {
            let (workers, f, stop) = &*shared;
            let mut lane = Lane::default();
            while let Some(item) = unless(stop, workers.queue.get_async()).await {
                workers.work_on(item, &mut lane, f).await;
            }
            workers.report_dropped_async().await;
        };
        self.inner.spawn_each(runtime, f, work)
    }

    /// Like [`spawn_on`](Self::spawn_on), with a function that gets [batches](Self::run_batches) of jobs.
    ///
    /// # Errors
    ///
    /// The same as for [`spawn_on`](Self::spawn_on).
    pub fn spawn_batches_on<F, R>(
        self,
        runtime: &Handle,
        max: impl Into<UpTo>,
        f: F,
    ) -> Result<Running<K, V>, ConfigError>
    where
        F: Fn(Vec<Job<'static, K, V>>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoVerdicts<Error = E>> + Send + 'static,
    {
        self.inner.refuse_each()?;
        let max = max.into();
        let work = |shared: Shared<K, V, E, F>| async move {
            let (workers, f, stop) = &*shared;
            while let Some(batch) = unless(stop, workers.queue.get_batch_async(max)).await {
                workers.work_on_batch(batch, f).await;
            }
            workers.report_dropped_async().await;
        };
        self.inner.spawn_each(runtime, f, work)
    }
}

impl<K: Key, V: Send + 'static, E: fmt::Display> Loop<'static, K, V, E> {
    /// Spawns the tasks, each of which is one call of `work`.
    fn spawn_each<F, W>(
        self,
        runtime: &Handle,
        f: F,
        work: impl Fn(Shared<K, V, E, F>) -> W,
    ) -> Result<Running<K, V>, ConfigError>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let count = self.count(MOST_TASKS)?;
        let mut running = Running::over(&self.queue.open);
        let shared = Arc::new((self, f, Arc::clone(&running.stop)));
        let spawn = |_| {
            let (obligation, ended) = receipt();
            let work = work(Arc::clone(&shared));
            let task = runtime.spawn(async move {
                // In this order: the obligation is dropped last, also if this is never polled.
                let (work, _obligation) = (work, obligation);
                work.await;
            });
            let handle = running::Handle::Task(task.abort_handle());
            Worker { ended, handle }
        };
        running.workers.extend((0..count).map(spawn));
        Ok(running)
    }
}

/// Gets what `get` does, unless the flag is set: an aborted task is dropped at its next await point, and until then it
/// takes none of the keys that other aborted tasks put back.
async fn unless<T>(stop: &StopFlag, get: impl Future<Output = Option<T>>) -> Option<T> {
    let mut get = pin!(get);
    let get = |context: &mut Context<'_>| match stop.is_set() {
        true => Poll::Ready(None),
        false => get.as_mut().poll(context),
    };
    poll_fn(get).await
}

impl<K, V> Running<K, V> {
    /// Like [`drain_within`](Self::drain_within), for tasks of tokio. The work of a task on a key that was processing is
    /// cancelled. To wait until it has ended, [`join_async`](Self::join_async) next.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time enabled, before it shuts the queue down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue shut down, ends the drain like
    /// [that of `drain_async`](crate::WorkQueue::drain_async), and does not abort the workers.
    pub async fn drain_within_async(&mut self, grace: Duration) -> Remaining {
        // Panics if there is no time, before the drain begins.
        let mut deadline = pin!(sleep(grace));
        let queue = Arc::clone(&self.queue);
        let mut drain = Drain::begin(&queue.core);
        let drained = race(Pin::new(&mut drain), deadline.as_mut()).await;
        let drained = drained.unwrap_or_else(|_| drain.out_of_time());
        if drained.is_finished() {
            _ = race(pin!(self.ended()), deadline).await;
        }
        self.abort();
        drained
    }

    /// Waits until `signal` is ready, then [stops within](Self::drain_within_async) `grace` (W8). Does not
    /// wait for the signal if the workers end before it.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with time enabled, at the first poll.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before the signal changes nothing; after it, as for
    /// [`drain_within_async`](Self::drain_within_async).
    ///
    /// # Examples
    ///
    /// ```
    /// use keyqueue::worker::Workers;
    /// use keyqueue::WorkQueue;
    /// use std::time::Duration;
    /// use tokio::runtime::Handle;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), keyqueue::ConfigError> {
    /// let queue = WorkQueue::new();
    /// queue.add("pod/a");
    /// let workers = Workers::new(&queue).concurrency(8);
    /// let mut running =
    ///     workers.spawn_on(&Handle::current(), |job| async move { println!("{}", *job) })?;
    ///
    /// let signal = async {}; // in a service, `tokio::signal::ctrl_c()`
    /// let drained = running.run_until(signal, Duration::from_secs(20)).await;
    /// assert!(drained.is_finished());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_until(&mut self, signal: impl Future, grace: Duration) -> Remaining {
        // Panics if there is no time: now, not only at the signal.
        drop(sleep(grace));
        _ = race(pin!(signal), pin!(self.ended())).await;
        self.drain_within_async(grace).await
    }
}
