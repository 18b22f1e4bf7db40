//! Objects that are deleted and created again, with the same controller on kube-runtime and on this crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::{Api, ResourceExt};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::Config;
use servers::until;
use tokio::time::sleep;

use crate::common::Scene;
use crate::generator::{
    BACK_OFF, Context, First, Generator, GeneratorSpec, Reported, Running, define, error_policy,
    reconcile,
};

/// Each is named after its state when it is deleted and created again: its reconciliation runs, it has failed and
/// waits for the end of its back-off, or it waits for the requeue that its reconciliation asked for.
const NAMES: [&str; 3] = ["runs", "fails", "waits"];

const CHANGED: &str = "changed";

/// Names and uids.
type Uids = BTreeMap<String, Option<String>>;

struct Generators(Api<Generator>);

impl Generators {
    /// Creates one of each name, and returns their uids.
    async fn create(&self) -> Uids {
        let mut uids = Uids::new();
        for name in NAMES {
            let content = "as created".to_owned();
            let generator = Generator::new(name, GeneratorSpec { content });
            let created = self.0.create(&PostParams::default(), &generator).await;
            uids.insert(name.to_owned(), created.expect("there is none").uid());
        }
        uids
    }

    async fn change(&self, name: &str) {
        let patch = serde_json::json!({ "spec": { "content": CHANGED } });
        let patch = Patch::Merge(patch);
        let changed = self.0.patch(name, &PatchParams::default(), &patch).await;
        changed.expect("it is there");
    }

    async fn delete(&self) {
        for name in NAMES {
            let deleted = self.0.delete(name, &DeleteParams::default()).await;
            deleted.expect("it is there");
        }
    }
}

/// Whether each of these results has the uid of the second object of its name.
#[derive(Debug, PartialEq)]
struct IsOfSecond {
    first: bool,
    /// When nothing is left to do.
    last: bool,
    /// After a change of the second object at that time.
    after_change: bool,
    /// Each result has the uid of the object that the reconciler got.
    as_reconciled: bool,
}

/// Deletes generators and creates them again while this controller reconciles them.
async fn created_again(
    scene: &Scene,
    start: impl FnOnce(&Scene, Arc<Context>) -> Running,
) -> BTreeMap<&'static str, IsOfSecond> {
    let context = Context::new(&scene.client);
    context.set("runs", First::Wait);
    context.set("fails", First::Fail);
    let running = start(scene, Arc::clone(&context));
    let generators = Generators(Api::namespaced(scene.client.clone(), &scene.namespace));
    let object = |name: &str| {
        let name = ObjectRef::<Generator>::new(name).within(&scene.namespace);
        running.store.get(&name)
    };

    let first = generators.create().await;
    until("each is in its state", async || {
        let has_result = |name| !running.reported(name).is_empty();
        !context.begun("runs").is_empty() && has_result("fails") && has_result("waits")
    })
    .await;
    // A request waits for the end of this reconciliation when the object is created again.
    generators.change("runs").await;
    until("the store has the change", async || {
        object("runs").is_some_and(|object| object.spec.content == CHANGED)
    })
    .await;

    generators.delete().await;
    let second = generators.create().await;
    let is_second = |uid: Option<&Option<String>>, name| uid == Some(&second[name]);
    until("the store has the new objects", async || {
        let uid = |name| object(name).map(|object| object.uid());
        NAMES
            .iter()
            .all(|name| is_second(uid(name).as_ref(), *name))
    })
    .await;
    context.set("runs", First::Nothing);
    until("the new object fails, too", async || {
        is_second(context.begun("fails").last(), "fails")
    })
    .await;
    context.set("fails", First::Nothing);
    quiet(&running).await;
    exist(scene, &second).await;
    let then = NAMES.map(|name| running.reported(name));
    for name in NAMES {
        generators.change(name).await;
    }
    quiet(&running).await;

    let of = |(name, then): (&'static str, Vec<Reported>)| {
        let now = running.reported(name);
        assert!(then.last().is_some_and(|result| result.is_ok), "{then:?}");
        assert!(now.len() > then.len(), "{now:?}");
        let uids: Vec<_> = now.iter().map(|result| result.uid.clone()).collect();
        assert_eq!(
            uids[0], first[name],
            "it was reconciled before it was created again"
        );
        let is_of_second: Vec<_> = uids.iter().map(|uid| is_second(Some(uid), name)).collect();
        println!(
            "{name}: {is_of_second:?}, {} of them before the change",
            then.len()
        );
        let of_second = IsOfSecond {
            first: is_of_second[0],
            last: is_of_second[then.len() - 1],
            after_change: is_of_second[now.len() - 1],
            as_reconciled: uids == context.begun(name),
        };
        (name, of_second)
    };
    NAMES.into_iter().zip(then).map(of).collect()
}

/// Waits until nothing more is reported. Retries are reported within a back-off.
async fn quiet(running: &Running) {
    let mut before = None;
    until("it becomes quiet", async || {
        sleep(2 * BACK_OFF).await;
        before.replace(running.count()) == Some(running.count())
    })
    .await;
}

/// These generators exist, and each has its config map.
async fn exist(scene: &Scene, uids: &Uids) {
    let generators = Api::<Generator>::namespaced(scene.client.clone(), &scene.namespace);
    let list = generators.list(&ListParams::default()).await;
    let list = list.expect("the server is there");
    let existing: Uids = list.iter().map(|it| (it.name_any(), it.uid())).collect();
    assert_eq!(existing, *uids);
    let maps = Api::<ConfigMap>::namespaced(scene.client.clone(), &scene.namespace);
    for name in NAMES {
        let map = maps.get(name).await.expect("each has one");
        let owners: Vec<_> = map
            .owner_references()
            .iter()
            .map(|owner| Some(owner.uid.clone()))
            .collect();
        assert_eq!(owners, [uids[name].clone()], "{name}");
    }
}

/// A function that starts this crate's controller in the namespace of a scene.
macro_rules! start {
    ($krate:ident) => {
        |scene: &Scene, context: Arc<Context>| {
            let generators = Api::namespaced(scene.client.clone(), &scene.namespace);
            let maps = Api::<ConfigMap>::namespaced(scene.client.clone(), &scene.namespace);
            let controller = $krate::Controller::new(generators, Config::default())
                .owns(maps, Config::default());
            let store = controller.store();
            Running::start(store, controller.run(reconcile, error_policy, context))
        }
    };
}

/// K13. In kube-runtime a request keeps the uid with which it began to wait for the end of a reconciliation, so that
/// until the next change the last result may have the uid of an object that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn results_have_the_uid_of_the_object_that_was_created_again() {
    let Some(scene) = Scene::set("again-kube-runtime").await else {
        return;
    };
    define(&scene.client).await;
    let theirs = created_again(&scene, start!(kube_runtime)).await;
    drop(scene);
    let Some(scene) = Scene::set("again-keyqueue").await else {
        return;
    };
    let ours = created_again(&scene, start!(keyqueue_kube)).await;
    for name in NAMES {
        assert!(theirs[name].after_change, "{name}: {theirs:?}");
        let expected = IsOfSecond {
            first: false,
            last: true,
            after_change: true,
            as_reconciled: true,
        };
        assert_eq!(ours[name], expected, "{name}");
    }
}
