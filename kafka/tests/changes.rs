//! What the group wants while an assignment is read: on librdkafka's mock cluster.

mod common;

use std::collections::BTreeSet;
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    Cluster, Counted, Gate, Notes, Run, builder, has_partitions, is_leaving, lead, noting,
    produce_into, round_trip, run, two_brokers, until,
};
use keyqueue_kafka::{Builder, Verdict};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::{sleep, timeout};

/// Two brokers, the second of which replies too late.
fn with_slow() -> Cluster {
    let cluster = two_brokers();
    round_trip(&cluster, 2, Duration::from_secs(3));
    cluster
}

/// Creates a topic of which the slow broker has all partitions but the last.
fn create(cluster: &Cluster, topic: &str, partitions: usize) {
    let mut leaders = vec![2; partitions];
    leaders[partitions - 1] = 1;
    common::create(cluster, topic, &leaders);
}

/// All topics that begin with a `t`, and those that come soon.
fn of_pattern(cluster: &Cluster) -> Builder {
    builder(cluster)
        .topics(["^t"])
        .set("topic.metadata.refresh.interval.ms", "100")
}

/// Waits until it is read where the partitions of an assignment begin, which takes a second for each of the slow broker.
async fn until_it_is_read(run: &Run) {
    until("it is read", || {
        let error = run.consumer.status().last_error.unwrap_or_default();
        error.contains("does not begin")
    })
    .await;
    assert!(run.consumer.status().unread.is_empty());
}

/// Produces a record to each of these partitions of a topic.
async fn produce_each(cluster: &Cluster, topic: &str, partitions: Range<i32>, text: &str) {
    for partition in partitions {
        produce_into(cluster, topic, partition, &[(Some("a"), Some(text))]).await;
    }
}

