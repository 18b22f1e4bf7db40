//! Changes of objects, and of what is related to them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keyqueue_kube::{Action, Controller, Error};
use kube_client::api::ObjectMeta;
use kube_runtime::WatchStreamExt;
use kube_runtime::reflector::{self, ObjectRef};
use kube_runtime::watcher::{Config, Event};

use crate::probe::{Failed, Probe, channel, never, settle, spawn, until, version, visit};
use crate::server::{MAPS, SECRETS, Server};

/// K2
#[tokio::test]
async fn changes_during_a_reconciliation_cause_exactly_one_more() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default()).workers(8);
    let store = controller.store();
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    let last = [(); 3].map(|()| server.put("a"))[2];
    until(|| version(&store, "a") == Some(last)).await;
    settle().await;
    assert_eq!(probe.count("a"), 1); // never twice at once
    probe.open();
    until(|| probe.count("a") == 2).await;
    settle().await;
    assert_eq!(probe.count("a"), 2);
}

/// K2, K3
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_of_many_changes_is_reconciled() {
    type Seen = std::sync::Mutex<std::collections::BTreeMap<String, u64>>;
    async fn see(map: Arc<ConfigMap>, both: Arc<(Arc<Probe>, Seen)>) -> Result<Action, Failed> {
        both.0.visit(&map).await; // asserts that no object is reconciled twice at once
        tokio::task::yield_now().await;
        let metadata = map.metadata.clone();
        let version = metadata.resource_version.unwrap().parse().unwrap();
        both.1
            .lock()
            .unwrap()
            .insert(metadata.name.unwrap(), version);
        Ok(Action::await_change())
    }
    let server = Server::default();
    let both = Arc::new((Probe::new(), Seen::default()));
    let controller = Controller::new(server.maps(), Config::default()).workers(8);
    let policy = |_, error: &Failed, _| panic!("{error}");
    let mut results = spawn(controller.run(see, policy, Arc::clone(&both)));
    let mut last = std::collections::BTreeMap::new();
    for n in 0..2000 {
        let name = format!("m{}", n % 5);
        last.insert(name.clone(), server.put(&name));
        if n % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    until(|| *both.1.lock().unwrap() == last).await;
    // None of the reconcilers panicked.
    let first = results.next().await;
    assert!(first.is_some_and(|result| result.is_ok()));
}

/// K4
#[tokio::test]
async fn the_owners_of_changed_objects_are_reconciled_former_ones_too() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put_all(&["a", "b", "c"]);
    let controller =
        Controller::new(server.maps(), Config::default()).owns(server.secrets(), Config::default());
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.begun().len() == 3 && server.watches() == 2).await;
    server.put_owned("s", "a");
    until(|| probe.count("a") == 2).await;
    server.put_owned("s", "b");
    until(|| probe.count("a") == 3 && probe.count("b") == 2).await;
    server.delete(SECRETS, "s");
    until(|| probe.count("b") == 3).await;
    settle().await;
    assert_eq!(["a", "b", "c"].map(|name| probe.count(name)), [3, 3, 1]);
}

/// K4
#[tokio::test]
async fn what_a_mapper_returns_is_reconciled() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put_all(&["a", "b"]);
    let controller = Controller::new(server.maps(), Config::default()).watches(
        server.secrets(),
        Config::default(),
        |secret: Secret| {
            secret
                .metadata
                .name
                .map(|name| ObjectRef::new(&name).within("default"))
        },
    );
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.begun().len() == 2 && server.watches() == 2).await;
    server.put_owned("b", "a");
    until(|| probe.count("b") == 2).await;
    settle().await;
    assert_eq!(probe.count("a"), 1);
}

/// K6: neither the deletion nor the requeue, which is due after it.
#[tokio::test]
async fn the_requeue_of_a_deleted_object_is_no_error() {
    async fn requeue(map: Arc<ConfigMap>, probe: Arc<Probe>) -> Result<Action, Failed> {
        probe.visit(&map).await;
        Ok(Action::requeue(Duration::from_millis(300)))
    }
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default());
    let store = controller.store();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let controller = controller.graceful_shutdown_on(async { _ = ended.await });
    let mut results = spawn(controller.run(requeue, never, Arc::clone(&probe)));
    results.next().await.unwrap().unwrap();
    server.delete(MAPS, "a");
    until(|| store.is_empty()).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    end.send(()).unwrap();
    for result in results.end().await {
        assert!(result.is_ok(), "{result:?}");
    }
}

/// K6
#[tokio::test]
async fn a_queued_reconciliation_of_a_deleted_object_is_an_error_on_the_stream() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default()).workers(1);
    let store = controller.store();
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    let changed = server.put("b");
    until(|| version(&store, "b") == Some(changed)).await;
    server.delete(MAPS, "b");
    until(|| store.len() == 1).await;
    probe.open();
    assert!(results.next().await.unwrap().is_ok());
    match results.next().await.unwrap() {
        Err(Error::ObjectNotFound(object)) => assert_eq!(object.name, "b"),
        other => panic!("{other:?}"),
    }
    assert_eq!(probe.begun(), ["a"]);
}

