//! Where partitions begin, and that each does, whatever becomes of the others: on librdkafka's mock cluster.

mod common;

use std::future::pending;
use std::time::Duration;

use common::{
    Cluster, Notes, Run, builder, cluster, create, lead, noting, of_brokers, produce, produce_to,
    round_trip, run, text, two_brokers, until,
};
use keyqueue_kafka::{PartitionStatus, Record, Room};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::time::sleep;

fn partitions(run: &Run) -> Vec<PartitionStatus> {
    run.consumer.status().partitions
}

/// Of three partitions the second has no leader, and then another one has.
fn without_leader() -> Cluster {
    let cluster = cluster(3);
    lead(&cluster, 1, None);
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1, R7
async fn a_partition_without_a_leader_holds_up_no_other_one() {
    let eager = |cluster: &Cluster| builder(cluster).set("partition.assignment.strategy", "range");
    for settings in [builder, eager, of_brokers] {
        let cluster = without_leader();
        for partition in [0, 2] {
            produce_to(&cluster, partition, &[(Some("a"), Some("1"))]).await;
        }
        let (run, notes) = noting(settings(&cluster));
        until("the others", || notes.len() == 2).await;
        let status = run.consumer.status();
        let error = status.last_error.expect("an error");
        assert!(error.contains("topic [1]"), "{error}");
        assert_eq!(status.unread, [("topic".to_owned(), 1)]);
        lead(&cluster, 1, Some(1));
        for partition in 0..3 {
            produce_to(&cluster, partition, &[(Some("a"), Some("2"))]).await;
        }
        until("all", || notes.len() == 5).await;
        assert_eq!(run.consumer.status().unread, []);
        let ended = run.end().await.expect("no error");
        assert_eq!((ended.finished, ended.uncommitted), (5, 0));
        let mut all = notes.all();
        all.sort_unstable();
        let expected = ["0 1", "0 2", "1 2", "2 1", "2 2"];
        assert_eq!(all, expected.map(|note| format!("topic {note}")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn a_dozen_partitions_of_a_broker_that_is_slow_hold_up_no_other_one_for_long() {
    let cluster = two_brokers();
    create(&cluster, "topic", &[vec![2; 12], vec![1; 8]].concat());
    for partition in 12..20 {
        produce_to(&cluster, partition, &[(Some("a"), Some("1"))]).await;
    }
    round_trip(&cluster, 2, Duration::from_secs(3));
    let (run, notes) = noting(builder(&cluster));
    until("the others", || notes.len() == 8).await;
    // There was no time to try all of them at first.
    assert!(run.consumer.status().unread.len() >= 10);
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn a_broker_that_is_down_does_not_hold_up_the_partitions_of_another_one() {
    let cluster = two_brokers();
    create(&cluster, "topic", &[2, 1, 2]);
    for partition in 0..3 {
        produce_to(&cluster, partition, &[(Some("a"), Some("1"))]).await;
    }
    cluster.broker_down(2).expect("a broker");
    let (run, notes) = noting(builder(&cluster));
    until("that of the other one", || notes.len() == 1).await;
    cluster.broker_up(2).expect("a broker");
    until("all", || notes.len() == 3).await;
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.uncommitted), (3, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1
async fn a_partition_that_has_not_begun_can_be_given_back() {
    let cluster = without_leader();
    let members: Vec<_> = (0..3).map(|_| noting(builder(&cluster))).collect();
    let begun = || -> usize { members.iter().map(|(run, _)| partitions(run).len()).sum() };
    until("the others", || begun() == 2).await;
    let mut members = members.into_iter();
    let (first, second) = (members.next(), members.next());
    for (run, _) in first.into_iter().chain(second) {
        run.end().await.expect("no error");
    }
    let (last, notes) = members.next().expect("three");
    until("the others", || partitions(&last).len() == 2).await;
    lead(&cluster, 1, Some(1));
    for partition in 0..3 {
        produce_to(&cluster, partition, &[(Some("a"), Some("1"))]).await;
    }
    until("all", || notes.len() == 3).await;
    last.end().await.expect("no error");
}

/// A log of ten records in a group that has committed an offset far behind them.
async fn beyond_the_log() -> Cluster {
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("before")); 10]).await;
    let committing: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "group")
        .create()
        .expect("a client");
    let mut list = TopicPartitionList::new();
    let offset = Offset::Offset(1000);
    list.add_partition_offset("topic", 0, offset).expect("one");
    committing
        .commit(&list, CommitMode::Sync)
        .expect("a commit");
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1
async fn a_group_that_begins_at_the_end_gets_what_comes_while_it_has_no_member() {
    // As librdkafka reads it; and whether the group has committed an offset, which is out of range.
    for (end, has_offset) in [
        ("latest", false),
        ("Largest", false),
        ("END", false),
        ("latest", true),
    ] {
        let (cluster, count) = match has_offset {
            true => (beyond_the_log().await, 1),
            false => (cluster(2), 2),
        };
        produce(&cluster, &[(Some("a"), Some("before"))]).await;
        let settings = || builder(&cluster).set("auto.offset.reset", end);
        let (first, notes) = noting(settings());
        until("it is assigned", || partitions(&first).len() == count).await;
        first.end().await.expect("no error");
        for partition in (0..).take(count) {
            produce_to(&cluster, partition, &[(Some("a"), Some("between"))]).await;
        }
        let (second, of_second) = noting(settings());
        until("all", || of_second.len() == count).await;
        second.end().await.expect("no error");
        let mut all = of_second.all();
        all.sort_unstable();
        let expected = (0..count).map(|partition| format!("topic {partition} between"));
        assert_eq!((notes.len(), all), (0, expected.collect()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn an_offset_that_is_out_of_range_is_named_if_that_is_an_error() {
    let cluster = beyond_the_log().await;
    let (run, notes) = noting(builder(&cluster).set("auto.offset.reset", "error"));
    let is_named = || {
        let status = run.consumer.status();
        let error = status.last_error.unwrap_or_default();
        status.unread == [("topic".to_owned(), 0)] && error.contains("topic [0]")
    };
    until("it has a name", is_named).await;
    produce(&cluster, &[(Some("a"), Some("x")); 1000]).await;
    until("it begins", || notes.len() == 10).await;
    assert_eq!(run.consumer.status().unread, []);
    // So, too, if that happens later.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
    cluster.request_errors(RDKafkaApiKey::Fetch, &[error]);
    until("it has a name", is_named).await;
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn a_partition_that_cannot_be_read_on_is_named_until_it_is_read() {
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let (run, notes) = noting(builder(&cluster));
    until("it is read", || notes.len() == 1).await;
    // After these it goes on, and there is no record that shows it.
    let passing = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_MSG,
    ];
    cluster.request_errors(RDKafkaApiKey::Fetch, &passing);
    let last_error = || run.consumer.status().last_error.unwrap_or_default();
    until("the second", || last_error().contains("InvalidMessage")).await;
    assert_eq!(run.consumer.status().unread, []);
    // librdkafka says so once.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::Fetch, &[error]);
    let unread = || run.consumer.status().unread;
    until("it has a name", || unread() == [("topic".to_owned(), 0)]).await;
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    until("it is read on", || notes.len() == 2).await;
    until("it has none", || unread().is_empty()).await;
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1
async fn a_group_that_begins_at_the_end_reads_nothing_before_that_is_committed() {
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("before"))]).await;
    let builder = builder(&cluster).set("auto.offset.reset", "latest");
    // No other commit is due.
    let builder = builder.commit_every(Duration::from_secs(3600));
    let refused = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 3];
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &refused);
    let (run, notes) = noting(builder);
    let refused = |times| run.consumer.status().commit_errors >= times;
    until("a commit is refused", || refused(1)).await;
    produce(&cluster, &[(Some("a"), Some("after"))]).await;
    until("a second later the next one", || refused(2)).await;
    let partition = &partitions(&run)[0];
    assert_eq!((partition.committed, partition.records), (None, 0));
    until("it runs", || notes.len() == 1).await;
    assert_eq!(partitions(&run)[0].committed, Some(1));
    run.drop_future();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn a_partition_that_comes_when_the_room_is_full_has_room_for_a_record() {
    let cluster = cluster(2);
    let settings = || builder(&cluster).room(Room::records(10));
    let work = |record: Record| async move {
        if text(record.payload()) == "stuck" {
            pending::<()>().await;
        }
    };
    let (first, second) = (run(settings(), work), run(settings(), work));
    until("each has one", || {
        partitions(&first).len() == 1 && partitions(&second).len() == 1
    })
    .await;
    let own = partitions(&first)[0].partition;
    produce_to(&cluster, own, &[(Some("a"), Some("stuck")); 20]).await;
    until("it is full", || partitions(&first)[0].records == 10).await;
    second.end().await.expect("no error");
    produce_to(&cluster, 1 - own, &[(Some("a"), Some("x")); 20]).await;
    until("the other one goes on", || {
        first.consumer.status().finished == 20
    })
    .await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(
        partitions(&first)
            .iter()
            .map(|at| at.records)
            .sum::<usize>(),
        10
    );
    first.drop_future();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn partitions_that_may_each_fill_the_room_share_it() {
    let cluster = cluster(2);
    for partition in 0..2 {
        produce_to(&cluster, partition, &[(None, Some("x")); 400]).await;
    }
    let notes = Notes::default();
    let of_run = notes.clone();
    let settings = builder(&cluster).room(Room::records(10).of_partition(10));
    let run = run(settings.concurrency(4), move |record: Record| {
        of_run.add(record.partition().to_string());
        sleep(Duration::from_millis(5))
    });
    until("they go on", || notes.len() >= 400).await;
    let first = notes.all().iter().filter(|note| *note == "0").count();
    run.drop_future();
    assert!((100..=300).contains(&first), "{first} of 400");
}
