//! The controller of kube's example `configmapgen_controller`, written anew: a generator owns a config map of its name,
//! which has its content. It is compiled for kube-runtime and for this crate.

use std::collections::{BTreeMap, HashMap};
use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keyqueue_kube::Action;
use kube::{CustomResource, CustomResourceExt};
use kube_client::api::{ObjectMeta, Patch, PatchParams};
use kube_client::{Api, Client, Resource, ResourceExt};
use kube_runtime::controller::Error;
use kube_runtime::reflector::{ObjectRef, Store};
use kube_runtime::wait::{await_condition, conditions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// After which time a generator is reconciled again, as in the example.
const AGAIN: Duration = Duration::from_secs(300);
/// What the error policy waits.
pub(crate) const BACK_OFF: Duration = Duration::from_secs(1);
const MANAGER: &str = "generators";

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "tests.example.com",
    version = "v1",
    kind = "Generator",
    namespaced
)]
pub(crate) struct GeneratorSpec {
    pub(crate) content: String,
}

/// Defines the custom resource, and waits until the server has it.
pub(crate) async fn define(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let (name, apply) = (Generator::crd_name(), PatchParams::apply(MANAGER));
    let applied = definitions
        .patch(name, &apply, &Patch::Apply(Generator::crd()))
        .await;
    applied.expect("it can be defined");
    let established = await_condition(definitions, name, conditions::is_crd_established());
    established.await.expect("the server has it");
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("as the test wants")]
    AsWanted,
    #[error(transparent)]
    Kube(#[from] kube_client::Error),
}

/// What the reconciliations of a generator do first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum First {
    #[default]
    Nothing,
    Wait,
    Fail,
}

/// What the reconciler gets besides the generator.
pub(crate) struct Context {
    client: Client,
    /// By name.
    first: watch::Sender<HashMap<String, First>>,
    begun: Mutex<Vec<(String, Option<String>)>>,
}

impl Context {
    pub(crate) fn new(client: &Client) -> Arc<Context> {
        Arc::new(Context {
            client: client.clone(),
            first: watch::Sender::default(),
            begun: Mutex::default(),
        })
    }

    /// Sets what reconciliations of this generator do first; those that wait look again.
    pub(crate) fn set(&self, name: &str, first: First) {
        self.first.send_modify(|all| {
            all.insert(name.to_owned(), first);
        });
    }

    /// The uids of the objects of this name that the reconciler got, in order.
    pub(crate) fn begun(&self, name: &str) -> Vec<Option<String>> {
        let begun = lock(&self.begun);
        let of = |(begun, _): &&(String, Option<String>)| begun == name;
        begun
            .iter()
            .filter(of)
            .map(|(_, uid)| uid.clone())
            .collect()
    }

    async fn first(&self, name: &str) -> First {
        let first = |all: &HashMap<String, First>| all.get(name).copied().unwrap_or(First::Nothing);
        let mut changes = self.first.subscribe();
        let all = changes.wait_for(|all| first(all) != First::Wait).await;
        first(&all.expect("the sender is here"))
    }
}

/// Applies the config map of a generator.
pub(crate) async fn reconcile(
    generator: Arc<Generator>,
    context: Arc<Context>,
) -> Result<Action, Failed> {
    let name = generator.name_any();
    lock(&context.begun).push((name.clone(), generator.uid()));
    if context.first(&name).await == First::Fail {
        return Err(Failed::AsWanted);
    }
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: generator.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "content".to_owned(),
            generator.spec.content.clone(),
        )])),
        ..ConfigMap::default()
    };
    let namespace = generator.namespace().unwrap_or_default();
    Api::<ConfigMap>::namespaced(context.client.clone(), &namespace)
        .patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&map))
        .await?;
    Ok(Action::requeue(AGAIN))
}

pub(crate) fn error_policy(_: Arc<Generator>, _: &Failed, _: Arc<Context>) -> Action {
    Action::requeue(BACK_OFF)
}

/// What the stream of a controller says of a reconciliation.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) is_ok: bool,
}

/// A controller of either crate, on a task that is aborted when this is dropped.
pub(crate) struct Running {
    pub(crate) store: Store<Generator>,
    reported: Arc<Mutex<Vec<Reported>>>,
    _task: JoinSet<()>,
}

impl Running {
    pub(crate) fn start<Q: StdError + Send + 'static>(
        store: Store<Generator>,
        results: impl Stream<Item = Result<(ObjectRef<Generator>, Action), Error<Failed, Q>>>
        + Send
        + 'static,
    ) -> Running {
        let reported = Arc::<Mutex<Vec<Reported>>>::default();
        let to = Arc::clone(&reported);
        let read = results.for_each(move |result| {
            let (name, uid, is_ok) = match result {
                Ok((object, _)) => (object.name, object.extra.uid, true),
                Err(Error::ReconcilerFailed(_, object)) => (object.name, object.extra.uid, false),
                // It is not of a reconciliation: a generator was deleted, or a watch failed and begins again.
                Err(_) => return std::future::ready(()),
            };
            lock(&to).push(Reported { name, uid, is_ok });
            std::future::ready(())
        });
        let mut task = JoinSet::new();
        task.spawn(read);
        Running {
            store,
            reported,
            _task: task,
        }
    }

    /// What the stream has yielded for this generator, in order.
    pub(crate) fn reported(&self, name: &str) -> Vec<Reported> {
        let reported = lock(&self.reported);
        let of = |reported: &&Reported| reported.name == name;
        reported.iter().filter(of).cloned().collect()
    }

    /// The number of results.
    pub(crate) fn count(&self) -> usize {
        lock(&self.reported).len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
