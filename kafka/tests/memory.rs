//! What a run leaves in memory: a program of its own, because it counts what is allocated.

mod common;

use std::time::Duration;

use common::{Notes, builder, cluster, fence, produce, run, until};
use rig::heap::{CountingHeap, held};
use tokio::time::sleep;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn a_run_that_ends_with_a_fatal_error_leaves_no_records() {
    let cluster = cluster(1);
    let payload = "x".repeat(200_000);
    produce(&cluster, &vec![(Some("a"), Some(payload.as_str())); 20]).await;
    drop(payload);
    let begun = Notes::default();
    let notes = begun.clone();
    let before = held();
    let builder = builder(&cluster).set("group.instance.id", "one");
    let run = run(builder, move |_| {
        notes.add("begun");
        sleep(Duration::from_secs(3600))
    });
    let status = || run.consumer.status();
    until("all are in memory", || {
        begun.len() == 1 && status().partitions[0].records == 20
    })
    .await;
    // The payloads.
    assert!(held() - before >= 4_000_000);
    fence(&cluster);
    run.ended().await.expect_err("it is fenced");
    until("nothing is left", || held() - before < 1_000_000).await;
}
