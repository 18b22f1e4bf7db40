//! What runs when a partition is read again, because a record came out of order: on librdkafka's mock cluster.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    Cluster, Counted, Gate, Knows, Notes, Run, builder, cluster, produce_to, run, run_batches,
    text, until,
};
use keyqueue_kafka::{Doing, Outcome, Record, Verdict};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::sleep;

/// The handlers of a partition.
#[derive(Clone, Default)]
struct Handlers {
    begun: Notes,
    gate: Gate,
    now: [Arc<AtomicUsize>; 2],
    most: Arc<AtomicUsize>,
    /// The first of a partition is tried again, and that of the other one is given up.
    fails: Arc<AtomicBool>,
    limiter: Knows,
}

impl Handlers {
    /// Runs members whose handlers wait.
    fn run(&self, cluster: &Cluster) -> Run {
        let handlers = self.clone();
        let builder = builder(cluster).backoff(self.limiter.clone());
        run(builder.dead_letters("dead"), move |record: Record| {
            let handlers = handlers.clone();
            async move {
                let partition = record.partition();
                let now = &handlers.now[partition as usize];
                let _counted = Counted::new(now);
                let count = now.load(Ordering::SeqCst);
                handlers.most.fetch_max(count, Ordering::SeqCst);
                handlers.begun.add(partition.to_string());
                handlers.gate.pass().await;
                let of_all = handlers.begun.all();
                let of_this = of_all.iter().filter(|note| **note == partition.to_string());
                match handlers.fails.load(Ordering::SeqCst) && of_this.count() == 1 {
                    true if partition == 0 => Verdict::Ok(Outcome::RequeueRateLimited),
                    true => Verdict::GiveUp("no"),
                    false => Verdict::Ok(Outcome::Done),
                }
            }
        })
    }
}

/// Runs a member whose handlers wait, and has its partitions read again meanwhile.
async fn read_again(handlers: &Handlers, partitions: i32) -> (Cluster, Run) {
    let cluster = cluster(partitions);
    for partition in 0..partitions {
        produce_to(&cluster, partition, &[(Some("a"), Some("x"))]).await;
    }
    let run = handlers.run(&cluster);
    let all = partitions as usize;
    until("they run", || handlers.begun.len() == all).await;
    // The client begins at the start of the log again.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
    cluster.request_errors(RDKafkaApiKey::Fetch, &[error]);
    until("what came again waits", || {
        let status = run.consumer.status().partitions;
        let mut oldest = status.iter().filter_map(|of| of.oldest.as_ref());
        status.len() == all && oldest.all(|oldest| oldest.doing == Doing::Waiting)
    })
    .await;
    (cluster, run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R6
async fn what_runs_when_a_partition_is_read_again_has_ended_when_another_member_begins() {
    let handlers = Handlers::default();
    let (cluster, first) = read_again(&handlers, 2).await;
    let second = handlers.run(&cluster);
    let of_first = || first.consumer.status().partitions;
    until("one is wanted back", || {
        of_first().len() == 1 || of_first().iter().any(|of| of.is_leaving)
    })
    .await;
    sleep(Duration::from_millis(500)).await;
    // Not before its handler has ended.
    assert_eq!(of_first().len(), 2);
    handlers.gate.open();
    until("each is repeated", || handlers.begun.len() == 4).await;
    assert_eq!(handlers.most.load(Ordering::SeqCst), 1);
    for run in [first, second] {
        run.end().await.expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn what_runs_when_a_partition_is_read_again_is_cancelled_with_its_assignment() {
    let handlers = Handlers::default();
    let (cluster, run) = read_again(&handlers, 1).await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
    cluster.request_errors(RDKafkaApiKey::Heartbeat, &[error]);
    until("it is repeated", || handlers.begun.len() == 2).await;
    assert_eq!(handlers.most.load(Ordering::SeqCst), 1);
    run.drop_future();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4, R5
async fn what_fails_after_its_partition_is_read_again_has_not_failed() {
    let handlers = Handlers::default();
    handlers.fails.store(true, Ordering::SeqCst);
    let (_cluster, run) = read_again(&handlers, 2).await;
    handlers.gate.open();
    until("each is repeated", || run.consumer.status().finished == 2).await;
    assert_eq!(handlers.limiter.len(), 0);
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.dead_letters), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2
async fn what_failed_in_a_batch_before_its_partition_is_read_again_delays_no_record() {
    let cluster = cluster(1);
    produce_to(
        &cluster,
        0,
        &[(Some("a"), Some("x")), (Some("b"), Some("x"))],
    )
    .await;
    let handlers = Handlers::default();
    let settings = builder(&cluster).concurrency(1);
    let settings = settings.linger(Duration::from_millis(200));
    let of_run = handlers.clone();
    let run = run_batches(settings, 2, move |records| {
        let handlers = of_run.clone();
        async move {
            if handlers.gate.is_open() {
                return vec![Verdict::Ok(Outcome::Done); records.len()];
            }
            let keys: Vec<_> = records.iter().map(|of| text(of.key())).collect();
            handlers.begun.add(keys.concat());
            match keys.concat().as_str() {
                // As a whole. Then each is alone.
                "ab" => Vec::new(),
                "a" => vec![Verdict::RetryAfter("no", Duration::from_secs(3600))],
                _ => {
                    handlers.gate.pass().await;
                    vec![Verdict::Ok(Outcome::Done)]
                }
            }
        }
    });
    until("b runs", || handlers.begun.len() == 3).await;
    assert_eq!(handlers.begun.all(), ["ab", "a", "b"]);
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
    cluster.request_errors(RDKafkaApiKey::Fetch, &[error]);
    let status = || run.consumer.status();
    until("both came again", || {
        let partition = &status().partitions[0];
        partition.records == 2 && partition.failing == 0
    })
    .await;
    handlers.gate.open();
    until("both are finished", || status().finished >= 2).await;
    until("all is", || status().partitions[0].records == 0).await;
    let ended = run.end().await.expect("no error");
    assert_eq!(ended.left, 0);
}
