//! What the tests on a real API server share: the server, a namespace of their own, sources that are copied, and a
//! witness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use keyqueue_kube::{Action, Controller};
use kube_client::api::{
    DeleteParams, ListParams, ObjectList, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube_client::{Api, Client, Resource, ResourceExt};
use kube_runtime::watcher;
use servers::kube::ControlPlane;
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::witness::Witness;

/// How long anything in a test may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many requests a test has under way.
const REQUESTS: usize = 16;
/// The label of the objects that are reconciled, and of those that the reconciler writes.
pub(crate) const SOURCES: &str = "role=source";
pub(crate) const COPIES: &str = "role=copy";

/// Ended by its supervisor when the process ends.
static SHARED: OnceCell<Option<ControlPlane>> = OnceCell::const_new();
/// Held by the test that runs: each loads the machine.
static MACHINE: Mutex<()> = Mutex::const_new(());

/// A test on the shared API server, in a namespace of its own.
pub(crate) struct Scene {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) port: u16,
    _machine: MutexGuard<'static, ()>,
}

impl Scene {
    /// `None`: there is no API server, and the test says that it was not run.
    pub(crate) async fn set(namespace: &str) -> Option<Scene> {
        let machine = MACHINE.lock().await;
        let plane = SHARED
            .get_or_init(async || ControlPlane::start().await.expect("it starts"))
            .await
            .as_ref()?;
        let client = plane.client();
        create_namespace(&client, namespace).await;
        Some(Scene {
            client,
            namespace: namespace.to_owned(),
            port: plane.port(),
            _machine: machine,
        })
    }

    /// Starts an API server that this test may kill.
    pub(crate) async fn set_with_own_server(namespace: &str) -> Option<(Scene, ControlPlane)> {
        let machine = MACHINE.lock().await;
        let plane = ControlPlane::start().await.expect("it starts")?;
        let client = plane.client();
        create_namespace(&client, namespace).await;
        let scene = Scene {
            client,
            namespace: namespace.to_owned(),
            port: plane.port(),
            _machine: machine,
        };
        Some((scene, plane))
    }

    pub(crate) fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates this many sources: `source-0000` and so on, with the value 0.
    pub(crate) async fn create_sources(&self, count: usize) {
        let api = self.api();
        stream::iter(0..count)
            .map(|index| {
                let (api, source) = (api.clone(), source(index));
                async move { api.create(&PostParams::default(), &source).await }
            })
            .buffer_unordered(REQUESTS)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await
            .expect("they can be created");
    }

    /// Writes a value to each of these sources, in any order.
    pub(crate) async fn write(&self, sources: impl Iterator<Item = usize>, value: usize) {
        stream::iter(sources)
            .map(|index| write(self.api(), index, value))
            .buffer_unordered(REQUESTS)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await
            .expect("they can be written");
    }

    pub(crate) async fn delete(&self, name: &str) {
        let deleted = self.api().delete(name, &DeleteParams::default()).await;
        deleted.expect("it is there");
    }

    pub(crate) async fn list(&self, label: &str) -> ObjectList<ConfigMap> {
        let list = self.api().list(&ListParams::default().labels(label)).await;
        list.expect("the server is there")
    }

