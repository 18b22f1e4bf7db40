//! Runs a controller: one task that reads the watches and starts the workers, and a task for each
//! worker.
//!
//! ```text
//!     sources --> (debounce) --> queue --> workers --> results --> the stream of `run`
//!                                            ^
//!                  the store is ready, and this process leads
//! ```
//!
//! | what happens | the queue | the workers |
//! | --- | --- | --- |
//! | the store is not ready, or another process leads | fills | there are none |
//! | the lease is lost | keeps its keys, and gets those in flight back | are aborted; the next ones begin when all have ended |
//! | it is back, and another may have led | gets all objects | begin |
//! | a graceful shut-down | discards its keys | finish what they hold |
//! | all sources have ended | is shut down | finish what is queued |
//! | a forceful shut-down | is dropped | are aborted, and joined if there is a lease to release |
//! | the stream is dropped | is dropped | are aborted |

mod feed;
pub(crate) mod queue;

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::{self, BoxFuture, FutureExt, TryFuture};
use futures_util::stream::Stream;
use keyqueue::ConfigError;
use keyqueue::worker::{Failed, Failure, Running, Workers};
use kube_client::Resource;
use kube_runtime::controller::{Action, Error, RunnerError};
use kube_runtime::reflector::{ObjectRef, Store, store::WriterDropped};
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::attempt::Attempt;
use crate::controller::{Reconciled, Settings};
use crate::debounce::Debounce;
use crate::leader::Leadership;
use crate::metrics::Metrics;
use crate::reconcile::Reconciler;
use crate::{Controller, QueueError};
use queue::{Cause, Queue};

/// How often a candidate that does not lead looks for objects that came and went.
const TIDY: Duration = Duration::from_secs(30);

/// How long what runs may take to end after the loss of the lease before a warning is traced, if a thread is free.
const SLOW: Duration = Duration::from_secs(5);

/// How many results may be unread before reconcilers wait.
const UNREAD: usize = 128;

/// Starts the controller at the first poll of the stream that this returns.
pub(crate) fn stream<K, F, Fut, P, Ctx>(
    controller: Controller<K>,
    reconciler: F,
    policy: P,
    context: Arc<Ctx>,
) -> impl Stream<Item = Reconciled<K, Fut::Error>> + Send
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Unpin,
    F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: TryFuture<Ok = Action> + Send + 'static,
    Fut::Error: std::error::Error + Send + 'static,
    P: Fn(Arc<K>, &Fut::Error, Arc<Ctx>) -> Option<Action> + Send + Sync + 'static,
    Ctx: Send + Sync + 'static,
{
    let start = async move {
        let (results, unread) = mpsc::channel(UNREAD);
        let leadership = controller.settings.leadership.clone();
        let run = async {
            run(controller, reconciler, policy, context, results).await;
            if let Some(leadership) = leadership {
                leadership.release_if_last().await;
            }
        };
        Results {
            unread,
            task: Some(tokio::spawn(run)),
        }
    };
    start.flatten_stream()
}

/// The results of a controller, whose task ends when this is dropped.
struct Results<T> {
    unread: mpsc::Receiver<T>,
    /// `None` once it has ended.
    task: Option<JoinHandle<()>>,
}

impl<T> Stream for Results<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Poll::Ready(Some(result)) = self.unread.poll_recv(context) {
            return Poll::Ready(Some(result));
        }
        if let Some(task) = &mut self.task {
            let end = ready!(task.poll_unpin(context));
            self.task = None;
            // A reconciler that blocks, and was aborted, keeps its sender for longer.
            self.unread.close();
            if let Err(error) = end
                && let Ok(panic) = error.try_into_panic()
            {
                // A mapper or another stream of the user panicked.
                resume_unwind(panic);
            }
        }
        // What was sent before.
        self.unread.poll_recv(context)
    }
}

