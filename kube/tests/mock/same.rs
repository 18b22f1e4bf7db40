//! What moves over from kube-runtime without a change: the same code, compiled for and run with
//! both controllers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keyqueue_kube::Action;
use kube_client::Api;
use kube_client::core::{ApiResource, DynamicObject};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::{Config, DefaultBackoff};

use serde_json::json;

use crate::probe::{Failed, Probe, SIGNALS, never, settle, spawn, until, version, visit};
use crate::server::{MAPS, SECRETS, Server};

async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Failed> {
    match map.metadata.name.as_deref() {
        Some("fails") => Err(Failed("as expected".into())),
        Some("waits") => Ok(Action::await_change()),
        _ => Ok(Action::requeue(Duration::from_secs(3600))),
    }
}

fn error_policy(_: Arc<ConfigMap>, _: &Failed, _: Arc<()>) -> Action {
    Action::requeue(Duration::from_secs(3600))
}

/// Runs this controller, and returns what its stream yields for four objects and one change.
macro_rules! run {
    ($krate:ident) => {{
        use $krate::{Config as Settings, Controller};
        let server = Server::default();
        server.put_all(&["fails", "waits", "comes-back", "changes"]);
        let maps = server.maps();
        let controller = Controller::new(maps, Config::default())
            .owns(server.secrets(), Config::default())
            .watches(server.secrets(), Config::default(), |secret: Secret| {
                secret.metadata.annotations.map(|_| ObjectRef::new("none"))
            })
            .with_config(Settings::default().concurrency(4).debounce(Duration::ZERO))
            .trigger_backoff(DefaultBackoff::default())
            .reconcile_all_on(futures_util::stream::pending())
            .graceful_shutdown_on(std::future::pending())
            .shutdown_on_signal();
        let store = controller.store();
        let mut stream = Box::pin(controller.run(reconcile, error_policy, Arc::new(())));
        let mut results = Vec::new();
        for n in 0..5 {
            if n == 4 {
                server.put("changes");
            }
            results.push(match stream.next().await.unwrap() {
                Ok((object, action)) => format!("{object} {action:?}"),
                Err(error) => error.to_string(),
            });
        }
        results.sort();
        assert_eq!(store.len(), 4);
        results
    }};
}

#[tokio::test]
async fn the_same_code_yields_the_same_results() {
    let _no_signals = SIGNALS.lock().await;
    let theirs = run!(kube_runtime);
    let ours = run!(keyqueue_kube);
    assert_eq!(ours, theirs);
}

/// Runs this controller while two objects are created, deleted and created again, and returns the uid in each result.
macro_rules! uids {
    ($krate:ident) => {{
        let server = Server::default();
        let controller = $krate::Controller::new(server.maps(), Config::default());
        let store = controller.store();
        let mut stream = Box::pin(controller.run(reconcile, error_policy, Arc::new(())));
        let mut uids = Vec::new();
        for round in ["first", "second"] {
            for name in ["fails", "comes-back"] {
                let uid = format!("the {round} {name}");
                let metadata = json!({ "name": name, "namespace": "default", "uid": uid });
                server.write(MAPS, json!({ "metadata": metadata }));
            }
            let mut of_round = Vec::new();
            for _ in 0..2 {
                of_round.push(match stream.next().await.unwrap() {
                    Ok((object, _)) => object.extra.uid,
                    Err($krate::Error::ReconcilerFailed(_, object)) => object.extra.uid,
                    Err(error) => panic!("{error}"),
                });
            }
            of_round.sort();
            uids.extend(of_round);
            server.delete(MAPS, "fails");
            server.delete(MAPS, "comes-back");
            tokio::select! {
                result = stream.next() => panic!("{:?}", result.is_some()),
                () = until(|| store.is_empty()) => {}
            }
        }
        uids
    }};
}

/// K13
#[tokio::test]
async fn results_refer_to_the_object_that_was_created_again() {
    use kube_runtime::controller as kube_controller;
    let theirs = uids!(kube_controller);
    let ours = uids!(keyqueue_kube);
    assert_eq!(ours, theirs);
    let uid = |uid: &Option<String>| uid.clone().unwrap();
    assert_eq!(uid(&ours[2]), "the second comes-back");
    assert_eq!(uid(&ours[3]), "the second fails");
}

