//! What a review found.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::{Action, Controller, Error, LeaderElection, current};
use kube_runtime::reflector;
use kube_runtime::watcher::{Config, Event};
use serde_json::json;
use tokio::sync::oneshot;

use crate::probe::{Failed, Probe, never, settle, spawn, until, version, visit};
use crate::server::{LEASES, MAPS, Server};

/// K2: the reference in an owned object has the namespace of that object, and the store finds the
/// cluster-scoped owner by it all the same.
#[tokio::test]
async fn a_cluster_scoped_owner_is_never_reconciled_twice_at_once() {
    let (server, probe) = (Server::default(), Probe::closed());
    // Without a namespace, as an object of a cluster-scoped kind.
    server.write(MAPS, json!({"metadata": {"name": "a"}}));
    let controller =
        Controller::new(server.maps(), Config::default()).owns(server.secrets(), Config::default());
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"] && server.watches() == 2).await;
    server.put_owned("s", "a");
    settle().await;
    let at_once = probe.count("a");
    probe.open();
    assert_eq!(at_once, 1);
    let (first, _) = results.next().await.unwrap().unwrap();
    let (second, _) = results.next().await.unwrap().unwrap();
    assert_eq!(first, second);
    settle().await;
    assert_eq!(probe.count("a"), 2);
}

async fn come_back_once(map: Arc<ConfigMap>, probe: Arc<Probe>) -> Result<Action, Failed> {
    probe.visit(&map).await;
    match probe.begun().len() {
        1 => Ok(Action::requeue(Duration::from_millis(300))),
        _ => Ok(Action::await_change()),
    }
}

/// K6: the deletion comes while the object is reconciled, and before that asks for a requeue.
#[tokio::test]
async fn the_requeue_of_an_object_that_is_deleted_meanwhile_is_dropped() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default());
    let store = controller.store();
    let (end, ended) = oneshot::channel::<()>();
    let controller = controller.graceful_shutdown_on(async { _ = ended.await });
    let results = spawn(controller.run(come_back_once, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    server.delete(MAPS, "a");
    until(|| store.is_empty()).await;
    settle().await;
    probe.open();
    tokio::time::sleep(Duration::from_millis(600)).await;
    end.send(()).unwrap();
    for result in results.end().await {
        assert!(result.is_ok(), "{result:?}");
    }
}

/// K7: the change comes while the object is reconciled, and before that asks for a requeue.
#[tokio::test]
async fn a_change_meanwhile_takes_the_place_of_the_requeue() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default());
    let store = controller.store();
    let _results = spawn(controller.run(come_back_once, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    let changed = server.put("a");
    until(|| version(&store, "a") == Some(changed)).await;
    settle().await;
    probe.open();
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(probe.count("a"), 2);
}

/// K6: the same name, but not the same object.
#[tokio::test]
async fn an_object_that_is_created_again_begins_without_failures() {
    type Both = (Mutex<Vec<u32>>, Arc<Probe>);
    async fn fail_a(map: Arc<ConfigMap>, both: Arc<Both>) -> Result<Action, Failed> {
        if map.metadata.name.as_deref() == Some("a") {
            both.0.lock().unwrap().push(current().unwrap().number);
            return Err(Failed("as expected".into()));
        }
        both.1.visit(&map).await;
        Ok(Action::await_change())
    }
    let server = Server::default();
    let both = Arc::new((Mutex::new(Vec::new()), Probe::closed()));
    server.put("a");
    let delay = |_, _: &Failed, _| Action::requeue(Duration::from_secs(3600));
    let controller = Controller::new(server.maps(), Config::default()).workers(1);
    let store = controller.store();
    let _results = spawn(controller.run(fail_a, delay, Arc::clone(&both)));
    until(|| both.0.lock().unwrap().len() == 1).await;
    server.put("a");
    until(|| both.0.lock().unwrap().len() == 2).await;
    server.put("busy");
    until(|| both.1.running() == ["busy"]).await;
    server.delete(MAPS, "a");
    let again = server.put("a");
    until(|| version(&store, "a") == Some(again)).await;
    settle().await;
    both.1.open();
    until(|| both.0.lock().unwrap().len() >= 3).await;
    settle().await;
    assert_eq!(*both.0.lock().unwrap(), [1, 2, 1]);
}

/// A candidate that waits does not collect what comes and goes.
#[tokio::test(start_paused = true)]
async fn a_standby_forgets_what_is_deleted() {
    let (server, probe) = (Server::default(), Probe::new());
    let lease = |holder| {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 100_000});
        json!({"metadata": {"name": "books"}, "spec": spec})
    };
    server.write(LEASES, lease("two"));
    let leadership = LeaderElection::new(server.client(), "default", "books")
        .start()
        .unwrap();
    let controller = Controller::new(server.maps(), Config::default()).leader_election(leadership);
    let store = controller.store();
    let mut results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| server.watches() == 1).await;
    for n in 0..1100 {
        server.put(&format!("m{n}"));
        until(|| store.len() == 1).await;
        server.delete(MAPS, &format!("m{n}"));
        until(|| store.is_empty()).await;
    }
    server.put("last");
    until(|| store.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.write(LEASES, lease(""));
    let first = results.next().await.unwrap();
    assert!(first.is_ok(), "{first:?}");
    until(|| probe.count("last") == 1).await;
}

