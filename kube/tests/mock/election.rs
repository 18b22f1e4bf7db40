//! Leader election. The clock of the runtime is paused: it jumps to the next deadline when nothing
//! is ready.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use keyqueue_kube::{Controller, LeaderElection, Leadership};
use kube_runtime::reflector::ObjectRef;
use kube_runtime::watcher::Config;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::probe::{Blocked, Probe, block, never, settle, spawn, until, version, visit};
use crate::server::{LEASES, Server};

fn candidate(server: &Server, identity: &str) -> Leadership {
    let election = LeaderElection::new(server.client(), "default", "books");
    election.identity(identity).start().unwrap()
}

fn holder(server: &Server) -> Option<String> {
    let lease = server.object(LEASES, "books")?;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

/// K10
#[tokio::test(start_paused = true)]
async fn a_lost_lease_cancels_what_runs_and_keeps_the_queue() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put_all(&["a", "b", "c"]);
    let leadership = candidate(&server, "one");
    let controller = Controller::new(server.maps(), Config::default())
        .workers(2)
        .leader_election(leadership.clone());
    let store = controller.store();
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running().len() == 2).await;
    // The API server cannot be reached. The open watches go on.
    server.down(true);
    leadership.lost().await;
    until(|| probe.running().is_empty()).await;
    let changed = server.put("d");
    until(|| version(&store, "d") == Some(changed)).await;
    settle().await;
    assert_eq!(probe.begun().len(), 2); // nothing begins without the lease
    server.down(false);
    probe.open();
    until(|| {
        ["a", "b", "c", "d"]
            .iter()
            .all(|name| probe.count(name) >= 1)
    })
    .await;
    settle().await;
    // The two that were cancelled have begun twice, the others once.
    assert_eq!(probe.begun().len(), 6);
}

/// K10: another candidate may see the lease as soon as it is written.
#[tokio::test(start_paused = true)]
async fn the_lease_counts_from_its_request_not_from_the_reply() {
    let server = Server::default();
    server.reply_after(Duration::from_secs(4));
    let start = Instant::now();
    let leadership = candidate(&server, "one");
    leadership.acquired().await;
    assert_eq!(start.elapsed(), Duration::from_secs(4));
    server.down(true);
    leadership.lost().await;
    assert_eq!(start.elapsed(), Duration::from_secs(10)); // the renew deadline
}

/// K10
#[tokio::test(start_paused = true)]
async fn a_lease_that_another_has_taken_is_lost() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put("a");
    let leadership = candidate(&server, "one");
    let controller =
        Controller::new(server.maps(), Config::default()).leader_election(leadership.clone());
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running() == ["a"]).await;
    let spec = json!({"holderIdentity": "two", "leaseDurationSeconds": 15});
    server.write(LEASES, json!({"metadata": {"name": "books"}, "spec": spec}));
    leadership.lost().await;
    until(|| probe.running().is_empty()).await;
    assert!(!leadership.is_leader());
    // "two" never renews it.
    leadership.acquired().await;
    until(|| probe.running() == ["a"]).await;
    assert_eq!(holder(&server).unwrap(), "one");
}

/// K7, K10: what another leader has left undone is in no other queue.
#[tokio::test(start_paused = true)]
async fn all_objects_are_reconciled_again_if_another_may_have_led() {
    let (server, probe) = (Server::default(), Probe::new());
    server.put_all(&["a", "b"]);
    let leadership = candidate(&server, "one");
    let controller =
        Controller::new(server.maps(), Config::default()).leader_election(leadership.clone());
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.begun().len() == 2).await;
    server.down(true);
    leadership.lost().await;
    server.down(false);
    leadership.acquired().await;
    settle().await;
    assert_eq!(probe.begun().len(), 2); // nobody else has led
    // The write of the candidate is applied, and its reply is lost.
    for reply in [Duration::ZERO, Duration::from_secs(6)] {
        let before = probe.begun().len();
        let spec = json!({"holderIdentity": "two", "leaseDurationSeconds": 15});
        server.write(LEASES, json!({"metadata": {"name": "books"}, "spec": spec}));
        leadership.lost().await;
        server.reply_after(reply);
        until(|| holder(&server).unwrap() == "one").await;
        server.reply_after(Duration::ZERO);
        until(|| probe.begun().len() == before + 2).await;
        settle().await;
        assert_eq!(probe.begun().len(), before + 2);
    }
}

