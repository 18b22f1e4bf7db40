//! The settings of a controller, and of the queue behind it.

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, FutureExt};
use keyqueue::limiter::RateLimiter;
use keyqueue::worker::GivenUp;
use kube_client::Resource;
use kube_runtime::reflector::ObjectRef;
use kube_runtime::utils::Backoff;
use serde::de::DeserializeOwned;

use super::Controller;
use crate::leader::Leadership;
use crate::work::queue::QueueBuilder;

/// How many objects are reconciled at once, unless [`workers`](Controller::workers) says otherwise.
const WORKERS: usize = 32;

/// The two settings of kube-runtime's `Config`, for [`Controller::with_config`].
#[derive(Clone, Debug, Default)]
#[must_use = "a config does nothing until it is given to a controller"]
pub struct Config {
    debounce: Duration,
    concurrency: u16,
}

impl Config {
    /// Sets [`Controller::debounce`]. Default: zero, which is none.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.debounce = debounce;
        self
    }

    /// Sets [`Controller::workers`]. Zero, the default, leaves it as it is.
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.concurrency = concurrency;
        self
    }
}

/// Hook for objects that are given up.
type OnGiveUp<K> = Arc<dyn Fn(&ObjectRef<K>, GivenUp<String>) + Send + Sync>;

/// Divides the queue into groups, by a function whose type is erased by this one.
type Grouping<K> = Box<dyn FnOnce(QueueBuilder<K>) -> QueueBuilder<K> + Send + Sync>;

pub(crate) struct Settings<K: Resource + 'static> {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) debounce: Duration,
    pub(crate) limiter: Option<Box<dyn RateLimiter<ObjectRef<K>>>>,
    pub(crate) max_retries: Option<u32>,
    pub(crate) on_give_up: Option<OnGiveUp<K>>,
    pub(crate) has_levels: bool,
    pub(crate) starvation_limit: Option<usize>,
    pub(crate) min_interval: Option<Duration>,
    pub(crate) grouping: Option<Grouping<K>>,
    pub(crate) group_limit: Option<usize>,
    pub(crate) leadership: Option<Leadership>,
}

impl<K: Resource + 'static> Settings<K> {
    pub(crate) fn new(name: String) -> Self {
        Settings {
            name,
            workers: WORKERS,
            debounce: Duration::ZERO,
            limiter: None,
            max_retries: None,
            on_give_up: None,
            has_levels: true,
            starvation_limit: None,
            min_interval: None,
            grouping: None,
            group_limit: None,
            leadership: None,
        }
    }
}

impl<K: Resource + 'static> Debug for Settings<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("name", &self.name)
            .field("workers", &self.workers)
            .field("debounce", &self.debounce)
            .field("max_retries", &self.max_retries)
            .field("has_levels", &self.has_levels)
            .field("min_interval", &self.min_interval)
            .field("group_limit", &self.group_limit)
            .finish_non_exhaustive()
    }
}