/// K7: each failure is on the stream.
#[tokio::test]
async fn the_error_of_an_error_policy_that_panics_is_on_the_stream() {
    async fn fail(_: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, Failed> {
        Err(Failed("the reason".into()))
    }
    let server = Server::default();
    server.put("a");
    let policy = |_, _: &Failed, _| -> Action { panic!("as expected") };
    let controller = Controller::new(server.maps(), Config::default());
    let mut results = spawn(controller.run(fail, policy, Arc::new(())));
    match results.next().await.unwrap() {
        Err(Error::ReconcilerFailed(Failed(reason), _)) => assert_eq!(reason, "the reason"),
        other => panic!("{other:?}"),
    }
}

/// As `run` documents.
#[tokio::test]
async fn events_that_end_before_the_first_list_are_an_error() {
    for _ in 0..20 {
        let (store, writer) = reflector::store::<ConfigMap>();
        let events = reflector::reflector(writer, stream::iter([Ok(Event::Init)]));
        let controller = Controller::for_events(events, store);
        let results = spawn(controller.run(visit, never, Probe::new()));
        match &results.end().await[..] {
            [Err(Error::RunnerError(_))] => {}
            other => panic!("{other:?}"),
        }
    }
}

/// "Watches and reconcilers go on between two polls."
#[tokio::test]
async fn watches_go_on_while_nobody_reads() {
    let (server, probe) = (Server::default(), Probe::new());
    for n in 0..200 {
        server.put(&format!("m{n}"));
    }
    let controller = Controller::new(server.maps(), Config::default())
        .trigger_backoff(kube_runtime::watcher::DefaultBackoff::default());
    let store = controller.store();
    let mut results = Box::pin(controller.run(visit, never, Arc::clone(&probe)));
    assert!(results.next().await.unwrap().is_ok());
    until(|| probe.begun().len() >= 129).await;
    settle().await;
    let mut last = 0;
    server.behind_the_watches(MAPS, || last = server.put("m0"));
    let seen = async {
        while version(&store, "m0") != Some(last) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let seen = tokio::time::timeout(Duration::from_secs(5), seen).await;
    assert!(seen.is_ok(), "the store is stale");
}

/// A delay that is longer than any clock.
#[tokio::test]
async fn a_requeue_may_be_far() {
    async fn far(map: Arc<ConfigMap>, probe: Arc<Probe>) -> Result<Action, Failed> {
        probe.visit(&map).await;
        Ok(Action::requeue(Duration::MAX))
    }
    let (server, probe) = (Server::default(), Probe::new());
    server.put("a");
    let controller = Controller::new(server.maps(), Config::default());
    let mut results = spawn(controller.run(far, never, Arc::clone(&probe)));
    assert!(results.next().await.unwrap().is_ok());
    settle().await;
    assert_eq!(probe.count("a"), 1);
    server.put("a");
    until(|| probe.count("a") == 2).await;
}

/// K2, K10: a lease that is lost and is back while a reconciler blocks. It holds the only worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reconciler_that_blocks_over_a_short_loss_is_not_joined_by_another() {
    type Block = (Mutex<std::sync::mpsc::Receiver<()>>, Mutex<(u32, u32, u32)>);
    async fn block(_: Arc<ConfigMap>, block: Arc<Block>) -> Result<Action, Failed> {
        let mut counts = block.1.lock().unwrap();
        counts.0 += 1;
        counts.1 += 1;
        counts.2 = counts.2.max(counts.1);
        drop(counts);
        let is_first = block.1.lock().unwrap().0 == 1;
        if is_first {
            // It blocks its task, but not the thread that may be the only one to poll timers and sockets.
            let _ = tokio::task::block_in_place(|| block.0.lock().unwrap().recv());
        }
        block.1.lock().unwrap().1 -= 1;
        Ok(Action::await_change())
    }
    let server = Server::default();
    server.put_all(&["a", "b"]);
    let milliseconds = Duration::from_millis;
    let leadership = LeaderElection::new(server.client(), "default", "books")
        .renew_deadline(milliseconds(500))
        .retry_period(milliseconds(50))
        .start()
        .unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel();
    let blocks = Arc::new((Mutex::new(blocked), Mutex::default()));
    let controller = Controller::new(server.maps(), Config::default())
        .workers(1)
        .leader_election(leadership.clone());
    let _results = spawn(controller.run_with_retries(block, Arc::clone(&blocks)));
    until(|| blocks.1.lock().unwrap().0 == 1).await;
    for _ in 0..3 {
        server.down(true);
        leadership.lost().await;
        server.down(false);
        leadership.acquired().await;
        server.put("a");
        settle().await;
        assert_eq!(blocks.1.lock().unwrap().0, 1);
    }
    // Until after the warning, which comes 5 seconds after the first loss.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(blocks.1.lock().unwrap().0, 1);
    drop(unblock);
    until(|| blocks.1.lock().unwrap().0 >= 2).await;
    settle().await;
    assert_eq!(blocks.1.lock().unwrap().2, 1);
}

/// K10: several controllers share a lease, and end by the same signal.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_last_of_several_controllers_ends_after_the_release() {
    for _ in 0..200 {
        let server = Server::default();
        server.put("a");
        let leadership = LeaderElection::new(server.client(), "default", "books")
            .start()
            .unwrap();
        let (end, _) = tokio::sync::watch::channel(false);
        let all: Vec<_> = (0..4)
            .map(|_| {
                let mut ended = end.subscribe();
                let controller = Controller::new(server.maps(), Config::default())
                    .leader_election(leadership.clone())
                    .graceful_shutdown_on(async move { _ = ended.wait_for(|end| *end).await });
                spawn(controller.run(visit, never, Probe::new()))
            })
            .collect();
        leadership.acquired().await;
        drop(leadership);
        end.send_replace(true);
        for results in all {
            results.end().await;
        }
        let lease = server.object(LEASES, "books").unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "");
    }
}
