//! [`Controller`]: what it watches, its settings, and the stream that runs it.

mod relations;
mod settings;
mod shared;

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::Arc;

use futures_util::future::{BoxFuture, TryFuture};
use futures_util::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use kube_client::{Api, Resource};
use kube_runtime::controller::{Action, Error};
use kube_runtime::reflector::{self, ObjectRef, Store};
use kube_runtime::utils::Backoff;
use kube_runtime::watcher::{self, Event, watcher};
use serde::de::DeserializeOwned;

pub use settings::Config;
pub(crate) use settings::Settings;

use crate::QueueError;
use crate::changes::own::Own;
use crate::changes::{Change, Urgency, is_success};
use crate::work;

/// What the stream of [`Controller::run`] yields: an object that was reconciled, or an error.
pub type Reconciled<K, E> = Result<(ObjectRef<K>, Action), Error<E, QueueError>>;

/// A watch: what each of its events asks for, and whether the event is a success, after which the back-off begins anew.
pub(crate) type Source<K> = BoxStream<'static, watcher::Result<(Vec<Change<K>>, bool)>>;

/// Returns the source of a stream without lists, all of whose items are successes.
fn without_lists<K: Resource + 'static>(
    changes: impl Stream<Item = watcher::Result<Vec<Change<K>>>> + Send + 'static,
) -> Source<K> {
    changes.map_ok(|changes| (changes, true)).boxed()
}

/// Reconciles the objects of a kind `K` whenever they, or objects related to them, change.
///
/// It has the methods of [`kube_runtime::Controller`], so a controller moves over by another `use`.
/// The page `docs/coming_from_kube_runtime.md` of the crate has a table of all of them, and what
/// differs. Between the watches and the reconcilers is a [`keyqueue::WorkQueue`]. What is
/// promised is in `docs/promises.md`.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use futures_util::StreamExt;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use keyqueue_kube::{Action, Controller};
/// use kube_client::{Api, Client, Error};
/// use kube_runtime::watcher;
///
/// async fn reconcile(map: Arc<ConfigMap>, _client: Arc<Client>) -> Result<Action, Error> {
///     println!("{:?}", map.metadata.name);
///     Ok(Action::requeue(Duration::from_secs(300)))
/// }
///
/// fn error_policy(_: Arc<ConfigMap>, _: &Error, _: Arc<Client>) -> Action {
///     Action::requeue(Duration::from_secs(5))
/// }
///
/// # async fn doc(client: Client) {
/// Controller::new(Api::all(client.clone()), watcher::Config::default())
///     .workers(8)
///     .run(reconcile, error_policy, Arc::new(client))
///     .for_each(|result| async move {
///         if let Err(error) = result {
///             eprintln!("{error}");
///         }
///     })
///     .await;
/// # }
/// ```
#[must_use = "a controller does nothing until the stream of `run` is polled"]
pub struct Controller<K>
where
    K: Clone + Resource + Debug + 'static,
    K::DynamicType: Eq + Hash,
{
    pub(crate) sources: Vec<Source<K>>,
    pub(crate) backoff: Option<Box<dyn Backoff>>,
    pub(crate) graceful_shutdown: Vec<BoxFuture<'static, ()>>,
    pub(crate) forceful_shutdown: Vec<BoxFuture<'static, ()>>,
    pub(crate) dyntype: K::DynamicType,
    pub(crate) reader: Store<K>,
    pub(crate) settings: Settings<K>,
}

