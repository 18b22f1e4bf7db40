//! What a run leaves in memory: a program of its own, because it counts what is allocated.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Notes, builder, cluster, produce, run, until};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::sleep;

/// Counts the bytes of large allocations, as the payloads are.
struct Counting;

static LARGE: AtomicUsize = AtomicUsize::new(0);

fn large(layout: Layout) -> usize {
    if layout.size() >= 100_000 {
        layout.size()
    } else {
        0
    }
}

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGE.fetch_add(large(layout), Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LARGE.fetch_sub(large(layout), Ordering::Relaxed);
        // SAFETY: as of the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn a_run_that_ends_with_a_fatal_error_leaves_no_records() {
    let cluster = cluster(1);
    let payload = "x".repeat(200_000);
    produce(&cluster, &vec![(Some("a"), Some(payload.as_str())); 20]).await;
    drop(payload);
    let begun = Notes::default();
    let notes = begun.clone();
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
    assert!(LARGE.load(Ordering::Relaxed) >= 4_000_000);
    cluster.request_errors(
        RDKafkaApiKey::Heartbeat,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID],
    );
    run.ended().await.expect_err("it is fenced");
    until("nothing is left", || {
        LARGE.load(Ordering::Relaxed) < 200_000
    })
    .await;
}