impl<T> Drop for Results<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Reads the sources and runs the workers, until a shut-down.
async fn run<K, F, Fut, P, Ctx>(
    controller: Controller<K>,
    reconciler: F,
    policy: P,
    context: Arc<Ctx>,
    results: mpsc::Sender<Reconciled<K, Fut::Error>>,
) where
    K: Clone + Resource + Debug + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Unpin,
    F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: TryFuture<Ok = Action> + Send + 'static,
    Fut::Error: std::error::Error + Send + 'static,
    P: Fn(Arc<K>, &Fut::Error, Arc<Ctx>) -> Option<Action> + Send + Sync + 'static,
    Ctx: Send + Sync + 'static,
{
    let mut settings = controller.settings;
    let (queue, debounce) = match queues(&mut settings) {
        Ok(queues) => queues,
        Err(error) => return refuse(&results, error).await,
    };
    let metrics = Arc::new(Metrics::new(&settings.name, settings.workers));
    let feed = feed::feed(
        controller.sources,
        controller.backoff,
        debounce,
        &queue,
        &controller.reader,
        &results,
    );
    let reconciler = Arc::new(Reconciler {
        reconciler,
        policy,
        context,
        store: controller.reader.clone(),
        queue: Arc::clone(&queue),
        leadership: settings.leadership.clone(),
        results: results.clone(),
        metrics: Arc::clone(&metrics),
    });
    let start = || {
        let reconciler = Arc::clone(&reconciler);
        workers(&queue, &settings, &metrics).spawn_on(&Handle::current(), move |job| {
            let attempt = Attempt::of(&job);
            attempt.around(Arc::clone(&reconciler).reconcile(job))
        })
    };
    let forced = any(controller.forceful_shutdown).shared();
    let work = async {
        let is_ready = tokio::select! {
            is_ready = is_ready(&controller.reader, &queue, &results) => is_ready,
            () = forced.clone() => false,
        };
        if !is_ready {
            return;
        }
        let end = match &settings.leadership {
            None => tokio::select! {
                end = work(start) => end,
                () = forced.clone() => Ok(()),
            },
            Some(leadership) => {
                let (store, dyntype) = (&controller.reader, &controller.dyntype);
                let tidy = || queue::tidy(&queue, store, dyntype);
                let put_all = || queue::put_all(&queue, store, dyntype);
                work_while_leading(start, leadership, &queue, (tidy, put_all), &forced).await
            }
        };
        if let Err(error) = end {
            refuse(&results, error).await;
        }
    };
    let mut work = pin!(work);
    let mut graceful = pin!(any(controller.graceful_shutdown));
    let until_shut_down = async {
        tokio::select! {
            () = &mut work => return,
            () = &mut graceful => {}
            () = feed => {
                // The streams may have had the writer of the store.
                if let Some(Err(error)) = controller.reader.wait_until_ready().now_or_never() {
                    unready(&results, error).await;
                }
                queue.shut_down();
                tokio::select! {
                    () = &mut work => return,
                    () = &mut graceful => {}
                }
            }
        }
        queue.shut_down_now();
        (&mut work).await;
    };
    let is_forced = tokio::select! {
        () = until_shut_down => false,
        () = forced.clone() => true,
    };
    if is_forced {
        // No task has a handle of the lease after this, so that its release is awaited.
        work.await;
    }
}

/// The queue, and what delays changes before they get there.
type Queues<K> = (Arc<Queue<K>>, Option<Debounce<K>>);

fn queues<K>(settings: &mut Settings<K>) -> Result<Queues<K>, ConfigError>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let queue = Arc::new(queue::build(settings)?);
    let quiet = settings.debounce;
    let debounce = (!quiet.is_zero())
        .then(|| Debounce::new(quiet))
        .transpose()?;
    Ok((queue, debounce))
}

async fn refuse<K: Resource, E>(results: &mpsc::Sender<Reconciled<K, E>>, error: ConfigError) {
    let error = Error::QueueError(QueueError::Config(error));
    // Nobody reads the results of a controller that is being dropped.
    let _ = results.send(Err(error)).await;
}