    /// Waits until each source has a copy with its value, and there are `count` sources. Copies of sources that
    /// are deleted do not count: a cluster's garbage collector removes them.
    pub(crate) async fn in_step(&self, count: usize) {
        let end = Instant::now() + PATIENCE;
        loop {
            let (sources, copies) = (self.list(SOURCES).await, self.list(COPIES).await);
            let uids: BTreeSet<_> = sources.iter().map(ResourceExt::uid).collect();
            let is_garbage = |copy: &&ConfigMap| {
                let owners = copy.owner_references().iter();
                owners
                    .map(|owner| Some(owner.uid.clone()))
                    .all(|uid| !uids.contains(&uid))
            };
            let expected: Values = sources
                .iter()
                .map(|source| (copy_of(&source.name_any()), value(source)))
                .collect();
            let found: Values = copies
                .iter()
                .filter(|copy| !is_garbage(copy))
                .map(|copy| (copy.name_any(), value(copy)))
                .collect();
            if expected.len() == count && expected == found {
                return;
            }
            assert!(
                Instant::now() < end,
                "not in step within {PATIENCE:?}: {} of {count} sources; {:?}",
                expected.len(),
                expected.symmetric_difference(&found).collect::<Vec<_>>()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Names and values.
type Values = BTreeSet<(String, Option<String>)>;

async fn create_namespace(client: &Client, name: &str) {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces = Api::<Namespace>::all(client.clone());
    let created = namespaces.create(&PostParams::default(), &namespace).await;
    created.expect("a namespace for each test");
}

/// What a reconciler gets besides the object.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) witness: Arc<Witness>,
    /// The name of the replica.
    pub(crate) replica: &'static str,
    /// How long a reconciliation takes, besides its request.
    pub(crate) work: Duration,
}

impl Context {
    pub(crate) fn new(scene: &Scene, work: Duration) -> Arc<Context> {
        let context = Context::of(scene, &Arc::default(), "a");
        Arc::new(Context { work, ..context })
    }

    /// Of one replica of several with one witness.
    pub(crate) fn of(scene: &Scene, witness: &Arc<Witness>, replica: &'static str) -> Context {
        Context {
            client: scene.client.clone(),
            witness: Arc::clone(witness),
            replica,
            work: Duration::from_millis(20),
        }
    }
}

/// A controller that copies sources, on a task. Dropping it aborts the task.
#[derive(Debug)]
pub(crate) struct Running(JoinSet<()>);

impl Running {
    pub(crate) fn start(controller: Controller<ConfigMap>, context: &Arc<Context>) -> Running {
        let run = controller
            .run(copy, |_, _, _| again(), Arc::clone(context))
            .for_each(|_| std::future::ready(()));
        let mut task = JoinSet::new();
        task.spawn(run);
        Running(task)
    }

    /// Waits until the controller has ended by itself.
    pub(crate) async fn ended(mut self) {
        let ended = timeout(PATIENCE, self.0.join_next()).await;
        let ended = ended.expect("it ends").expect("there is one task");
        ended.expect("it does not panic");
    }

    /// Aborts the task, and waits until it has ended.
    pub(crate) async fn abort(mut self) {
        self.0.shutdown().await;
    }
}

/// A controller of this namespace's sources and copies.
pub(crate) fn controller(client: &Client, namespace: &str) -> Controller<ConfigMap> {
    let api = || Api::<ConfigMap>::namespaced(client.clone(), namespace);
    Controller::new(api(), selecting(SOURCES)).owns(api(), selecting(COPIES))
}

/// What is done after an error.
fn again() -> Action {
    Action::requeue(Duration::from_millis(100))
}

/// Writes the copy of a source, as a witness watches.
pub(crate) async fn copy(
    source: Arc<ConfigMap>,
    context: Arc<Context>,
) -> Result<Action, kube_client::Error> {
    let name = source.name_any();
    let visit = context
        .witness
        .enter(&name, context.replica, value(&source));
    sleep(context.work).await;
    let copy = ConfigMap {
        metadata: ObjectMeta {
            name: Some(copy_of(&name)),
            labels: Some(labels(COPIES)),
            owner_references: source.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: source.data.clone(),
        ..ConfigMap::default()
    };
    let namespace = source.namespace().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(context.client.clone(), &namespace);
    let apply = PatchParams::apply("copier").force();
    let patched = api
        .patch(&copy.name_any(), &apply, &Patch::Apply(&copy))
        .await;
    visit.finish();
    patched.map(|_| Action::await_change())
}

pub(crate) fn name(index: usize) -> String {
    format!("source-{index:04}")
}

/// The name of the copy of the source with this name.
pub(crate) fn copy_of(name: &str) -> String {
    format!("copy-of-{name}")
}

pub(crate) fn value(object: &ConfigMap) -> Option<String> {
    object.data.as_ref()?.get("value").cloned()
}

pub(crate) fn selecting(label: &str) -> watcher::Config {
    watcher::Config::default().labels(label)
}

fn labels(label: &str) -> BTreeMap<String, String> {
    let (key, value) = label.split_once('=').expect("key=value");
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn source(index: usize) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name(index)),
            labels: Some(labels(SOURCES)),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("value".to_owned(), "0".to_owned())])),
        ..ConfigMap::default()
    }
}

/// Writes a value to a source.
pub(crate) async fn write(
    api: Api<ConfigMap>,
    index: usize,
    value: usize,
) -> Result<ConfigMap, kube_client::Error> {
    let patch = serde_json::json!({ "data": { "value": value.to_string() } });
    let patch = Patch::Merge(patch);
    api.patch(&name(index), &PatchParams::default(), &patch)
        .await
}