/// K13: an object that is owned by the earlier object of this name is a change of the newer one.
#[tokio::test]
async fn a_result_refers_to_the_object_and_not_to_the_owner_that_a_related_object_names() {
    let server = Server::default();
    let metadata = json!({ "name": "a", "namespace": "default", "uid": "the second" });
    server.write(MAPS, json!({ "metadata": metadata }));
    let controller = keyqueue_kube::Controller::new(server.maps(), Config::default())
        .owns(server.secrets(), Config::default());
    let mut results = spawn(controller.run(reconcile, error_policy, Arc::new(())));
    let (created, _) = results.next().await.unwrap().unwrap();
    until(|| server.watches() == 2).await;
    // Its owner has the uid "a".
    server.put_owned("of the first", "a");
    let (related, _) = results.next().await.unwrap().unwrap();
    let uid = |object: &ObjectRef<ConfigMap>| object.extra.uid.clone();
    assert_eq!(uid(&created).as_deref(), Some("the second"));
    assert_eq!(uid(&related), uid(&created));
}

/// K13
#[tokio::test]
async fn the_error_of_an_object_that_is_gone_refers_to_the_newest_of_its_name() {
    let (server, probe) = (Server::default(), Probe::closed());
    let put = |uid| {
        let metadata = json!({ "name": "a", "namespace": "default", "uid": uid });
        server.write(MAPS, json!({ "metadata": metadata }))
    };
    put("the first");
    let controller = keyqueue_kube::Controller::new(server.maps(), Config::default());
    let store = controller.store();
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    server.delete(MAPS, "a");
    let second = put("the second");
    until(|| version(&store, "a") == Some(second)).await;
    server.delete(MAPS, "a");
    until(|| store.is_empty()).await;
    settle().await;
    probe.open();
    let (reconciled, _) = results.next().await.unwrap().unwrap();
    assert_eq!(reconciled.extra.uid.as_deref(), Some("the first"));
    let Err(keyqueue_kube::Error::ObjectNotFound(gone)) = results.next().await.unwrap() else {
        panic!("it is gone");
    };
    assert_eq!(gone.extra.uid.as_deref(), Some("the second"));
}

/// Runs this controller, and returns how many reconciliations each of these changes causes.
macro_rules! counts {
    ($krate:ident) => {{
        let (server, probe) = (Server::default(), Probe::new());
        let controller = $krate::Controller::new(server.maps(), Config::default())
            .owns(server.secrets(), Config::default());
        let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
        until(|| server.watches() == 2).await;
        let mut counts = Vec::new();
        let mut before = 0;
        let mut count = async |at_least| {
            until(|| probe.count("a") >= before + at_least).await;
            settle().await;
            counts.push(probe.count("a") - before);
            before = probe.count("a");
        };
        server.put("a");
        count(1).await;
        server.put("a");
        count(1).await;
        server.put_owned("s", "a");
        count(1).await;
        server.delete(SECRETS, "s");
        count(1).await;
        probe.close();
        server.put("a");
        until(|| probe.running() == ["a"]).await;
        for _ in 0..5 {
            server.put("a");
            server.put_owned("s", "a");
            settle().await;
        }
        probe.open();
        count(2).await;
        counts
    }};
}

/// K2: changes that come alone, and those that come while the object is reconciled.
#[tokio::test]
async fn changes_cause_as_many_reconciliations_as_in_kube_runtime() {
    let theirs = counts!(kube_runtime);
    let ours = counts!(keyqueue_kube);
    assert_eq!(ours, theirs);
    assert_eq!(ours, [1, 1, 1, 1, 2]);
}

#[tokio::test]
async fn a_type_that_is_found_at_run_time_works() {
    async fn see(map: Arc<DynamicObject>, _: Arc<()>) -> Result<Action, Failed> {
        assert_eq!(map.metadata.name.as_deref(), Some("a"));
        Ok(Action::await_change())
    }
    let server = Server::default();
    server.put("a");
    let resource = ApiResource::erase::<ConfigMap>(&());
    let maps = Api::<DynamicObject>::all_with(server.client(), &resource);
    let controller = keyqueue_kube::Controller::new_with(maps, Config::default(), resource.clone())
        .owns_with(
            Api::<DynamicObject>::all_with(server.client(), &resource),
            resource,
            Config::default(),
        );
    let mut stream = Box::pin(controller.run_with_retries(see, Arc::new(())));
    let (object, _) = stream.next().await.unwrap().unwrap();
    assert_eq!(object.to_string(), "ConfigMap.v1./a.default");
    settle().await;
}
