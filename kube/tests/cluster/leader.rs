//! Two replicas, of which one leads.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use keyqueue_kube::{LeaderElection, Leadership};
use kube_client::{Api, Client};
use servers::{Proxy, until};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::common::{COPIES, Context, Running, Scene, controller, write};
use crate::witness::Witness;

const SOURCES: usize = 50;
/// How long a reconciliation takes, if it matters not.
const SHORT: Duration = Duration::from_millis(20);
/// The end of a leader that cannot renew, and the earliest time of its successor.
const DEADLINE: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(3);

/// Must be called on a task: it starts one.
fn candidate(client: Client, namespace: &str, name: &str) -> Leadership {
    LeaderElection::new(client, namespace, "copier")
        .identity(name)
        .lease_duration(LEASE)
        .renew_deadline(DEADLINE)
        .retry_period(Duration::from_millis(300))
        .start()
        .expect("the settings are in range")
}

/// A replica that watches and reconciles with one client, and renews its lease with another.
fn replica(
    scene: &Scene,
    witness: &Arc<Witness>,
    name: &'static str,
    clients: [Client; 2],
    work: Duration,
) -> (Running, Leadership) {
    let [client, renewals] = clients;
    let leadership = candidate(renewals, &scene.namespace, name);
    let controller = controller(&client, &scene.namespace)
        .workers(8)
        .leader_election(leadership.clone());
    let context = Context {
        client,
        work,
        ..Context::of(scene, witness, name)
    };
    (Running::start(controller, &Arc::new(context)), leadership)
}

/// A replica with threads of its own, which can be killed.
fn replica_of_its_own(
    scene: &Scene,
    witness: &Arc<Witness>,
    name: &'static str,
) -> (Runtime, Running) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let running = {
        let _entered = runtime.enter();
        let clients = [(); 2].map(|()| servers::kube::client(scene.port));
        replica(scene, witness, name, clients, SHORT).0
    };
    (runtime, running)
}

/// Writes to all sources, again and again. Dropping it stops.
fn writing(scene: &Scene) -> JoinSet<()> {
    let mut writing = JoinSet::new();
    let api = scene.api();
    writing.spawn(async move {
        for value in 1.. {
            for index in 0..SOURCES {
                write(api.clone(), index, value)
                    .await
                    .expect("it can be written");
            }
        }
    });
    writing
}

/// Nothing began under the former leader after something began under its successor.
fn began_nothing_after(witness: &Witness, former: &str, successor: &str) {
    let begun = &witness.record().begun;
    let first = begun.iter().position(|begun| begun.replica == successor);
    let (before, after) = begun.split_at(first.expect("it has begun something"));
    println!(
        "{} by {former}, then {} by {successor}",
        before.len(),
        after.len()
    );
    assert!(before.iter().any(|begun| begun.replica == former));
    let late = after.iter().filter(|begun| begun.replica == former).count();
    assert_eq!(late, 0, "begun by {former} after {successor} had begun");
}

/// K2, K10.
#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_a_leader_that_is_killed_is_taken_over() {
    let Some(scene) = Scene::set("leader-killed").await else {
        return;
    };
    let witness = Arc::new(Witness::default());
    let (killed, _running) = replica_of_its_own(&scene, &witness, "a");
    scene.create_sources(SOURCES).await;
    scene.in_step(SOURCES).await;
    let clients = [(); 2].map(|()| scene.client.clone());
    let (_running, follower) = replica(&scene, &witness, "b", clients, SHORT);
    let writes = writing(&scene);
    let before = witness.begun();
    until("a works", async || witness.begun() > before + 2 * SOURCES).await;
    assert_eq!((witness.begun_by("b"), follower.is_leader()), (0, false));

    killed.shutdown_background();
    let before = witness.begun_by("b");
    until("b takes over", async || {
        witness.begun_by("b") > before + 2 * SOURCES
    })
    .await;
    drop(writes);
    scene.in_step(SOURCES).await;
    began_nothing_after(&witness, "a", "b");
    witness.never_two_at_once();
}