/// K10
#[tokio::test(start_paused = true)]
async fn another_candidate_takes_over_at_the_end_of_the_first() {
    let (server, first, second) = (Server::default(), Probe::closed(), Probe::closed());
    server.put("a");
    let (end, ended) = oneshot::channel::<()>();
    let controller = Controller::new(server.maps(), Config::default())
        .leader_election(candidate(&server, "one"))
        .graceful_shutdown_on(async { _ = ended.await });
    let results = spawn(controller.run(visit, never, Arc::clone(&first)));
    until(|| first.running() == ["a"]).await;
    let standby = Controller::new(server.maps(), Config::default())
        .leader_election(candidate(&server, "two"));
    let _standby = spawn(standby.run(visit, never, Arc::clone(&second)));
    until(|| server.watches() == 2).await;
    // Long enough for a lease that is not renewed.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(second.begun().is_empty());
    end.send(()).unwrap();
    settle().await;
    assert_eq!(holder(&server).unwrap(), "one"); // as long as something runs
    first.open();
    assert_eq!(results.end().await.len(), 1);
    assert_eq!(holder(&server).unwrap(), ""); // released before the stream ends
    until(|| second.running() == ["a"]).await;
}

/// K10
#[tokio::test(start_paused = true)]
async fn the_stream_ends_after_the_release() {
    let server = Server::default();
    server.put("a");
    let (end, ended) = oneshot::channel::<()>();
    let controller = Controller::new(server.maps(), Config::default())
        .leader_election(candidate(&server, "one"))
        .graceful_shutdown_on(async { _ = ended.await });
    let mut results = spawn(controller.run(visit, never, Probe::new()));
    assert!(results.next().await.is_some());
    server.down(true); // the release waits
    end.send(()).unwrap();
    let early = tokio::time::timeout(Duration::from_secs(1), results.next()).await;
    assert!(early.is_err());
    server.down(false);
    assert!(results.next().await.is_none());
    assert_eq!(holder(&server).unwrap(), "");
}

/// K10: a reconciler that blocks its thread is not cancelled when the stream is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_lease_of_a_dropped_stream_is_released_after_its_last_reconciliation() {
    let server = Server::default();
    server.put("a");
    let (unblock, blocked) = Blocked::new();
    let controller = Controller::new(server.maps(), Config::default())
        .leader_election(candidate(&server, "one"));
    let results = spawn(controller.run_with_retries(block, Arc::clone(&blocked)));
    until(|| blocked.has_begun()).await;
    results.abort().await;
    until(|| server.watches() == 0).await;
    settle().await;
    assert_eq!(holder(&server).unwrap(), "one");
    drop(unblock);
    until(|| holder(&server).unwrap().is_empty()).await;
}

