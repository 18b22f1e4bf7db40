//! Commits of which brokers refuse a part.

use std::sync::Arc;
use std::time::Instant;

use rdkafka::mocking::MockCluster;

use super::store;
use crate::tenure::Start;
use crate::{Consumer, lock};

#[test] // R2, R6
fn a_partition_that_brokers_refuse_takes_no_commit_from_others() {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    cluster.create_topic("topic", 3, 1).expect("a topic");
    let builder = Consumer::builder(&cluster.bootstrap_servers(), "group");
    let consumer = builder.topics(["topic"]).build().expect("settings");
    let client = lock(&consumer.client).take().expect("a client");
    let shared = &consumer.shared;
    // librdkafka sorts them. Brokers do not know the last partition of `topic`, and the other topic.
    let places = [
        ("topic", 99),
        ("topic", 2),
        ("gone", 0),
        ("topic", 0),
        ("topic", 1),
    ];
    let snapshots: Vec<_> = (0..)
        .zip(places)
        .map(|(slot, (topic, partition))| {
            let start = Start {
                base: 7,
                is_end: true,
                ..Start::default()
            };
            let tenure = shared.tenure((topic.into(), partition, slot), start);
            let snapshot = tenure.snapshot(shared.metadata(), false, false);
            (Arc::new(tenure), snapshot.expect("it begins at an end"))
        })
        .collect();
    assert_eq!(store(&client, shared, None, &snapshots), 2);
    assert_eq!(shared.lease.ended(Instant::now()), None);
    let committed = snapshots.iter().map(|(tenure, _)| tenure.seen().committed);
    let committed: Vec<_> = committed.collect();
    assert_eq!(committed, [None, Some(7), None, Some(7), Some(7)]);
    assert_eq!(shared.counts.commit_errors.get(), 2);
}