/// Configures the workers.
fn workers<K>(
    queue: &Queue<K>,
    settings: &Settings<K>,
    metrics: &Arc<Metrics>,
) -> Workers<'static, ObjectRef<K>, Cause<K>, String>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let metrics = Arc::clone(metrics);
    let mut workers = Workers::new(queue).concurrency(settings.workers).on_error(
        move |object: &ObjectRef<K>, failed: &Failed<'_, String>| {
            metrics.failed(failed);
            if let Failure::Panic(message) = failed.failure {
                tracing::error!(
                    object.name = object.name,
                    message,
                    "the reconciler panicked"
                );
            }
        },
    );
    if let Some(retries) = settings.max_retries {
        workers = workers.max_retries(retries);
    }
    match settings.on_give_up.clone() {
        None => workers,
        Some(hook) => workers.on_give_up(move |key, given_up| {
            let (given_up, cause) = given_up.split();
            hook(cause.as_ref().map_or(key, |cause| &cause.object), given_up);
        }),
    }
}

/// Waits until the store has its first list. Returns false if there is nothing to wait for.
async fn is_ready<K, E>(
    store: &Store<K>,
    queue: &Queue<K>,
    results: &mpsc::Sender<Reconciled<K, E>>,
) -> bool
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let ready = tokio::select! {
        ready = store.wait_until_ready() => ready,
        () = nothing_left(queue) => return false,
    };
    let Err(error) = ready else {
        return true;
    };
    if !queue.is_shutting_down() {
        unready(results, error).await;
    }
    false
}

async fn unready<K: Resource, E>(results: &mpsc::Sender<Reconciled<K, E>>, error: WriterDropped) {
    let error = Error::RunnerError(RunnerError::Readiness(error));
    // Nobody reads the results of a controller that is being dropped.
    let _ = results.send(Err(error)).await;
}

/// Waits until the queue is shut down and empty. If the streams have ended, a graceful shut-down discards what they
/// have left in it.
async fn nothing_left<K>(queue: &Queue<K>)
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    queue.closed().await;
    queue.drain_async().await;
}

/// Runs workers until the queue is shut down and empty.
async fn work<K: Resource + 'static>(
    start: impl Fn() -> Result<Running<ObjectRef<K>, Cause<K>>, ConfigError>,
) -> Result<(), ConfigError> {
    start()?.join_async().await;
    Ok(())
}

/// Runs workers whenever this process leads, until the queue is shut down and empty, or the end is `forced`.
async fn work_while_leading<K>(
    start: impl Fn() -> Result<Running<ObjectRef<K>, Cause<K>>, ConfigError>,
    leadership: &Leadership,
    queue: &Queue<K>,
    (tidy, put_all): (impl Fn(), impl Fn()),
    forced: &(impl Future<Output = ()> + Clone),
) -> Result<(), ConfigError>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let mut terms = None;
    loop {
        tokio::select! {
            biased;
            () = forced.clone() => return Ok(()),
            () = leadership.acquired() => {}
            () = nothing_left(queue) => return Ok(()),
            () = sleep(TIDY) => {
                tidy();
                continue;
            }
        }
        let now = leadership.terms();
        // What another leader has left undone is in its queue alone. At first all objects are in this one.
        if terms.replace(now).is_some_and(|before| before != now) {
            put_all();
        }
        let running = start()?;
        tokio::select! {
            () = leadership.lost_since(terms) => running.abort(),
            () = forced.clone() => running.abort(),
            () = nothing_left(queue) => {}
        }
        let mut ended = pin!(running.join_async());
        if timeout(SLOW, &mut ended).await.is_err() {
            tracing::warn!(
                objects = queue.counts().processing,
                "a reconciler that blocks cannot be cancelled; until it ends, nothing else begins"
            );
            ended.await;
        }
        if queue.is_shutting_down() {
            return Ok(());
        }
    }
}

/// Waits for the first of these, forever if there are none.
async fn any(futures: Vec<BoxFuture<'static, ()>>) {
    if futures.is_empty() {
        return future::pending().await;
    }
    future::select_all(futures).await;
}