/// K10: what watches the lease may be late, here because it is in a mapper that blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_begins_after_the_lease_even_if_its_loss_is_noticed_late() {
    let (server, probe) = (Server::default(), Probe::closed());
    server.put_all(&["a", "b"]);
    let milliseconds = Duration::from_millis;
    let leadership = LeaderElection::new(server.client(), "default", "books")
        .renew_deadline(milliseconds(500))
        .retry_period(milliseconds(50))
        .start()
        .unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let is_blocked = Arc::new(AtomicBool::new(false));
    let blocks = Arc::clone(&is_blocked);
    let mapper = move |_: Secret| -> [ObjectRef<ConfigMap>; 0] {
        // Ordering: Relaxed; only this value matters.
        blocks.store(true, Ordering::Relaxed);
        // It ends when the test does.
        let _ = blocked.lock().unwrap().recv();
        []
    };
    let controller = Controller::new(server.maps(), Config::default())
        .watches(server.secrets(), Config::default(), mapper)
        .workers(1)
        .leader_election(leadership.clone());
    let _results = spawn(controller.run(visit, never, Arc::clone(&probe)));
    until(|| probe.running().len() == 1).await;
    server.put_owned("s", "a");
    // Ordering: Relaxed; only this value matters.
    until(|| is_blocked.load(Ordering::Relaxed)).await;
    server.down(true);
    leadership.lost().await;
    probe.open(); // The first reconciliation ends, and the worker takes the next key.
    until(|| probe.running().is_empty()).await;
    settle().await;
    assert_eq!(probe.begun().len(), 1);
    server.down(false);
    drop(unblock);
    until(|| probe.begun().len() >= 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_by_its_last_handle() {
    let server = Server::default();
    let leadership = candidate(&server, "one");
    leadership.acquired().await;
    let other = leadership.clone();
    drop(leadership);
    settle().await;
    assert_eq!(holder(&server).unwrap(), "one");
    other.release().await;
    assert_eq!(holder(&server).unwrap(), "");
}

/// K10: the server applies a renewal that is in flight, and then the release.
#[tokio::test(start_paused = true)]
async fn a_lease_is_released_while_it_is_renewed() {
    let server = Server::default();
    let leadership = candidate(&server, "one");
    leadership.acquired().await;
    server.apply_after(Duration::from_secs(1));
    // The renewal is sent after 2 s.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    leadership.release().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(holder(&server).unwrap(), "");
}

/// K10: so is one whose first write takes longer than the candidate waits for one that it knows nothing of.
#[tokio::test(start_paused = true)]
async fn a_lease_is_released_while_it_is_acquired() {
    let server = Server::default();
    server.apply_after(Duration::from_secs(4));
    let leadership = candidate(&server, "one");
    tokio::time::sleep(Duration::from_millis(500)).await;
    leadership.release().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(holder(&server).unwrap(), "");
}

/// K10: somebody else writes the lease in between.
#[tokio::test(start_paused = true)]
async fn a_lease_that_conflicts_at_its_release_is_released() {
    let server = Server::default();
    let leadership = candidate(&server, "one");
    leadership.acquired().await;
    server.apply_after(Duration::from_secs(1));
    let (began, release) = (Instant::now(), tokio::spawn(leadership.release()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.write(LEASES, server.object(LEASES, "books").unwrap());
    release.await.unwrap();
    assert_eq!(holder(&server).unwrap(), "");
    // Two writes, and a pause between them.
    assert!(began.elapsed() > Duration::from_millis(2050));
}

/// K10: the read of the release fails, or its write.
#[tokio::test(start_paused = true)]
async fn a_lease_whose_release_fails_is_released_by_another_try() {
    for is_read in [true, false] {
        let server = Server::default();
        let leadership = candidate(&server, "one");
        leadership.acquired().await;
        server.apply_after(Duration::from_secs(1));
        if is_read {
            server.fail(1);
        }
        let release = tokio::spawn(leadership.release());
        tokio::time::sleep(Duration::from_millis(500)).await;
        if !is_read {
            server.fail(1);
        }
        release.await.unwrap();
        assert_eq!(holder(&server).unwrap(), "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_holds_nothing_ends_although_its_requests_fail() {
    let server = Server::default();
    server.fail(usize::MAX);
    let began = Instant::now();
    candidate(&server, "one").release().await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// K10: its role was deleted with it.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_is_not_tried_again() {
    let server = Server::default();
    let leadership = candidate(&server, "one");
    leadership.acquired().await;
    server.forbid();
    let began = Instant::now();
    leadership.release().await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// K10: the candidate has not reached the server for an hour.
#[tokio::test(start_paused = true)]
async fn a_lease_that_has_run_out_is_not_released_again_and_again() {
    for is_renewing in [false, true] {
        let server = Server::default();
        let leadership = candidate(&server, "one");
        leadership.acquired().await;
        if is_renewing {
            // The server says nothing of the renewal that is sent after 2 s.
            server.apply_after(Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(2500)).await;
        }
        server.fail(usize::MAX);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let began = Instant::now();
        leadership.release().await;
        assert!(began.elapsed() < Duration::from_secs(1));
    }
}

/// K10: the lease may be held, and its release goes on failing.
#[tokio::test(start_paused = true)]
async fn a_release_that_goes_on_failing_ends() {
    let server = Server::default();
    let leadership = candidate(&server, "one");
    leadership.acquired().await;
    server.fail(usize::MAX);
    // The renew deadline.
    let ended = tokio::time::timeout(Duration::from_secs(10), leadership.release());
    assert!(ended.await.is_ok());
}

/// K10: the server applies the first write after the candidate has given it up.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_taken_late_is_released() {
    let server = Server::default();
    server.apply_after(Duration::from_secs(6));
    let release = tokio::spawn(candidate(&server, "one").release());
    tokio::time::sleep(Duration::from_millis(5500)).await;
    assert!(server.object(LEASES, "books").is_none());
    server.apply_after(Duration::ZERO);
    release.await.unwrap();
    assert_eq!(holder(&server).unwrap(), "");
}

#[tokio::test]
async fn contradictory_settings_are_named() {
    let server = Server::default();
    let election = || LeaderElection::new(server.client(), "default", "books");
    let seconds = Duration::from_secs;
    for (field, election) in [
        ("lease_duration", election().lease_duration(seconds(10))),
        ("lease_duration", election().lease_duration(Duration::ZERO)),
        ("renew_deadline", election().retry_period(seconds(9))),
        (
            "renew_deadline",
            election()
                .renew_deadline(Duration::from_millis(99))
                .retry_period(Duration::from_millis(10)),
        ),
        ("retry_period", election().retry_period(Duration::ZERO)),
        ("identity", election().identity("")),
        ("name", LeaderElection::new(server.client(), "default", "")),
        (
            "namespace",
            LeaderElection::new(server.client(), "", "books"),
        ),
    ] {
        assert_eq!(election.start().unwrap_err().field(), field);
    }
}