impl<K> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Names the controller and its queue, in traces and series: must not be empty. Default: the
    /// kind in lower case, as for controller-runtime.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// Sets how many objects are reconciled at once: 1 to 65 536. Default: 32. Each is a task, so
    /// reconcilers that compute run on all threads of the runtime, and on no more.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Waits until an object has not changed for this time before it is reconciled (K9). Default:
    /// zero, which is no wait. An object that changes more often is never reconciled; see
    /// [`min_interval`](Self::min_interval) for a limit that is free of this.
    pub fn debounce(mut self, quiet: Duration) -> Self {
        self.settings.debounce = quiet;
        self
    }

    /// Sets [`workers`](Self::workers) and [`debounce`](Self::debounce).
    pub fn with_config(mut self, config: Config) -> Self {
        self.settings.debounce = config.debounce;
        if config.concurrency > 0 {
            self.settings.workers = config.concurrency.into();
        }
        self
    }

    /// Sets the back-off of watches that fail. It is then shared by all watches of the controller:
    /// a failure of one delays all, and it begins anew whenever any of them works (K3). By default each
    /// has its own [`DefaultBackoff`](kube_runtime::watcher::DefaultBackoff), which is kube's.
    /// When it has no more delays, the last one is repeated, or 30 s if there was none.
    pub fn trigger_backoff(mut self, backoff: impl Backoff + 'static) -> Self {
        let last = Duration::from_secs(30);
        self.backoff = Some(Box::new(Endless { backoff, last }));
        self
    }

    /// Sets the delays of retries in [`run_with_retries`](Self::run_with_retries), and of retries
    /// after a panic. Default: client-go's, 5 ms for the first failure of an object, doubled with
    /// each further one, up to 1000 s. A success forgets the failures.
    ///
    /// [`keyqueue::limiter`] has more of them.
    pub fn retry(mut self, limiter: impl RateLimiter<ObjectRef<K>> + 'static) -> Self {
        self.settings.limiter = Some(Box::new(limiter));
        self
    }

    /// Sets how often a failed reconciliation is retried before the object is given up, that is,
    /// not reconciled until it changes (K7). Default: no limit.
    ///
    /// With [`run`](Self::run), the retries of the error policy count, too.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.settings.max_retries = Some(retries);
        self
    }

    /// Calls `hook` with each object that is given up, its last error as text, and the reason: no
    /// retry is left, the error policy awaits a change, or the controller is shut down. The error
    /// itself is on the stream of [`run`](Self::run). The hook should not block.
    pub fn on_give_up(
        mut self,
        hook: impl Fn(&ObjectRef<K>, GivenUp<String>) + Send + Sync + 'static,
    ) -> Self {
        self.settings.on_give_up = Some(Arc::new(hook));
        self
    }

    /// Sets whether changes are reconciled before the rest, as they are by default (K5).
    ///
    /// There are two levels. The more urgent one has what changed, in the controller's kind or in a
    /// related one, and what [`reconcile_on`](Self::reconcile_on) asks for; the less urgent one has
    /// the first list, what a later list repeats, and [`reconcile_all_on`](Self::reconcile_all_on).
    /// A retry or a requeue keeps the level of its reconciliation, unless a list, also the first one of
    /// a related kind, or a bulk request asks for the object before it is due.
    pub fn levels(mut self, levels: bool) -> Self {
        self.settings.has_levels = levels;
        self
    }

    /// Sets how long changes can be preferred: of this many reconciliations in a row at least one
    /// is of the less urgent level, if it has some (K5). At least 2; default: 16.
    pub fn starvation_limit(mut self, reconciliations: usize) -> Self {
        self.settings.starvation_limit = Some(reconciliations);
        self
    }

    /// Sets the least time between the begins of two reconciliations of one object (K9). Changes in
    /// between cause one reconciliation, at the end of the interval. What is noted of a deletion begins an interval, too, so an
    /// object that is deleted and created again may wait for its end. Above 0; default: none.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.settings.min_interval = Some(interval);
        self
    }

    /// Divides the objects into groups that take turns, for example by tenant (K8). Default: none,
    /// or by namespace if there is a [`group_limit`](Self::group_limit).
    ///
    /// `group` must always return the same group for a reference, and should be cheap.
    pub fn group_by<G>(mut self, group: impl Fn(&ObjectRef<K>) -> G + Send + Sync + 'static) -> Self
    where
        G: Hash + Eq + Clone + Send + Sync + 'static,
    {
        let grouping = move |builder: QueueBuilder<K>| builder.group_by(group);
        self.settings.grouping = Some(Box::new(grouping));
        self
    }

    /// Limits how many objects of a group are reconciled at once (K8): above 0. Default: no limit.
    /// The groups are those of [`group_by`](Self::group_by), or the namespaces.
    pub fn group_limit(mut self, at_once: usize) -> Self {
        self.settings.group_limit = Some(at_once);
        self
    }

    /// Reconciles only while this process leads (K10). Watches and the queue are warm all the time.
    /// When the lease is lost, the reconciliations in flight are cancelled, and their objects go
    /// back to the queue; when it is acquired again, the work goes on with that queue, and with all
    /// objects if another process may have led. A reconciler that blocks its thread cannot be cancelled:
    /// until it returns, nothing else begins here, also with the lease.
    ///
    /// A clone of the handle lets several controllers share a lease. The lease is released when the
    /// last clone is dropped, so after the last reconciliation has ended.
    pub fn leader_election(mut self, leadership: Leadership) -> Self {
        self.settings.leadership = Some(leadership);
        self
    }

    /// Shuts the controller down gracefully when `trigger` is ready (K11): the watches end, no
    /// reconciliation begins, those that run finish, and the stream ends. Of several triggers the
    /// first counts.
    pub fn graceful_shutdown_on(
        mut self,
        trigger: impl Future<Output = ()> + Send + Sync + 'static,
    ) -> Self {
        self.graceful_shutdown.push(trigger.boxed());
        self
    }

    /// Shuts the controller down gracefully at Ctrl-C or, on Unix, SIGTERM (K11). At the second
    /// signal what runs is cancelled, and the stream ends; with leader election, when that has ended and the lease is released.
    pub fn shutdown_on_signal(mut self) -> Self {
        self.graceful_shutdown.push(signal().boxed());
        // Both futures see the first signal; this one then waits for the second.
        self.forceful_shutdown.push(
            async {
                signal().await;
                signal().await;
            }
            .boxed(),
        );
        self
    }
}

/// Waits for Ctrl-C or SIGTERM. Without signal handlers, waits forever.
async fn signal() {
    let ctrl_c = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "Ctrl-C is not handled");
            future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = ctrl_c => {}
        () = terminate() => {}
    }
}

#[cfg(unix)]
async fn terminate() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => _ = signal.recv().await,
        Err(error) => {
            tracing::error!(%error, "SIGTERM is not handled");
            future::pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
async fn terminate() {
    future::pending::<()>().await;
}

/// A back-off that goes on: a stream ends with its back-off, and the controller with that.
struct Endless<B> {
    backoff: B,
    last: Duration,
}

impl<B: Backoff> Iterator for Endless<B> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.last = self.backoff.next().unwrap_or(self.last);
        Some(self.last)
    }
}

impl<B: Backoff> Backoff for Endless<B> {
    fn reset(&mut self) {
        self.backoff.reset();
    }
}