/// Waits until all of these are noted. Some may be repeated, as the group changes.
async fn until_noted(notes: &[&Notes], topic: &str, partitions: Range<i32>, text: &str) {
    for partition in partitions {
        let note = format!("{topic} {partition} {text}");
        until(&note, || notes.iter().any(|of| of.all().contains(&note))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1, R7
async fn a_topic_that_comes_while_an_assignment_is_read_takes_none_of_its_partitions() {
    let cluster = with_slow();
    create(&cluster, "topic", 8);
    let (first, of_first) = noting(of_pattern(&cluster));
    until_it_is_read(&first).await;
    create(&cluster, "two", 1);
    produce_each(&cluster, "two", 0..1, "1").await;
    until_noted(&[&of_first], "two", 0..1, "1").await;
    produce_each(&cluster, "topic", 7..8, "1").await;
    until_noted(&[&of_first], "topic", 7..8, "1").await;
    // They can be revoked, and begin.
    round_trip(&cluster, 2, Duration::ZERO);
    let (second, of_second) = noting(of_pattern(&cluster));
    until("it has some", || has_partitions(&second.consumer)).await;
    produce_each(&cluster, "topic", 0..8, "2").await;
    until_noted(&[&of_first, &of_second], "topic", 0..8, "2").await;
    for run in [first, second] {
        run.end().await.expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1, R6, R7
async fn a_topic_that_goes_while_an_assignment_is_read_is_given_back_at_once() {
    let cluster = with_slow();
    create(&cluster, "topic", 1);
    let builder = of_pattern(&cluster).revoke_within(Duration::from_secs(3600));
    let (run, notes) = noting(builder);
    produce_each(&cluster, "topic", 0..1, "stuck").await;
    until_noted(&[&notes], "topic", 0..1, "stuck").await;
    create(&cluster, "two", 8);
    until_it_is_read(&run).await;
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("topic", unknown).expect("a topic");
    // It is lost, so what runs is not waited for. The other one is read on.
    until("it is given back", || {
        let partitions = run.consumer.status().partitions;
        partitions.iter().all(|of| of.topic == "two")
    })
    .await;
    produce_each(&cluster, "two", 7..8, "1").await;
    until_noted(&[&notes], "two", 7..8, "1").await;
    round_trip(&cluster, 2, Duration::ZERO);
    produce_each(&cluster, "two", 0..8, "2").await;
    until_noted(&[&notes], "two", 0..8, "2").await;
    let ended = run.end().await.expect("no error");
    assert_eq!(ended.cancelled, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R6
async fn a_topic_that_goes_while_the_run_ends_takes_no_grace_from_others() {
    let cluster = Cluster::new(1).expect("a mock cluster");
    for topic in ["topic", "two"] {
        create(&cluster, topic, 1);
        produce_each(&cluster, topic, 0..1, "1").await;
    }
    let (begun, go) = (Notes::default(), Gate::default());
    let now = Arc::<AtomicUsize>::default();
    let (notes, gate, of_run) = (begun.clone(), go.clone(), Arc::clone(&now));
    let run = run(of_pattern(&cluster), move |_| {
        let (gate, counted) = (gate.clone(), Counted::new(&of_run));
        notes.add("begun");
        async move {
            let _counted = counted;
            gate.pass().await;
        }
    });
    until("both run", || begun.len() == 2).await;
    let consumer = run.consumer.clone();
    let end = tokio::spawn(run.end());
    until("it ends", || is_leaving(&consumer)).await;
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("two", unknown).expect("a topic");
    until("one is cancelled", || now.load(Ordering::SeqCst) == 1).await;
    sleep(Duration::from_millis(500)).await;
    // The last commit of the other one is tried again.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[error; 2]);
    go.open();
    let ended = end.await.expect("no panic").expect("no error");
    let counts = (
        ended.finished,
        ended.cancelled,
        ended.uncommitted,
        ended.is_lost,
    );
    assert_eq!(counts, (1, 1, 0, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R6
async fn a_topic_that_comes_ends_a_revocation_that_waits() {
    let cluster = Cluster::new(1).expect("a mock cluster");
    cluster.create_topic("topic", 2, 1).expect("a topic");
    produce_each(&cluster, "topic", 0..2, "stuck").await;
    let now = Arc::<AtomicUsize>::default();
    let (begun, of_run) = (Notes::default(), Arc::clone(&now));
    let notes = begun.clone();
    let builder = of_pattern(&cluster).revoke_within(Duration::from_secs(3600));
    let first = run(builder, move |_| {
        let counted = Counted::new(&of_run);
        notes.add("begun");
        async move {
            let _counted = counted;
            pending::<()>().await;
        }
    });
    until("both run", || begun.len() == 2).await;
    let (second, of_second) = noting(of_pattern(&cluster));
    until("one is wanted back", || {
        let partitions = first.consumer.status().partitions;
        partitions.iter().any(|of| of.is_leaving)
    })
    .await;
    assert_eq!(now.load(Ordering::SeqCst), 2);
    // The group gives that one to any member, although its handler runs.
    create(&cluster, "two", 1);
    until("it is cancelled", || {
        now.load(Ordering::SeqCst) < begun.len()
    })
    .await;
    let count = || begun.len() + of_second.len();
    until("it is repeated", || count() >= 3).await;
    produce_each(&cluster, "two", 0..1, "1").await;
    until("others go on", || count() >= 4).await;
    // librdkafka notices no later change of the group, and that it is not in it.
    second.drop_future();
    let ended = timeout(Duration::from_secs(60), first.ended()).await;
    let error = ended.expect("it ends").expect_err("it is outside");
    assert!(error.to_string().contains("UnknownMemberId"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R6
async fn what_was_read_while_the_group_changed_ends_with_the_next_assignment() {
    let cluster = with_slow();
    create(&cluster, "topic", 8);
    // One member has the even ones, and the other one has those that are slow.
    for partition in [0, 2, 4, 6] {
        lead(&cluster, partition, Some(1));
    }
    produce_each(&cluster, "topic", 0..1, "1").await;
    let (begun, go) = (Notes::default(), Gate::default());
    let member = || {
        let (begun, gate) = (begun.clone(), go.clone());
        let builder = of_pattern(&cluster)
            .set("partition.assignment.strategy", "roundrobin")
            .set("session.timeout.ms", "30000");
        run(builder, move |_| {
            let gate = gate.clone();
            begun.add("begun");
            async move { gate.pass().await }
        })
    };
    let members = [member(), member()];
    let all = |of: usize| {
        let partitions = members[of].consumer.status().partitions;
        let places = partitions.into_iter().map(|of| (of.topic, of.partition));
        places.collect::<BTreeSet<_>>()
    };
    let (first, second) = (|| all(0), || all(1));
    until("it runs", || {
        begun.len() == 1 && first().len().min(second().len()) == 0
    })
    .await;
    // Each gets what the other one had. The one that reads is not told to give anything back, and the other one does so late.
    create(&cluster, "taaa", 1);
    until("it is read", || first().len().min(second().len()) == 1).await;
    go.open();
    round_trip(&cluster, 2, Duration::ZERO);
    // Not beside what it read. The mock cluster takes a session for each change.
    let has = |of: &BTreeSet<_>, partition| of.contains(&("topic".to_owned(), partition));
    let apart = async {
        loop {
            let (first, second) = (first(), second());
            for of in [&first, &second] {
                let is_mixed = of.len() < 9 && has(of, 0) && has(of, 7);
                assert!(!is_mixed, "{of:?}");
            }
            if first.len() + second.len() == 9 && first.is_disjoint(&second) {
                break;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    let apart = timeout(Duration::from_secs(180), apart).await;
    apart.expect("each has its own");
    for run in members {
        run.end().await.expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn an_assignment_that_cannot_be_read_holds_up_no_other_partition() {
    let cluster = with_slow();
    create(&cluster, "topic", 1);
    let (run, notes) = noting(of_pattern(&cluster));
    produce_each(&cluster, "topic", 0..1, "1").await;
    until_noted(&[&notes], "topic", 0..1, "1").await;
    let refused = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 1000];
    cluster.request_errors(RDKafkaApiKey::OffsetFetch, &refused);
    create(&cluster, "two", 1);
    let of_two = [("two".to_owned(), 0)];
    until("it is not read", || run.consumer.status().unread == of_two).await;
    produce_each(&cluster, "topic", 0..1, "2").await;
    until_noted(&[&notes], "topic", 0..1, "2").await;
    cluster.clear_request_errors(RDKafkaApiKey::OffsetFetch);
    produce_each(&cluster, "two", 0..1, "2").await;
    until_noted(&[&notes], "two", 0..1, "2").await;
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2
async fn a_member_that_is_cut_off_while_its_group_changes_begins_nothing_after_the_session() {
    let cluster = with_slow();
    create(&cluster, "topic", 1);
    let records = vec![(Some("a"), Some("x")); 5000];
    produce_into(&cluster, "topic", 0, &records).await;
    let builder = of_pattern(&cluster).set("session.timeout.ms", "4000");
    let run = run(builder, |_| sleep(Duration::from_millis(5)));
    let status = || run.consumer.status();
    until("it begins", || status().finished > 0).await;
    create(&cluster, "two", 12);
    until_it_is_read(&run).await;
    cluster.broker_down(1).expect("a broker");
    until("nothing begins", || status().held_up.is_some()).await;
    let finished = status().finished;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(status().finished, finished);
    assert!(status().partitions.iter().any(|of| of.records > 0));
    cluster.broker_up(1).expect("a broker");
    until("it goes on", || status().finished > finished).await;
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn a_group_whose_pattern_matches_its_letters_reads_none_of_them() {
    let cluster = common::cluster(1);
    cluster.create_topic("t.a", 1, 1).expect("a topic");
    produce_into(&cluster, "t.a", 0, &[(Some("a"), Some("x"))]).await;
    let notes = Notes::default();
    let of_run = notes.clone();
    // The first letter brings the topic.
    let run = run(of_pattern(&cluster).dead_letters("t.dead"), move |record| {
        of_run.add(record.topic());
        async { Verdict::<_>::GiveUp("no") }
    });
    let consumer = run.consumer.clone();
    let ended = timeout(Duration::from_secs(60) * rig::patience(), run.ended()).await;
    let error = ended.expect("an end").expect_err("letters of letters");
    let rule = "matches a pattern of the topics that are read";
    let text = format!("dead_letters = \"t.dead\": {rule}");
    assert_eq!(error.to_string(), text);
    assert_eq!(notes.all(), ["t.a"]);
    assert_eq!(consumer.status().dead_letters, 1);
}
