//! Lists: the first one, later ones, and what is more urgent than they are.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::{Action, Controller};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::Config;

use crate::probe::{Failed, Probe, channel, never, settle, spawn, until, version, visit};
use crate::server::{MAPS, SECRETS, Server};

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// K1
#[tokio::test]
async fn every_object_of_the_first_list_is_reconciled_once() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put_all(&["a", "b", "c"]);
    let controller = Controller::new(server.maps(), Config::default());
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    for _ in 0..3 {
        results.next().await.unwrap().unwrap();
    }
    settle().await;
    assert_eq!(sorted(probe.begun()), ["a", "b", "c"]);
}

/// K1
#[tokio::test]
async fn nothing_is_reconciled_before_the_first_list_is_complete() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put_all(&["a", "b"]);
    server.down(true);
    let (trigger, triggers) = channel();
    let controller = Controller::new(server.maps(), Config::default()).reconcile_on(triggers);
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    trigger.send(ObjectRef::new("b").within("default")).unwrap();
    settle().await;
    assert_eq!(probe.begun(), [""; 0]);
    server.down(false);
    for _ in 0..2 {
        results.next().await.unwrap().unwrap(); // not `ObjectNotFound`
    }
    assert_eq!(sorted(probe.begun()), ["a", "b"]);
}

/// Sees which versions are reconciled.
async fn see(map: Arc<ConfigMap>, seen: Arc<Seen>) -> Result<Action, Failed> {
    let metadata = map.metadata.clone();
    let version = metadata.resource_version.unwrap().parse().unwrap();
    seen.lock().unwrap().push((metadata.name.unwrap(), version));
    Ok(Action::await_change())
}

type Seen = std::sync::Mutex<Vec<(String, u64)>>;

/// K3
#[tokio::test]
async fn a_later_list_reconciles_what_changed_once_it_is_in_the_store() {
    let (server, seen) = (Server::default(), Arc::new(Seen::default()));
    server.put_all(&["a", "b"]);
    let controller = Controller::new(server.maps(), Config::default());
    let policy = |_, error: &Failed, _| panic!("{error}");
    let mut results = spawn(controller.run(see, policy, Arc::clone(&seen)));
    until(|| seen.lock().unwrap().len() == 2 && server.watches() == 1).await;
    let mut versions = [0; 2];
    server.behind_the_watches(MAPS, || {
        versions = [server.put("a"), server.put("c")];
        server.delete(MAPS, "b");
    });
    let changed = [("a".to_owned(), versions[0]), ("c".to_owned(), versions[1])];
    until(|| {
        changed
            .iter()
            .all(|change| seen.lock().unwrap().contains(change))
    })
    .await;
    settle().await;
    // "b" has vanished, which is no error; the others have been reconciled once each.
    assert_eq!(seen.lock().unwrap().len(), 4);
    let mut errors = Vec::new();
    for _ in 0..5 {
        errors.extend(results.next().await.unwrap().err());
    }
    assert!(
        errors
            .iter()
            .all(|error| error.to_string().contains("too old")),
        "{errors:?}"
    );
    assert_eq!(errors.len(), 1);
}

/// K4
#[tokio::test]
async fn the_owner_of_an_object_that_vanished_or_changed_unseen_is_reconciled() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    server.put_owned("s", "a");
    let controller =
        Controller::new(server.maps(), Config::default()).owns(server.secrets(), Config::default());
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.count("a") >= 1 && server.watches() == 2).await;
    settle().await;
    let before = probe.count("a");
    server.behind_the_watches(SECRETS, || _ = server.put_owned("s", "a"));
    until(|| probe.count("a") == before + 1 && server.watches() == 2).await;
    server.behind_the_watches(SECRETS, || server.delete(SECRETS, "s"));
    until(|| probe.count("a") == before + 2).await;
}

/// K5
#[tokio::test]
async fn a_change_overtakes_the_first_list() {
    let (server, probe) = (Server::default(), Probe::closed());
    for n in 0..40 {
        server.put(&format!("m{n}"));
    }
    let controller = Controller::new(server.maps(), Config::default()).workers(1);
    let store = controller.store();
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| !probe.running().is_empty()).await;
    let held = probe.running().remove(0);
    let urgent = if held == "m39" { "m38" } else { "m39" };
    let changed = server.put(urgent);
    until(|| version(&store, urgent) == Some(changed)).await;
    probe.open();
    until(|| probe.begun().len() == 40).await;
    assert_eq!(probe.begun()[1], urgent);
}

