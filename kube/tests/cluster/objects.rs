//! What happens to objects that change, are deleted, and are owned.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use keyqueue_kube::{Action, Controller};
use kube_client::{Api, ResourceExt};
use kube_runtime::finalizer::{self, Event, finalizer};

use servers::until;

use crate::common::{Context, Running, SOURCES, Scene, controller, copy_of, name, selecting};

/// K2, K3: changes merge, and none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_writes_comes_into_step_with_fewer_reconciliations_than_events() {
    let Some(scene) = Scene::set("burst").await else {
        return;
    };
    // Slower than the writes.
    let context = Context::new(&scene, Duration::from_millis(50));
    let controller = controller(&scene.client, &scene.namespace).workers(4);
    let _running = Running::start(controller, &context);
    scene.create_sources(200).await;
    for value in 1..=10 {
        scene.write(0..200, value).await;
    }
    scene.in_step(200).await;
    context.witness.never_two_at_once();
    // Of the sources alone; each new value of a copy is an event, too.
    let (events, begun) = (200 + 200 * 10, context.witness.begun());
    println!("{events} events of the sources, {begun} reconciliations");
    assert!((200..events).contains(&begun), "{begun}");
}

/// K4.
#[tokio::test(flavor = "multi_thread")]
async fn an_owned_object_that_is_deleted_is_written_again() {
    let Some(scene) = Scene::set("owned").await else {
        return;
    };
    let context = Context::new(&scene, Duration::ZERO);
    let controller = controller(&scene.client, &scene.namespace);
    let _running = Running::start(controller, &context);
    scene.create_sources(20).await;
    scene.in_step(20).await;
    for index in 0..20 {
        scene.delete(&copy_of(&name(index))).await;
    }
    scene.in_step(20).await;
}

type Failure = finalizer::Error<kube_client::Error>;

/// The names of the objects that were cleaned up.
#[derive(Default)]
struct Cleaned(Mutex<BTreeSet<String>>);

async fn with_finalizer(
    api: Api<ConfigMap>,
    source: Arc<ConfigMap>,
    cleaned: Arc<Cleaned>,
) -> Result<Action, Failure> {
    finalizer(&api, "tests.example.com/cleanup", source, async |event| {
        if let Event::Cleanup(source) = event {
            cleaned.0.lock().unwrap().insert(source.name_any());
        }
        Ok(Action::await_change())
    })
    .await
}

/// K1, K3: deletions of the time before the start are in the first list.
#[tokio::test(flavor = "multi_thread")]
async fn finalizers_clean_up_what_is_deleted_while_a_controller_runs_and_while_none_does() {
    let Some(scene) = Scene::set("finalizer").await else {
        return;
    };
    let cleaned = Arc::new(Cleaned::default());
    let start = || {
        let api = scene.api();
        let run = Controller::new(scene.api(), selecting(SOURCES))
            .run(
                move |source, cleaned| with_finalizer(api.clone(), source, cleaned),
                |_, _: &Failure, _| Action::requeue(Duration::from_millis(100)),
                Arc::clone(&cleaned),
            )
            .for_each(|_| std::future::ready(()));
        tokio::spawn(run)
    };
    let left = async || scene.list(SOURCES).await.items;

    let running = start();
    scene.create_sources(20).await;
    until("all have a finalizer", async || {
        left()
            .await
            .iter()
            .all(|source| !source.finalizers().is_empty())
    })
    .await;
    for index in 0..10 {
        scene.delete(&name(index)).await;
    }
    until("the first ten are gone", async || left().await.len() == 10).await;
    running.abort();
    assert!(running.await.is_err(), "it was aborted");

    for index in 10..20 {
        scene.delete(&name(index)).await;
    }
    assert_eq!(left().await.len(), 10, "their finalizers keep them");
    let running = start();
    until("all are gone", async || left().await.is_empty()).await;
    running.abort();
    let all: BTreeSet<_> = (0..20).map(name).collect();
    assert_eq!(*cleaned.0.lock().unwrap(), all);
}
