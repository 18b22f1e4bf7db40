//! Where partitions begin, and that each does, whatever becomes of the others: on librdkafka's mock cluster.

mod common;

use std::future::pending;
use std::time::Duration;

use common::{Run, builder, cluster, produce_to, run, text, until};
use keyqueue_kafka::{PartitionStatus, Record, Room};
use tokio::time::sleep;

fn partitions(run: &Run) -> Vec<PartitionStatus> {
    run.consumer.status().partitions
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
