//! A controller starts where there are many objects.

use std::collections::HashSet;
use std::time::Duration;

use servers::until;

use crate::common::{Context, Running, Scene, controller, name};

/// K1, K5.
#[tokio::test(flavor = "multi_thread")]
async fn urgent_changes_are_reconciled_before_the_initial_list_is_worked_off() {
    const COUNT: usize = 2000;
    let Some(scene) = Scene::set("start").await else {
        return;
    };
    scene.create_sources(COUNT).await;
    let context = Context::new(&scene, Duration::from_millis(5));
    let witness = &context.witness;
    let controller = controller(&scene.client, &scene.namespace).workers(4);
    let _running = Running::start(controller, &context);
    until("a tenth is reconciled", async || {
        witness.begun() >= COUNT / 10
    })
    .await;
    let visited = || -> HashSet<String> {
        let record = witness.record();
        record.begun.iter().map(|begun| begun.key.clone()).collect()
    };
    let before = visited();
    let waits = |index: &usize| !before.contains(&name(*index));
    // Ten: by chance a single one may be early in the list.
    let urgent: Vec<_> = (0..COUNT).filter(waits).take(10).collect();
    scene.write(urgent.iter().copied(), 1).await;
    until("they are reconciled", async || {
        let visited = visited();
        urgent.iter().all(|index| visited.contains(&name(*index)))
    })
    .await;
    println!("{} of {COUNT} came first", visited().len());
    assert!(visited().len() < COUNT / 2, "half of the list came first");
    scene.in_step(COUNT).await;
    witness.never_two_at_once();
}