impl<K> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Creates a controller for the objects of `main_api` that `wc` selects.
    pub fn new(main_api: Api<K>, wc: watcher::Config) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(main_api, wc, K::DynamicType::default())
    }

    /// Like [`new`](Self::new), for a type that is found at run time.
    pub fn new_with(main_api: Api<K>, wc: watcher::Config, dyntype: K::DynamicType) -> Self {
        let writer = reflector::store::Writer::new(dyntype.clone());
        let reader = writer.as_reader();
        let events = reflector::reflector(writer, watcher(main_api, wc));
        Self::for_events_with(events, reader, dyntype)
    }

    /// Creates a controller from a reflector's events, whose store `reader` reads: for a watch that
    /// is filtered, or used by others as well.
    ///
    /// Prefer this to [`for_stream`](Self::for_stream). Only here does the controller see where a
    /// list begins and ends, so that it reconciles what is new in a later list after it is in the
    /// store, and tells changes from repetitions ([`levels`](Self::levels)).
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use keyqueue_kube::Controller;
    /// # use kube_client::{Api, Client};
    /// # use kube_runtime::{WatchStreamExt, reflector, watcher};
    /// # fn doc(client: Client) {
    /// let (reader, writer) = reflector::store();
    /// let events = watcher(Api::<ConfigMap>::all(client), watcher::Config::default())
    ///     .modify(|map| map.metadata.managed_fields = None)
    ///     .reflect(writer);
    /// let controller = Controller::for_events(events, reader);
    /// # }
    /// ```
    pub fn for_events(
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        reader: Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_events_with(events, reader, K::DynamicType::default())
    }

    /// Like [`for_events`](Self::for_events), for a type that is found at run time.
    pub fn for_events_with(
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        let mut own = Own::new(reader.clone(), dyntype.clone());
        let changes = events.map_ok(move |event| (own.event(&event), is_success(&event)));
        Self::from_source(changes.boxed(), reader, dyntype)
    }

    /// Creates a controller from a stream of objects, which must be in the store of `reader` when
    /// the stream yields them: those of kube's `applied_objects` are not, in a list. All of them count as changes.
    pub fn for_stream(
        trigger: impl Stream<Item = watcher::Result<K>> + Send + 'static,
        reader: Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_stream_with(trigger, reader, K::DynamicType::default())
    }

    /// Like [`for_stream`](Self::for_stream), for a type that is found at run time.
    pub fn for_stream_with(
        trigger: impl Stream<Item = watcher::Result<K>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        let type_of = dyntype.clone();
        let change = move |object: &K| {
            let object = ObjectRef::from_obj_with(object, type_of.clone());
            vec![Change::of_object(object, Urgency::Change)]
        };
        let changes = trigger.map(move |object| object.map(|object| change(&object)));
        Self::from_source(without_lists(changes), reader, dyntype)
    }

    /// Creates a controller from a subscription to a reflector that several controllers share.
    ///
    /// The stream of the reflector must be polled by something else than this controller.
    pub fn for_shared_stream(
        trigger: impl Stream<Item = Arc<K>> + Send + 'static,
        reader: Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_shared_stream_with(trigger, reader, K::DynamicType::default())
    }

    /// Like [`for_shared_stream`](Self::for_shared_stream), for a type that is found at run time.
    pub fn for_shared_stream_with(
        trigger: impl Stream<Item = Arc<K>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        let type_of = dyntype.clone();
        let changes = shared::asked_again(trigger).map(move |object| {
            let object = ObjectRef::from_obj_with(&*object, type_of.clone());
            Ok(vec![Change::of_object(object, Urgency::Change)])
        });
        Self::from_source(without_lists(changes), reader, dyntype)
    }

    fn from_source(source: Source<K>, reader: Store<K>, dyntype: K::DynamicType) -> Self {
        let kind = K::kind(&dyntype).to_lowercase();
        Controller {
            sources: vec![source],
            backoff: None,
            graceful_shutdown: Vec::new(),
            forceful_shutdown: Vec::new(),
            dyntype,
            reader,
            settings: Settings::new(kind),
        }
    }

    /// Returns the store of the objects. It is empty until the controller runs. `wait_until_ready` of kube's store wakes one task: the
    /// one that has asked last.
    pub fn store(&self) -> Store<K> {
        self.reader.clone()
    }

    /// Runs the controller: returns a stream of the results of all reconciliations, which does
    /// nothing until it is polled.
    ///
    /// `error_policy` chooses what a failure leads to: another try after the delay of
    /// [`Action::requeue`], or none until the object changes. A panic of `reconciler` counts as a
    /// failure that `error_policy` is not called for; it is retried by [`retry`](Self::retry).
    ///
    /// The reconcilers are tasks of the runtime that polls the stream, so they run on all of its
    /// threads. They wait while the stream is not polled and about a hundred results are unread.
    ///
    /// The stream ends after a graceful shut-down.
    ///
    /// # Errors
    ///
    /// The stream yields kube's [`Error`], none of which ends it except the last two:
    ///
    /// | error | meaning |
    /// | --- | --- |
    /// | [`ReconcilerFailed`](Error::ReconcilerFailed) | `reconciler` returned this error |
    /// | [`ObjectNotFound`](Error::ObjectNotFound) | what should have been reconciled is deleted |
    /// | [`QueueError`](Error::QueueError) of [`QueueError::Watch`] | a watch failed; it is started again after a back-off |
    /// | [`QueueError`](Error::QueueError) of [`QueueError::Config`] | a setting is out of range; nothing was reconciled |
    /// | [`RunnerError`](Error::RunnerError) | the writer of the store was dropped before it had a list |
    ///
    /// # Panics
    ///
    /// Polling the stream panics outside of a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream aborts everything: watches end, and reconciliations are cancelled at
    /// their next await point. No task outlives it for longer than that.
    pub fn run<ReconcilerFut, Ctx>(
        self,
        reconciler: impl Fn(Arc<K>, Arc<Ctx>) -> ReconcilerFut + Send + Sync + 'static,
        error_policy: impl Fn(Arc<K>, &ReconcilerFut::Error, Arc<Ctx>) -> Action + Send + Sync + 'static,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Reconciled<K, ReconcilerFut::Error>> + Send
    where
        K::DynamicType: Debug + Unpin,
        Ctx: Send + Sync + 'static,
        ReconcilerFut: TryFuture<Ok = Action> + Send + 'static,
        ReconcilerFut::Error: std::error::Error + Send + 'static,
    {
        let policy = move |object, error: &_, context| Some(error_policy(object, error, context));
        work::stream(self, reconciler, policy, context)
    }

    /// Runs the controller without an error policy: a failure is retried after the delay that the
    /// limiter of [`retry`](Self::retry) returns, [`max_retries`](Self::max_retries) times.
    ///
    /// Each failure is on the stream. An object that is given up is reported to
    /// [`on_give_up`](Self::on_give_up) as well, and reconciled again when it changes. Otherwise
    /// like [`run`](Self::run), with the same errors, panics and cancel safety.
    pub fn run_with_retries<ReconcilerFut, Ctx>(
        self,
        reconciler: impl Fn(Arc<K>, Arc<Ctx>) -> ReconcilerFut + Send + Sync + 'static,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Reconciled<K, ReconcilerFut::Error>> + Send
    where
        K::DynamicType: Debug + Unpin,
        Ctx: Send + Sync + 'static,
        ReconcilerFut: TryFuture<Ok = Action> + Send + 'static,
        ReconcilerFut::Error: std::error::Error + Send + 'static,
    {
        work::stream(self, reconciler, |_, _: &_, _| None, context)
    }
}

impl<K> Debug for Controller<K>
where
    K: Clone + Resource + Debug + 'static,
    K::DynamicType: Eq + Hash,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("sources", &self.sources.len())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