/// K2, K10: the leader can still watch and write: only its renewals are cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_renewals_are_cut_off_begins_nothing_after_its_lease() {
    let Some(scene) = Scene::set("leader-cut-off").await else {
        return;
    };
    let proxy = Proxy::start(format!("127.0.0.1:{}", scene.port))
        .await
        .expect("a proxy");
    let witness = Arc::new(Witness::default());
    let clients = [
        scene.client.clone(),
        servers::kube::client(proxy.address().port()),
    ];
    let (running, leader) = replica(&scene, &witness, "a", clients, SHORT);
    scene.create_sources(SOURCES).await;
    scene.in_step(SOURCES).await;
    let clients = [(); 2].map(|()| scene.client.clone());
    let (running_b, follower) = replica(&scene, &witness, "b", clients, SHORT);
    let writes = writing(&scene);
    let before = witness.begun();
    until("a works", async || witness.begun() > before + 2 * SOURCES).await;
    assert!(leader.is_leader() && !follower.is_leader());

    proxy.stall(true);
    until("b takes over", async || witness.begun_by("b") > 2 * SOURCES).await;
    assert!(follower.is_leader() && !leader.is_leader());
    proxy.stall(false);
    let before = witness.begun();
    until("b goes on", async || witness.begun() > before + 2 * SOURCES).await;
    drop(writes);
    scene.in_step(SOURCES).await;
    began_nothing_after(&witness, "a", "b");
    witness.never_two_at_once();

    // Its queue was kept: it goes on when it leads again.
    let by_a = witness.begun_by("a");
    running_b.abort().await;
    follower.release().await;
    until("a leads again", async || leader.is_leader()).await;
    scene.write(0..SOURCES, 0).await;
    scene.in_step(SOURCES).await;
    assert!(witness.begun_by("a") >= by_a + SOURCES);
    witness.never_two_at_once();
    drop(running);
}

/// K10, K11: what runs finishes, then the lease is released.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_shuts_down_finishes_what_runs_and_hands_over() {
    let Some(scene) = Scene::set("leader-ends").await else {
        return;
    };
    let witness = Arc::new(Witness::default());
    let leadership = candidate(scene.client.clone(), &scene.namespace, "a");
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let controller = controller(&scene.client, &scene.namespace)
        .workers(8)
        .leader_election(leadership)
        .graceful_shutdown_on(async move { stopped.notified().await });
    let context = Context::of(&scene, &witness, "a");
    let running = Running::start(controller, &Arc::new(context));
    scene.create_sources(SOURCES).await;
    scene.in_step(SOURCES).await;
    let writes = writing(&scene);
    let clients = [(); 2].map(|()| scene.client.clone());
    let (_running, _) = replica(&scene, &witness, "b", clients, SHORT);
    until("several run", async || witness.record().running.len() > 2).await;

    stop.notify_one();
    running.ended().await;
    let leases = Api::<Lease>::namespaced(scene.client.clone(), &scene.namespace);
    let lease = leases.get("copier").await.expect("it is there");
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    assert_ne!(holder.as_deref(), Some("a"), "it is released");
    until("b takes over", async || witness.begun_by("b") > 2 * SOURCES).await;
    drop(writes);
    scene.in_step(SOURCES).await;
    assert_eq!(witness.record().cancelled, 0);
    began_nothing_after(&witness, "a", "b");
    witness.never_two_at_once();
}

/// K2, K10: a reconciliation that takes longer than the time until another replica may lead.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_when_the_lease_is_lost_is_cancelled_and_done_by_the_next_leader() {
    const COUNT: usize = 8;
    const LONG: Duration = Duration::from_secs(4);
    let Some(scene) = Scene::set("leader-long").await else {
        return;
    };
    let proxy = Proxy::start(format!("127.0.0.1:{}", scene.port))
        .await
        .expect("a proxy");
    let witness = Arc::new(Witness::default());
    let clients = [
        scene.client.clone(),
        servers::kube::client(proxy.address().port()),
    ];
    let (_running_a, leader) = replica(&scene, &witness, "a", clients, LONG);
    leader.acquired().await;
    scene.create_sources(COUNT).await;
    let clients = [(); 2].map(|()| scene.client.clone());
    let (_running_b, _) = replica(&scene, &witness, "b", clients, LONG);
    until("a has done all once", async || {
        scene.list(COPIES).await.items.len() == COUNT
    })
    .await;
    proxy.stall(true);
    // So that something runs all the time.
    let mut values = 1..;
    while leader.is_leader() {
        scene.write(0..COUNT, values.next().expect("no end")).await;
    }
    scene.in_step(COUNT).await;
    assert!(witness.record().cancelled > 0, "something ran at the loss");
    began_nothing_after(&witness, "a", "b");
    witness.never_two_at_once();
}
