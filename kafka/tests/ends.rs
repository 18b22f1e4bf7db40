//! How runs end, and commits that fail: on librdkafka's mock cluster.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{
    Counted, Gate, Notes, builder, cluster, coordinate, fence, has_partitions, is_committed,
    is_finished, is_leaving, produce, run, text, two_brokers, until,
};
use keyqueue_kafka::{Consumer, Error, Exhausted, Metadata, Record, Room};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn a_fatal_error_ends_the_run_and_what_runs_and_commits_nothing() {
    let cluster = cluster(1);
    let records: Vec<_> = (0..100).map(|_| (None, Some("x"))).collect();
    produce(&cluster, &records).await;
    let (now, begun) = (Arc::new(AtomicUsize::new(0)), Notes::default());
    let (of_run, notes) = (Arc::clone(&now), begun.clone());
    let builder = builder(&cluster)
        .concurrency(10)
        .set("group.instance.id", "one")
        .set("session.timeout.ms", "60000");
    // It has committed that it is there. After that only the end of the run would commit: the session is long.
    let run = run(
        builder.commit_every(Duration::from_secs(3600)),
        move |record| {
            let (counted, notes) = (Counted::new(&of_run), notes.clone());
            async move {
                let _counted = counted;
                notes.add("begun");
                if record.offset() > 0 {
                    sleep(Duration::from_secs(3600)).await;
                }
            }
        },
    );
    until("ten run", || begun.len() == 11).await;
    fence(&cluster);
    let error = run.ended().await.expect_err("it is fenced");
    assert!(
        matches!(&error, Error::Fatal { code, .. } if code == "FencedInstanceId"),
        "{error}"
    );
    until("what ran is cancelled", || now.load(Ordering::SeqCst) == 0).await;
    assert_eq!(begun.len(), 11);
    // Another one would begin at the start.
    let mut list = TopicPartitionList::new();
    list.add_partition("topic", 0);
    let mut other = ClientConfig::new();
    other.set("bootstrap.servers", cluster.bootstrap_servers());
    let other: BaseConsumer = other.set("group.id", "group").create().expect("a client");
    let committed = other.committed_offsets(list, Duration::from_secs(10));
    let committed = committed.expect("a reply");
    assert_eq!(committed.elements()[0].offset(), Offset::Offset(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn an_assignment_that_is_lost_while_the_run_ends_does_not_hold_up_the_end() {
    let cluster = cluster(1);
    produce(&cluster, &[(None, Some("x"))]).await;
    let begun = Notes::default();
    let notes = begun.clone();
    let run = run(builder(&cluster), move |_| {
        notes.add("begun");
        sleep(Duration::from_secs(3600))
    });
    until("it runs", || begun.len() == 1).await;
    let consumer = run.consumer.clone();
    let (began, mut ended) = (Instant::now(), tokio::spawn(run.end()));
    until("the end has begun", || is_leaving(&consumer)).await;
    // The group wants the partition back, which nobody but the end replies to.
    cluster.request_errors(
        RDKafkaApiKey::Heartbeat,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID],
    );
    until("the end", || ended.is_finished()).await;
    let ended = (&mut ended).await.expect("no panic").expect("no error");
    assert!(ended.is_lost, "{ended}");
    let left = (ended.finished, ended.cancelled, ended.left);
    assert_eq!(left, (0, 1, 1));
    // After this time a run leaves a client that does not leave its group behind.
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1, R6
async fn a_commit_that_fails_is_seen_and_tried_again() {
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let run = run(builder(&cluster), |_| async {});
    until("the first is committed", || is_committed(&run.consumer, 1)).await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[error; 3]);
    produce(&cluster, &[(Some("b"), Some("x"))]).await;
    until("the second, too", || is_committed(&run.consumer, 2)).await;
    assert_eq!(run.consumer.status().commit_errors, 3);
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.uncommitted), (2, 0));
    let run = common::run(builder(&cluster), |_| async {
        Err::<(), _>("nothing is left")
    });
    until("it is assigned", || has_partitions(&run.consumer)).await;
    sleep(Duration::from_millis(200)).await;
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.left), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1, R6
async fn a_coordinator_that_moves_gets_what_follows() {
    let cluster = two_brokers();
    cluster.create_topic("topic", 1, 2).expect("a topic");
    let run = run(builder(&cluster), |_| async {});
    for (coordinator, count) in [(2, 1), (1, 2), (2, 3)] {
        produce(&cluster, &[(Some("a"), Some("x"))]).await;
        until("it is committed", || is_committed(&run.consumer, count)).await;
        coordinate(&cluster, coordinator);
    }
    let ended = run.end().await.expect("no error");
    assert_eq!(
        (ended.finished, ended.uncommitted, ended.is_lost),
        (3, 0, false)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn the_last_commit_of_a_run_is_tried_again() {
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let builder = builder(&cluster).commit_every(Duration::from_secs(3600));
    let run = run(builder, |_| async {});
    until("it is finished", || run.consumer.status().finished == 1).await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[error, error]);
    let consumer = run.consumer.clone();
    let ended = run.end().await.expect("no error");
    assert_eq!(
        (
            ended.finished,
            ended.uncommitted,
            consumer.status().commit_errors
        ),
        (1, 0, 2)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn a_run_whose_future_is_dropped_cancels_and_commits() {
    let cluster = cluster(1);
    let records: Vec<_> = (0..20).map(|_| (None, Some("x"))).collect();
    produce(&cluster, &records).await;
    let (now, notes) = (Arc::new(AtomicUsize::new(0)), Notes::default());
    let of_run = Arc::clone(&now);
    let builder = builder(&cluster).commit_every(Duration::from_secs(3600));
    let run = run(builder, move |record| {
        let counted = Counted::new(&of_run);
        async move {
            let _counted = counted;
            if record.offset() >= 10 {
                std::future::pending::<()>().await;
            }
        }
    });
    until("ten are finished and ten run", || {
        run.consumer.status().finished == 10 && now.load(Ordering::SeqCst) == 10
    })
    .await;
    run.drop_future();
    until("it has ended", || !has_partitions(&run.consumer)).await;
    assert_eq!(now.load(Ordering::SeqCst), 0);
    assert!(matches!(
        run.consumer
            .run_until(async {}, Duration::ZERO, |_| async {})
            .await,
        Err(Error::HasRun)
    ));
    let of_run = notes.clone();
    let second = common::run(common::builder(&cluster), move |record| {
        of_run.add(record.offset().to_string());
        async {}
    });
    until("the rest", || notes.len() == 10).await;
    assert_eq!(second.end().await.expect("no error").finished, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn a_revocation_cancels_what_takes_longer_than_its_limit() {
    let cluster = cluster(2);
    let records: Vec<_> = (0..10).map(|_| (None, Some("x"))).collect();
    produce(&cluster, &records).await;
    let now = Arc::new(AtomicUsize::new(0));
    let of_run = Arc::clone(&now);
    let range =
        |builder: keyqueue_kafka::Builder| builder.set("partition.assignment.strategy", "range");
    let builder = range(builder(&cluster)).revoke_within(Duration::from_millis(50));
    let first = run(builder, move |_| {
        let counted = Counted::new(&of_run);
        async move {
            let _counted = counted;
            std::future::pending::<()>().await;
        }
    });
    until("ten run", || now.load(Ordering::SeqCst) == 10).await;
    let second = run(range(common::builder(&cluster)), |_| async {});
    until("the second one has a partition", || {
        second.consumer.status().partitions.len() == 1
    })
    .await;
    let ended = first.end();
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
    assert!(ended.expect("it ends").expect("no error").cancelled >= 10);
    second.end().await.expect("no error");
}

#[test]
fn settings_that_are_wrong_are_named() {
    let builder = || Consumer::builder("127.0.0.1:1", "group").topics(["topic"]);
    let error =
        |builder: keyqueue_kafka::Builder| builder.build().expect_err("it is wrong").to_string();
    for (builder, text) in [
        (
            Consumer::builder("127.0.0.1:1", "group"),
            "topics = \"\": at least one name",
        ),
        (
            Consumer::builder("127.0.0.1:1", "").topics(["t"]),
            "group = \"\": a name",
        ),
        (
            builder().concurrency(70_000),
            "concurrency = \"70000\": from 1 to 65536",
        ),
        (
            builder().room(Room::records(0)),
            "room.records = \"0\": at least 1",
        ),
        (
            builder().room(Room::records(1).bytes(0)),
            "room.bytes = \"0\": at least 1",
        ),
        (
            builder().room(Room::records(10).of_partition(11)),
            "room.of_partition = \"11\": from 1 to room.records",
        ),
        (
            builder().topics(["orders", "orders"]),
            "topics = \"orders,orders\": at least one name, none of them empty, none twice",
        ),
        (
            builder().commit_every(Duration::ZERO),
            "commit_every = \"0ns\": at least 1 ms",
        ),
        (
            builder().brokers_session(Duration::from_millis(999)),
            "brokers_session = \"999ms\": from 1 s to an hour",
        ),
        (
            builder().metadata(Metadata::Wide(10_923)),
            "metadata = \"Wide(10923)\": at most 10922 wide",
        ),
        (
            builder().metadata(Metadata::Ascii(32_768)),
            "metadata = \"Ascii(32768)\": at most 32767",
        ),
        (
            builder().dead_letters(""),
            "dead_letters = \"\": the name of a topic",
        ),
        (
            builder().dead_letters("topic"),
            "dead_letters = \"topic\": not one of the topics that are read",
        ),
        (
            builder().exhausted(Exhausted::DeadLetter),
            "dead_letters = \"\": the name of a topic",
        ),
        (
            builder().exhausted_of("topic", Exhausted::DeadLetter),
            "dead_letters = \"\": the name of a topic",
        ),
        (
            builder().dead_letters("^dead"),
            "dead_letters = \"^dead\": the name of a topic",
        ),
        (
            builder()
                .topics(["^orders"])
                .exhausted_of("^orders", Exhausted::Skip),
            "exhausted_of = \"^orders\": the name of a topic that is read",
        ),
        (
            builder().exhausted_of("tpoic", Exhausted::Skip),
            "exhausted_of = \"tpoic\": the name of a topic that is read",
        ),
        (
            builder().set("group.id", "other"),
            "group.id = \"other\": is an argument",
        ),
        (
            builder().set("enable.auto.commit", "true"),
            "enable.auto.commit = \"true\": must stay off",
        ),
        (
            builder().set("delivery.report.only.error", "true"),
            "delivery.report.only.error = \"true\": must stay off",
        ),
        (
            builder().set("no.such.property", "1"),
            "no.such.property = \"1\": ",
        ),
        (
            builder().set("session.timeout.ms", "soon"),
            "session.timeout.ms = \"soon\": ",
        ),
    ] {
        let error = error(builder);
        assert!(error.starts_with(text), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R3, R6
async fn a_second_run_goes_on_where_the_first_has_ended() {
    let cluster = cluster(1);
    let keys: Vec<_> = (0..100)
        .map(|number| format!("key-{}", number % 10))
        .collect();
    let records: Vec<_> = keys
        .iter()
        .map(|key| (Some(key.as_str()), Some("x")))
        .collect();
    produce(&cluster, &records).await;
    // One key blocks: all others are finished beyond it.
    let first = run(
        builder(&cluster).exhausted(Exhausted::Block),
        |record: Record| {
            let result = if text(record.key()) == "key-3" {
                Err("no")
            } else {
                Ok(())
            };
            async move { result }
        },
    );
    until("the others", || first.consumer.status().finished == 90).await;
    let ended = first.end().await.expect("no error");
    assert_eq!((ended.left, ended.uncommitted), (10, 0));
    let notes = Notes::default();
    let of_run = notes.clone();
    let second = run(builder(&cluster), move |record: Record| {
        of_run.add(format!("{} {}", text(record.key()), record.offset()));
        async {}
    });
    until("the rest", || is_finished(&second.consumer, 100)).await;
    // Those at 0 to 2 are below the offset.
    assert_eq!(second.consumer.status().remembered, 87);
    second.end().await.expect("no error");
    assert_eq!(
        notes.all(),
        (0..10)
            .map(|number| format!("key-3 {}", 10 * number + 3))
            .collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn the_end_waits_for_what_runs_and_begins_nothing_more() {
    let cluster = cluster(1);
    let records: Vec<_> = (0..20).map(|_| (None, Some("x"))).collect();
    produce(&cluster, &records).await;
    let (notes, go) = (Notes::default(), Gate::default());
    let (of_run, gate) = (notes.clone(), go.clone());
    let run = run(builder(&cluster).concurrency(3), move |_| {
        let (notes, gate) = (of_run.clone(), gate.clone());
        async move {
            notes.add("begun");
            gate.pass().await;
            notes.add("end");
        }
    });
    until("three run", || notes.len() == 3).await;
    until("all are in memory", || {
        run.consumer.status().partitions[0].records == 20
    })
    .await;
    let consumer = run.consumer.clone();
    let wake = async {
        until("it leaves", || is_leaving(&consumer)).await;
        go.open();
    };
    let (ended, ()) = tokio::join!(run.end(), wake);
    let ended = ended.expect("no error");
    assert_eq!(
        (
            ended.finished,
            ended.left,
            ended.cancelled,
            ended.uncommitted
        ),
        (3, 17, 0, 0)
    );
    assert_eq!(notes.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn times_without_an_end_are_times() {
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let settings = builder(&cluster)
        .commit_every(Duration::MAX)
        .revoke_within(Duration::MAX)
        .stalled_after(Duration::MAX);
    let consumer = settings.build().expect("settings");
    let of_signal = consumer.clone();
    let signal = async move {
        until("it is finished", || of_signal.status().finished == 1).await;
    };
    let ended = consumer.run_until(signal, Duration::MAX, |_| async {});
    let ended = ended.await.expect("no error");
    assert_eq!((ended.finished, ended.uncommitted), (1, 0));
}

#[test] // R6
fn a_runtime_without_time_is_refused_before_anything_runs() {
    let build = || tokio::runtime::Builder::new_multi_thread();
    let with_time = build().enable_all().build().expect("a runtime");
    let without = build().enable_io().build().expect("a runtime");
    let cluster = cluster(1);
    let consumer = builder(&cluster).build().expect("settings");
    let run = || consumer.run_until(async {}, Duration::ZERO, |_| async {});
    let run_without = AssertUnwindSafe(|| without.block_on(run()).map(drop));
    assert!(catch_unwind(run_without).is_err(), "it panics");
    let ended = with_time.block_on(run()).expect("it has not run before");
    assert_eq!(ended.finished, 0);
}
