//! The API server is killed, and a watch expires.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube_client::api::{WatchEvent, WatchParams};
use servers::{Proxy, until};
use tokio::time::sleep;

use crate::common::{COPIES, Context, Running, SOURCES, Scene, controller, copy_of, name, write};
use crate::witness::Begun;

/// K2, K3: watches fail, and changes are found in the later list.
#[tokio::test(flavor = "multi_thread")]
async fn objects_come_into_step_after_the_api_server_was_killed() {
    let Some((scene, mut plane)) = Scene::set_with_own_server("killed").await else {
        return;
    };
    let context = Context::new(&scene, Duration::from_millis(5));
    let controller = controller(&scene.client, &scene.namespace);
    let _running = Running::start(controller, &context);
    scene.create_sources(100).await;
    let writing = tokio::spawn({
        let api = scene.api();
        async move {
            let mut failed = 0;
            for value in 1..=20 {
                let mut writes = stream::iter(0..100)
                    .map(|index| {
                        let api = api.clone();
                        async move {
                            let mut failed = 0;
                            while write(api.clone(), index, value).await.is_err() {
                                failed += 1;
                                sleep(Duration::from_millis(50)).await;
                            }
                            failed
                        }
                    })
                    .buffer_unordered(8);
                while let Some(count) = writes.next().await {
                    failed += count;
                }
            }
            failed
        }
    });
    for _ in 0..2 {
        let begun = context.witness.begun();
        until("it reconciles", async || {
            context.witness.begun() > begun + 50
        })
        .await;
        plane.kill_apiserver();
        // Longer than a request, so that requests fail.
        sleep(Duration::from_millis(500)).await;
        plane.start_apiserver().await.expect("it starts again");
    }
    let failed = writing.await.expect("it ends");
    println!("{failed} writes failed in the meantime");
    assert!(failed > 0, "no write failed: it was not down");
    scene.in_step(100).await;
    context.witness.never_two_at_once();
}

/// K3, K4, K6.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_has_expired_starts_over() {
    let Some((scene, mut plane)) = Scene::set_with_own_server("expired").await else {
        return;
    };
    let proxy = Proxy::start(format!("127.0.0.1:{}", plane.port()))
        .await
        .expect("a proxy");
    let context = Context {
        client: servers::kube::client(proxy.address().port()),
        ..Arc::into_inner(Context::new(&scene, Duration::ZERO)).expect("one owner")
    };
    let context = Arc::new(context);
    let controller = controller(&context.client, &scene.namespace);
    let _running = Running::start(controller, &context);
    scene.create_sources(50).await;
    scene.in_step(50).await;
    let version = scene.list(SOURCES).await.metadata.resource_version;
    let version = version.expect("lists have one");

    proxy.stall(true);
    proxy.break_all();
    scene.write(0..40, 1).await;
    scene.delete(&copy_of(&name(45))).await;
    scene.delete(&name(49)).await;
    // It keeps no events of the time before it started.
    plane.kill_apiserver();
    plane.start_apiserver().await.expect("it starts again");
    let watch = WatchParams::default().labels(SOURCES);
    let watch = scene.api().watch(&watch, &version).await;
    let mut events = Box::pin(watch.expect("the watch itself is accepted"));
    let first = events.next().await.expect("an event");
    assert!(
        matches!(&first, Ok(WatchEvent::Error(status)) if status.code == 410),
        "{first:?}"
    );
    let begun = context.witness.record().begun.clone();
    let is_new = |begun: &Begun| begun.value.as_deref() == Some("1");
    assert!(!begun.iter().any(is_new), "the proxy is closed: {begun:?}");

    proxy.stall(false);
    // The changes are seen, and so is what has vanished.
    scene.in_step(49).await;
    // A source that was deleted in the meantime is forgotten: its copy is not written again.
    scene.delete(&copy_of(&name(49))).await;
    scene.write(0..49, 2).await;
    scene.in_step(49).await;
    assert_eq!(scene.list(COPIES).await.items.len(), 49);
}
