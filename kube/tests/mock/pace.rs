//! Limits of what is reconciled, and when.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::{Config as Settings, Controller};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::Config;

use crate::probe::{Probe, never, settle, spawn, until, version, visit};
use crate::server::{MAPS, Server};

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// K8
#[tokio::test]
async fn a_limit_holds_for_each_namespace() {
    let (server, probe) = (Server::default(), Probe::closed());
    for n in 0..3 {
        server.put_in("one", &format!("one{n}"));
        server.put_in("two", &format!("two{n}"));
    }
    let controller = Controller::new(server.maps(), Config::default())
        .workers(8)
        .group_limit(1);
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running().len() >= 2).await;
    settle().await;
    let running = sorted(probe.running());
    assert!(
        running.len() == 2 && running[0].starts_with("one"),
        "{running:?}"
    );
    probe.open();
    until(|| probe.begun().len() == 6).await;
}

/// K8
#[tokio::test]
async fn groups_take_turns() {
    let (server, probe) = (Server::default(), Probe::closed());
    for n in 0..9 {
        server.put(&format!("big{n}"));
    }
    server.put("small");
    let group = |object: &ObjectRef<ConfigMap>| object.name.starts_with("big");
    let controller = Controller::new(server.maps(), Config::default())
        .workers(1)
        .group_by(group);
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running().len() == 1).await;
    probe.open();
    until(|| probe.begun().len() == 10).await;
    let at = probe.begun().iter().position(|name| name == "small");
    assert!(at <= Some(2), "{:?}", probe.begun());
}

/// The number of workers is the number of reconciliations at once, at most.
#[tokio::test]
async fn the_number_of_workers_holds() {
    for controller in [
        |controller: Controller<ConfigMap>| controller.workers(3),
        |controller: Controller<ConfigMap>| {
            controller
                .workers(9)
                .with_config(Settings::default().concurrency(3))
        },
    ] {
        let (server, probe) = (Server::default(), Probe::closed());
        (0..10).for_each(|n| _ = server.put(&format!("m{n}")));
        let controller = controller(Controller::new(server.maps(), Config::default()));
        let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
        until(|| probe.running().len() == 3).await;
        settle().await;
        probe.open();
        until(|| probe.begun().len() == 10).await;
        assert_eq!(probe.most(), 3);
    }
}

/// K9
#[tokio::test]
async fn an_object_is_not_reconciled_again_within_the_interval() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    let hour = Duration::from_secs(3600);
    let controller = Controller::new(server.maps(), Config::default()).min_interval(hour);
    let store = controller.store();
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.count("a") == 1).await;
    let changed = server.put("a");
    until(|| version(&store, "a") == Some(changed)).await;
    server.put("b");
    until(|| probe.count("b") == 1).await;
    settle().await;
    assert_eq!(probe.count("a"), 1);
}

/// K9
#[tokio::test]
async fn an_object_that_is_not_quiet_waits() {
    for (quiet, is_reconciled) in [
        (Duration::from_secs(3600), false),
        (Duration::from_millis(1), true),
    ] {
        let (server, probe) = (Server::default(), Probe::new());
        server.put("a");
        let settings = Settings::default().debounce(quiet);
        let controller = Controller::new(server.maps(), Config::default()).with_config(settings);
        let store = controller.store();
        let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
        until(|| version(&store, "a").is_some()).await;
        match is_reconciled {
            true => until(|| probe.count("a") == 1).await,
            false => settle().await,
        }
        assert_eq!(probe.count("a"), usize::from(is_reconciled));
    }
}

/// K6, K9: the deletion is delivered when the store has the new object already.
#[tokio::test]
async fn an_object_that_is_created_again_waits_until_it_is_quiet() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put("a");
    let quiet = Duration::from_millis(500);
    let controller = Controller::new(server.maps(), Config::default()).debounce(quiet);
    let store = controller.store();
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    server.delete(MAPS, "a");
    let again = server.put("a");
    until(|| version(&store, "a") == Some(again)).await;
    settle().await;
    probe.open();
    until(|| probe.count("a") == 2).await;
    tokio::time::sleep(quiet * 2).await;
    assert_eq!(probe.count("a"), 2); // not before it is quiet as well
}

/// K9: what waits to become quiet is reconciled when the streams end, not dropped.
#[tokio::test]
async fn the_end_of_the_streams_ends_the_wait() {
    let (store, mut writer) = kube_runtime::reflector::store();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".into());
    writer.apply_watcher_event(&kube_runtime::watcher::Event::InitApply(map.clone()));
    writer.apply_watcher_event(&kube_runtime::watcher::Event::InitDone);
    let probe = Probe::new();
    let trigger = futures_util::stream::iter([Ok(map.clone()), Ok(map)]);
    let hour = Duration::from_secs(3600);
    let controller = Controller::for_stream(trigger, store).debounce(hour);
    let results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    assert_eq!(results.end().await.len(), 1);
}
