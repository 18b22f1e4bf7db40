//! The series: in a process of its own, as its recorder is that of all.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{builder, cluster, produce, run, text, until};
use keyqueue_kafka::Record;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    set_global_recorder,
};

/// Counters by name.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Sums {
    fn of(&self, name: &str) -> Arc<AtomicU64> {
        let sums = &mut self.0.lock().expect("no panic");
        Arc::clone(sums.entry(name.to_owned()).or_default())
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key.name()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key.name()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn what_is_counted_last_is_in_the_series_when_the_run_ends() {
    let sums = Sums::default();
    assert!(set_global_recorder(sums.clone()).is_ok());
    let cluster = cluster(1);
    let keys = ["good", "bad", "bad"];
    produce(&cluster, &keys.map(|key| (Some(key), Some("x")))).await;
    // The series do not wait for a commit.
    let builder = builder(&cluster).commit_every(Duration::from_secs(3600));
    let run = run(builder, |record: Record| {
        let result = if text(record.key()) == "bad" {
            Err("no")
        } else {
            Ok(())
        };
        async move { result }
    });
    let finished = || sums.of("keyqueue_kafka_finished_total");
    until("the good one", || finished().load(Ordering::SeqCst) == 1).await;
    run.end().await.expect("no error");
    let counted = ["finished", "discarded"].map(|name| {
        let sum = sums.of(&format!("keyqueue_kafka_{name}_total"));
        sum.load(Ordering::SeqCst)
    });
    assert_eq!(counted, [1, 2]);
    // The offsets stay, as those of a partition that others have.
    let shown = ["base_offset", "committed_offset", "records", "failing"].map(|name| {
        let value = sums.of(&format!("keyqueue_kafka_{name}"));
        f64::from_bits(value.load(Ordering::SeqCst))
    });
    assert_eq!(shown, [1.0, 1.0, 0.0, 0.0]);
}
