//! A subscriber of `tracing` that panics. It is that of the whole process, so these tests have a program of their own.

mod common;

use std::fmt::Debug;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use common::{Counted, builder, cluster, is_committed, produce, run, run_batches, until};
use keyqueue_kafka::{Exhausted, Verdict};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span, subscriber};

/// Panics at these messages, as one does whose output is closed.
static AT: Mutex<[&str; 3]> = Mutex::new(["a record failed", "a batch failed as a whole", ""]);

/// One test at a time.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

struct Panics;

/// Has it panic at this message, too.
fn panic_at(message: &'static str) {
    static SET: Once = Once::new();
    SET.call_once(|| subscriber::set_global_default(Panics).expect("the first"));
    AT.lock().expect("no panic")[2] = message;
}

impl Subscriber for Panics {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "keyqueue_kafka"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Panics);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Visit for Panics {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let panics_at = *AT.lock().expect("no panic");
        let is_message = field.name() == "message";
        if is_message && panics_at.contains(&&*format!("{value:?}")) {
            panic!("the output is closed");
        }
    }
}

/// Whether there is a thread of a run.
fn has_threads() -> bool {
    let threads = fs::read_dir("/proc/self/task").expect("Linux");
    let names =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names
        .into_iter()
        .any(|name| name.starts_with("keyqueue-kafka"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn a_subscriber_that_panics_ends_the_run_and_leaves_the_group() {
    let _one = ONE.lock().await;
    // While the group waits for a reply; at any time; and in the thread that commits.
    for message in [
        "assigned",
        "a partition stalls",
        "an offset is not committed",
    ] {
        let cluster = cluster(1);
        produce(&cluster, &[(Some("a"), Some("x"))]).await;
        panic_at(message);
        let now = Arc::new(AtomicUsize::new(0));
        let of_run = Arc::clone(&now);
        let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
        if message.contains("committed") {
            cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[error]);
        }
        let builder = builder(&cluster).stalled_after(Duration::from_millis(100));
        let run = run(builder, move |_| {
            let counted = Counted::new(&of_run);
            async move {
                let _counted = counted;
                std::future::pending::<()>().await;
            }
        });
        let ended = timeout(Duration::from_secs(60) * rig::patience(), run.ended()).await;
        let error = ended.expect("the end").expect_err("a panic");
        let text = format!("{error}: {:?}", std::error::Error::source(&error));
        assert!(text.contains("the output is closed"), "{message}: {text}");
        until("what ran is cancelled", || now.load(Ordering::SeqCst) == 0).await;
        until("it has left the group", || !has_threads()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn what_fails_counts_although_a_subscriber_panics() {
    let _one = ONE.lock().await;
    panic_at("");
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("x")), (Some("b"), Some("x"))]).await;
    let builder = || builder(&cluster).retries(2).exhausted(Exhausted::Skip);
    let calls = Arc::new(AtomicUsize::new(0));
    let of_run = Arc::clone(&calls);
    let run = run(builder(), move |_| {
        of_run.fetch_add(1, Ordering::SeqCst);
        async { Verdict::<&str>::Retry("no") }
    });
    until("both are skipped", || is_committed(&run.consumer, 2)).await;
    run.end().await.expect("no error");
    assert_eq!(calls.load(Ordering::SeqCst), 6);
    // The first batch may be a record alone. The others of its key are there when it has failed.
    produce(&cluster, &[(Some("a"), Some("x")); 3]).await;
    let run = run_batches(builder(), 2, |_| async {
        sleep(Duration::from_millis(100)).await;
        Err::<(), _>("no")
    });
    until("all are skipped", || is_committed(&run.consumer, 5)).await;
    run.end().await.expect("no error");
}