/// K5
#[tokio::test]
async fn without_levels_a_change_waits_for_its_turn() {
    let (server, probe) = (Server::default(), Probe::closed());
    for n in 0..40 {
        server.put(&format!("m{n}"));
    }
    let controller = Controller::new(server.maps(), Config::default())
        .workers(1)
        .levels(false);
    let store = controller.store();
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| !probe.running().is_empty()).await;
    let changed = server.put("new");
    until(|| version(&store, "new") == Some(changed)).await;
    probe.open();
    until(|| probe.begun().len() == 41).await;
    assert_eq!(probe.begun()[40], "new");
}

/// K5
#[tokio::test]
async fn the_first_list_does_not_starve() {
    let (server, probe) = (Server::default(), Probe::closed());
    for n in 0..20 {
        server.put(&format!("listed{n}"));
    }
    let controller = Controller::new(server.maps(), Config::default())
        .workers(1)
        .starvation_limit(2);
    let store = controller.store();
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| !probe.running().is_empty()).await;
    let changed = (0..20).map(|n| server.put(&format!("new{n}"))).max();
    until(|| version(&store, "new19") == changed).await;
    probe.open();
    until(|| probe.begun().len() == 40).await;
    for pair in probe.begun()[1..21].windows(2) {
        assert!(
            pair.iter().any(|name| name.starts_with("listed")),
            "{:?}",
            probe.begun()
        );
    }
}

async fn requeue(map: Arc<ConfigMap>, probe: Arc<Probe>) -> Result<Action, Failed> {
    probe.visit(&map).await;
    Ok(Action::requeue(Duration::from_secs(3600)))
}

/// Changes all objects, `m0` and so on, after the first list, so that their last reconciliations are urgent.
async fn change_all(server: &Server, probe: &Probe, objects: usize) {
    until(|| probe.begun().len() == objects && server.watches() == 1).await;
    for n in 0..objects {
        server.put(&format!("m{n}"));
    }
    until(|| probe.begun().len() == 2 * objects).await;
    settle().await; // the requeues are pending
}

/// K5: of objects that wait for nothing, and of those that wait for an urgent requeue.
#[tokio::test]
async fn what_a_later_list_repeats_is_less_urgent_than_what_it_changes() {
    later_list(visit).await;
    later_list(requeue).await;
}

async fn later_list<F>(reconcile: impl Fn(Arc<ConfigMap>, Arc<Probe>) -> F + Send + Sync + 'static)
where
    F: Future<Output = Result<Action, Failed>> + Send + 'static,
{
    let (server, probe) = (Server::default(), Probe::new());
    for n in 0..20 {
        server.put(&format!("m{n}"));
    }
    let controller = Controller::new(server.maps(), Config::default()).workers(1);
    let store = controller.store();
    let (trigger, triggers) = channel();
    let controller = controller.reconcile_on(triggers);
    let _results = spawn(controller.run(reconcile, never, Arc::clone(&probe)));
    change_all(&server, &probe, 20).await;
    // Holds the only worker, until the list is queued behind it.
    probe.close();
    trigger
        .send(ObjectRef::new("m0").within("default"))
        .unwrap();
    until(|| probe.running() == ["m0"]).await;
    let mut changed = 0;
    server.behind_the_watches(MAPS, || changed = server.put("m7"));
    until(|| version(&store, "m7") == Some(changed)).await;
    probe.open();
    until(|| probe.begun().len() == 61).await;
    assert_eq!(probe.begun()[41], "m7");
}

/// K5: of objects that wait for nothing, and of those that wait for an urgent requeue.
#[tokio::test]
async fn a_bulk_request_is_less_urgent_than_a_change() {
    bulk_request(visit).await;
    bulk_request(requeue).await;
}

async fn bulk_request<F>(
    reconcile: impl Fn(Arc<ConfigMap>, Arc<Probe>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Result<Action, Failed>> + Send + 'static,
{
    let (server, probe) = (Server::default(), Probe::new());
    for n in 0..10 {
        server.put(&format!("m{n}"));
    }
    let (trigger, triggers) = channel();
    let controller = Controller::new(server.maps(), Config::default())
        .workers(1)
        .reconcile_all_on(triggers);
    let store = controller.store();
    let _results = spawn(controller.run(reconcile, never, Arc::clone(&probe)));
    change_all(&server, &probe, 10).await;
    probe.close();
    trigger.send(()).unwrap();
    until(|| probe.running().len() == 1).await;
    let changed = server.put("new");
    until(|| version(&store, "new") == Some(changed)).await;
    probe.open();
    until(|| probe.begun().len() == 31).await;
    assert_eq!(probe.begun()[21], "new");
}
