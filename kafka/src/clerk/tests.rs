//! Commits of which a part is refused, or lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::{Ended, store};
use crate::Metadata;
use crate::client::Client;
use crate::shared::Shared;
use crate::tenure::Start;
use crate::{Consumer, lock};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn client() -> (Cluster, Client, Arc<Shared>) {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    cluster.create_topic("topic", 3, 1).expect("a topic");
    let builder = Consumer::builder(&cluster.bootstrap_servers(), "group");
    let consumer = builder.topics(["topic"]).build().expect("settings");
    let client = lock(&consumer.shared.client).take().expect("a client");
    (cluster, client, consumer.shared)
}

/// What is to be committed of partitions that begin at the end of their log.
fn begun(shared: &Shared, places: &[(&str, i32)]) -> Vec<Ended> {
    let begun = (0..).zip(places).map(|(slot, (topic, partition))| {
        let start = Start {
            base: 7,
            is_end: true,
            ..Start::default()
        };
        let tenure = shared.tenure(((*topic).into(), *partition, slot), start);
        let snapshot = tenure.snapshot(shared.metadata(), false, false);
        (Arc::new(tenure), snapshot.expect("it begins at an end"))
    });
    begun.collect()
}

fn committed(ended: &[Ended]) -> Vec<Option<i64>> {
    let committed = ended.iter().map(|(tenure, _)| tenure.seen().committed);
    committed.collect()
}

#[test] // R2, R6
fn a_partition_that_brokers_refuse_takes_no_commit_from_others() {
    let (_cluster, client, shared) = client();
    // Brokers do not know the last partition of `topic`, and the other topic. librdkafka sorts them.
    let (last, gone) = (("topic", 99), ("gone", 0));
    let snapshots = begun(
        &shared,
        &[last, ("topic", 2), gone, ("topic", 0), ("topic", 1)],
    );
    assert_eq!(store(&client, &shared, None, &snapshots), 2);
    assert_eq!(shared.lease.ended(Instant::now()), None);
    assert_eq!(
        committed(&snapshots),
        [None, Some(7), None, Some(7), Some(7)]
    );
    assert_eq!(shared.counts.commit_errors.get(), 2);
}

#[test] // R6
fn nothing_is_committed_for_a_tenure_that_is_lost() {
    let (_cluster, client, shared) = client();
    let snapshots = begun(&shared, &[("topic", 0), ("topic", 1)]);
    snapshots.iter().for_each(|(tenure, _)| tenure.revoke());
    snapshots[0].0.lose();
    let last = Some((1, Instant::now() + Duration::from_secs(60)));
    assert_eq!(store(&client, &shared, last, &snapshots), 0);
    assert_eq!(committed(&snapshots), [None, Some(7)]);
}

#[test] // R6
fn a_last_commit_that_brokers_refuse_for_its_topic_is_not_repeated() {
    let (_cluster, client, shared) = client();
    let snapshots = begun(&shared, &[("gone", 0), ("topic", 0), ("topic", 99)]);
    let began = Instant::now();
    let last = Some((1, began + Duration::from_secs(60)));
    assert_eq!(store(&client, &shared, last, &snapshots), 2);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(committed(&snapshots), [None, Some(7), None]);
}

#[test] // R6
fn a_commit_that_would_be_too_large_is_sent_in_parts() {
    let too_large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_COMMIT_OFFSET_SIZE;
    let metadata_too_large = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE;
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN;
    let of_group = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    let (all, less) = (Metadata::Wide(4096), Metadata::Wide(2048));
    for (bytes, error, is_committed, metadata) in [
        // A list of which brokers take the halves.
        (1, too_large, [true, true, true], all),
        (1, unknown, [true, true, true], all),
        // Three lists. That of the first partition is small enough without its metadata, which is not all that has to be committed.
        (200 << 10, too_large, [false, true, true], less),
        (200 << 10, metadata_too_large, [false, true, true], less),
        // What is wrong with the group is so for all three.
        (200 << 10, of_group, [false, false, false], all),
    ] {
        let (cluster, client, shared) = client();
        let mut snapshots = begun(&shared, &[("topic", 0), ("topic", 1), ("topic", 2)]);
        for (_, snapshot) in &mut snapshots {
            snapshot.written.text = "x".repeat(bytes);
        }
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[error]);
        store(&client, &shared, None, &snapshots);
        let committed = committed(&snapshots);
        let expected = is_committed.map(|is_committed| is_committed.then_some(7));
        assert_eq!((&*committed, shared.metadata()), (&expected[..], metadata));
    }
}

#[test] // R6
fn the_parts_of_a_last_commit_end_with_its_time() {
    let (cluster, client, shared) = client();
    let mut snapshots = begun(&shared, &[("topic", 0), ("topic", 1), ("topic", 2)]);
    for (_, snapshot) in &mut snapshots {
        snapshot.written.text = "x".repeat(200 << 10);
    }
    let until = Instant::now() + Duration::from_secs(1);
    cluster
        .broker_round_trip_time(1, Duration::from_millis(1500))
        .unwrap();
    assert_eq!(store(&client, &shared, Some((1, until)), &snapshots), 2);
    assert_eq!(committed(&snapshots), [Some(7), None, None]);
}
