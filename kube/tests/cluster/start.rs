//! A controller starts where there are many objects.

use std::time::Duration;

use crate::common::{Context, Running, Scene, controller, eventually, name, write};

/// K1, K5.
#[tokio::test(flavor = "multi_thread")]
async fn an_urgent_change_is_reconciled_before_the_initial_list_is_worked_off() {
    const COUNT: usize = 2000;
    let Some(scene) = Scene::set("start").await else {
        return;
    };
    scene.create_sources(COUNT).await;
    let context = Context::new(&scene, Duration::from_millis(5));
    let witness = &context.witness;
    let controller = controller(&scene.client, &scene.namespace).workers(4);
    let _running = Running::start(controller, &context);
    eventually("a tenth is reconciled", async || {
        witness.begun() >= COUNT / 10
    })
    .await;
    let waits = |index: &usize| {
        let name = name(*index);
        witness.record().begun.iter().all(|begun| begun.key != name)
    };
    let urgent = (0..COUNT).rfind(waits).expect("most of them wait");
    write(scene.api(), urgent, 1).await.expect("it is there");
    let urgent = name(urgent);
    eventually("it is reconciled", async || {
        let record = witness.record();
        let urgent = |begun: &&crate::witness::Begun| begun.key == urgent;
        record.begun.iter().rfind(urgent).is_some()
    })
    .await;
    let record = witness.record().begun.clone();
    let position = record.iter().position(|begun| begun.key == urgent);
    let position = position.expect("it was reconciled");
    assert_eq!(record[position].value.as_deref(), Some("1"));
    println!("reconciliation {position} of {COUNT} objects");
    assert!(position < COUNT / 2, "half of the list came first");
    scene.in_step(COUNT).await;
    witness.never_two_at_once();
}