/// K6: the change has taken the place of a requeue, and is what was asked for last.
#[tokio::test]
async fn a_queued_change_of_a_deleted_object_that_waited_for_its_requeue_is_an_error_too() {
    async fn requeue(map: Arc<ConfigMap>, probe: Arc<Probe>) -> Result<Action, Failed> {
        probe.visit(&map).await;
        Ok(Action::requeue(Duration::from_secs(3600)))
    }
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default()).workers(1);
    let store = controller.store();
    let mut results = spawn(controller.run(requeue, never, Arc::clone(&probe)));
    assert!(results.next().await.unwrap().is_ok());
    settle().await; // the requeue is pending
    probe.close();
    server.put("busy");
    until(|| probe.running() == ["busy"]).await;
    let changed = server.put("a");
    until(|| version(&store, "a") == Some(changed)).await;
    server.delete(MAPS, "a");
    until(|| store.len() == 1).await;
    probe.open();
    assert!(results.next().await.unwrap().is_ok());
    match results.next().await.unwrap() {
        Err(Error::ObjectNotFound(object)) => assert_eq!(object.name, "a"),
        other => panic!("{other:?}"),
    }
}

/// K3: an object with a finalizer that is being deleted is an object that has changed.
#[tokio::test]
async fn an_object_that_waits_for_its_finalizer_is_reconciled() {
    async fn see(map: Arc<ConfigMap>, probe: Arc<Probe>) -> Result<Action, Failed> {
        if map.metadata.deletion_timestamp.is_some() {
            probe.visit(&map).await;
        }
        Ok(Action::await_change())
    }
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default());
    let mut results = spawn(controller.run(see, never, Arc::clone(&probe)));
    results.next().await.unwrap().unwrap();
    let metadata = serde_json::json!({
        "name": "a", "namespace": "default", "finalizers": ["example.com/books"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    });
    server.write(MAPS, serde_json::json!({ "metadata": metadata }));
    until(|| probe.count("a") == 1).await;
}

fn map(name: &str) -> ConfigMap {
    let (name, namespace) = (Some(name.to_owned()), Some("default".to_owned()));
    let metadata = ObjectMeta {
        name,
        namespace,
        ..ObjectMeta::default()
    };
    ConfigMap {
        metadata,
        ..ConfigMap::default()
    }
}

/// K3, K4, for streams that the caller provides.
#[tokio::test]
async fn streams_of_objects_ask_for_reconciliations() {
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for name in ["a", "b", "c", "d", "e"] {
        writer.apply_watcher_event(&Event::InitApply(map(name)));
    }
    writer.apply_watcher_event(&Event::InitDone);
    let probe = Probe::new();
    let owned = |owner: &str| {
        let reference = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner,
        });
        let mut secret = Secret::default();
        secret.metadata.name = Some("s".into());
        secret.metadata.namespace = Some("default".into());
        secret.metadata.owner_references = Some(vec![serde_json::from_value(reference).unwrap()]);
        secret
    };
    let to = |name: &'static str| move |_: Secret| [ObjectRef::new(name).within("default")];
    let controller = Controller::for_stream(stream::iter([Ok(map("a"))]), store)
        .owns_stream(stream::iter([Ok(owned("b"))]))
        .owns_shared_stream(stream::iter([Arc::new(owned("c"))]))
        .watches_stream(stream::iter([Ok(owned("a"))]), to("d"))
        .watches_shared_stream(stream::iter([Arc::new(owned("a"))]), |_: Arc<Secret>| {
            [ObjectRef::new("e").within("default")]
        });
    // The streams end, and with them the controller, after all of it is reconciled.
    let results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    assert_eq!(results.end().await.len(), 5);
    let mut begun = probe.begun();
    begun.sort();
    assert_eq!(begun, ["a", "b", "c", "d", "e"]);
}

/// K3, for a reflector that is shared: an object that is changed and deleted before the controller looks, in its own kind and in a
/// related one, hides no later change.
#[tokio::test]
async fn an_object_that_is_gone_ends_no_subscription() {
    let probe = Probe::new();
    let shared = || {
        let (store, writer) = reflector::store_shared(16);
        let (event, events) = channel();
        let subscription = writer.subscribe().unwrap();
        let events = events.map(Ok).reflect_shared(writer);
        tokio::spawn(events.for_each(|_| async {}));
        (store, subscription, event)
    };
    let (store, own, event) = shared();
    let (_, other, other_event) = shared();
    let to = |map: Arc<ConfigMap>| [ObjectRef::from_obj(&*map)];
    let controller = Controller::for_shared_stream(own, store).watches_shared_stream(other, to);
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    for name in ["a", "b"] {
        event.send(Event::InitApply(map(name))).unwrap();
    }
    event.send(Event::InitDone).unwrap();
    until(|| probe.begun().len() == 2).await;
    for (event, there) in [(event, "a"), (other_event, "b")] {
        for gone in ["x", "y"] {
            event.send(Event::Apply(map(gone))).unwrap();
            event.send(Event::Delete(map(gone))).unwrap();
        }
        event.send(Event::Apply(map(there))).unwrap();
        until(|| probe.count(there) == 2).await;
    }
}

/// K3, for the events of a reflector that the caller provides.
#[tokio::test]
async fn the_events_of_a_reflector_ask_for_reconciliations() {
    let (store, writer) = reflector::store();
    let probe = Probe::new();
    let (event, events) = channel();
    let events = reflector::reflector(writer, events.map(Ok));
    let results =
        spawn(Controller::for_events(events, store).run(visit, never, Arc::clone(&probe)));
    let list = [
        Event::Init,
        Event::InitApply(map("a")),
        Event::InitDone,
        Event::Apply(map("b")),
    ];
    for item in list {
        event.send(item).unwrap();
    }
    until(|| probe.begun().len() == 2).await;
    drop(event);
    assert!(results.end().await.iter().all(Result::is_ok));
}
