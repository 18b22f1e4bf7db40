//! How a controller ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keyqueue_kube::{Controller, LeaderElection};
use kube_runtime::reflector::{self, ObjectRef};
use kube_runtime::watcher::{Config, Event};
use serde_json::json;
use tokio::sync::oneshot;

use crate::probe::{Blocked, Probe, SIGNALS, block, never, settle, spawn, until, visit};
use crate::server::{LEASES, Server};

/// K11
#[tokio::test]
async fn a_graceful_shut_down_finishes_what_runs_and_begins_nothing() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put_all(&["a", "b", "c"]);
    let (end, ended) = oneshot::channel::<()>();
    let controller = Controller::new(server.maps(), Config::default())
        .workers(1)
        .graceful_shutdown_on(async { _ = ended.await });
    let results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running().len() == 1).await;
    end.send(()).unwrap();
    until(|| server.watches() == 0).await;
    settle().await;
    assert_eq!(probe.running().len(), 1); // it is not cancelled
    probe.open();
    let results = results.end().await;
    assert!(results.len() == 1 && results[0].is_ok(), "{results:?}");
    assert_eq!(probe.begun().len(), 1);
}

/// K11
#[tokio::test]
async fn a_graceful_shut_down_does_not_wait_for_the_first_list() {
    let (store, _writer) = reflector::store();
    let trigger = stream::iter([Ok(ConfigMap::default())]).chain(stream::pending());
    let controller = Controller::for_stream(trigger.map_ok(named), store)
        .graceful_shutdown_on(std::future::ready(()));
    let results = spawn(controller.run(visit, never, Probe::new()));
    assert!(results.end().await.is_empty());
}

/// K11: the streams have ended, and what they have left in the queue waits for the lease or for the first list.
#[tokio::test(start_paused = true)]
async fn a_graceful_shut_down_does_not_wait_for_the_lease() {
    for has_list in [true, false] {
        let server = Server::default();
        let spec = json!({"holderIdentity": "two", "leaseDurationSeconds": 100_000});
        server.write(LEASES, json!({"metadata": {"name": "books"}, "spec": spec}));
        let leadership = LeaderElection::new(server.client(), "default", "books")
            .start()
            .unwrap();
        let (store, mut writer) = reflector::store();
        if has_list {
            writer.apply_watcher_event(&Event::InitDone);
        }
        let (end, ended) = oneshot::channel::<()>();
        let controller = Controller::for_stream(
            stream::iter([Ok(ConfigMap::default())]).map_ok(named),
            store,
        )
        .leader_election(leadership)
        .graceful_shutdown_on(async { _ = ended.await });
        let results = spawn(controller.run(visit, never, Probe::new()));
        settle().await;
        end.send(()).unwrap();
        assert!(results.end().await.is_empty());
    }
}

/// K11: what the streams have left in the queue is worked off until then.
#[tokio::test]
async fn a_graceful_shut_down_after_the_end_of_the_streams_begins_nothing() {
    let probe = Probe::closed();
    let (store, mut writer) = reflector::store();
    let maps = ["a", "b"].map(|name| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        map
    });
    writer.apply_watcher_event(&Event::InitDone);
    for map in &maps {
        writer.apply_watcher_event(&Event::Apply(map.clone()));
    }
    let (end, ended) = oneshot::channel::<()>();
    let controller = Controller::for_stream(stream::iter(maps.map(Ok)), store)
        .workers(1)
        .graceful_shutdown_on(async { _ = ended.await });
    let results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    settle().await;
    end.send(()).unwrap();
    settle().await;
    probe.open();
    assert_eq!(results.end().await.len(), 1);
    assert_eq!(probe.begun(), ["a"]);
}

fn named(mut map: ConfigMap) -> ConfigMap {
    map.metadata.name = Some("a".into());
    map
}

/// K11
#[tokio::test]
async fn dropping_the_stream_cancels_everything() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put_all(&["a", "b", "c"]);
    let controller = Controller::new(server.maps(), Config::default()).workers(2);
    let results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running().len() == 2).await;
    results.abort().await;
    until(|| probe.running().is_empty() && server.watches() == 0).await;
    // Nothing holds the context any more: there is no task left.
    until(|| Arc::strong_count(&probe) == 1).await;
    assert_eq!(probe.begun().len(), 2);
}

#[tokio::test]
async fn nothing_happens_before_the_stream_is_polled() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default());
    let stream = controller.run(visit, never, Arc::clone(&probe));
    settle().await;
    assert_eq!((server.watches(), probe.begun().len()), (0, 0));
    drop(stream);
}

/// As in kube-runtime, a panic of a mapper is a panic of the stream.
#[tokio::test]
async fn a_panic_of_a_mapper_reaches_the_stream() {
    let server = Server::default();
    server.put_owned("s", "a");
    let mapper = |_: Secret| -> Option<ObjectRef<ConfigMap>> { panic!("as expected") };
    let controller = Controller::new(server.maps(), Config::default()).watches(
        server.secrets(),
        Config::default(),
        mapper,
    );
    let stream = controller.run(visit, never, Probe::new());
    let drive = async { stream.for_each(async |_| ()).await };
    let end = tokio::spawn(drive).await;
    assert!(end.is_err_and(|end| end.is_panic()));
}

#[cfg(unix)]
fn terminate() {
    let id = std::process::id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &id])
        .status();
    assert!(sent.unwrap().success());
}

/// K11: a reconciler that blocks its thread cannot be cancelled.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_second_signal_ends_the_stream_though_a_reconciler_blocks() {
    let _alone = SIGNALS.lock().await;
    let server = Server::default();
    server.put("a");
    let (unblock, blocked) = Blocked::new();
    let controller = Controller::new(server.maps(), Config::default()).shutdown_on_signal();
    let results = spawn(controller.run_with_retries(block, Arc::clone(&blocked)));
    until(|| blocked.has_begun()).await;
    terminate();
    until(|| server.watches() == 0).await;
    terminate();
    assert!(results.end().await.is_empty());
    drop(unblock);
}

/// K10, K11
#[cfg(unix)]
#[tokio::test]
async fn the_first_signal_shuts_down_gracefully_and_the_second_at_once() {
    let _alone = SIGNALS.lock().await;
    for has_lease in [false, true] {
        let (server, probe) = (Server::default(), Probe::closed());
        server.put("a");
        let mut controller = Controller::new(server.maps(), Config::default()).shutdown_on_signal();
        if has_lease {
            let election = LeaderElection::new(server.client(), "default", "books");
            controller = controller.leader_election(election.start().unwrap());
        }
        let results = spawn(controller.run(visit, never, Arc::clone(&probe)));
        // By then the controller waits for signals.
        until(|| probe.running() == ["a"]).await;
        terminate();
        until(|| server.watches() == 0).await;
        settle().await;
        assert_eq!(probe.running(), ["a"]);
        server.apply_after(Duration::from_millis(100));
        terminate();
        assert!(results.end().await.is_empty());
        // The lease is released before the stream ends.
        let lease = server.object(LEASES, "books");
        let holder = lease.map(|lease| lease["spec"]["holderIdentity"].clone());
        assert_eq!(holder, has_lease.then(|| json!("")));
        until(|| probe.running().is_empty()).await;
    }
}
