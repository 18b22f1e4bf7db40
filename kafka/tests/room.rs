//! The room of a partition, and keys that fail in it: on librdkafka's mock cluster.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    Cluster, Gate, Run, builder, cluster, has_partitions, produce, produce_to, run, text, until,
};
use keyqueue_kafka::{Exhausted, OrderBy, Outcome, Record, Room, Verdict};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn what_is_in_memory_is_bounded() {
    let cluster = cluster(1);
    let payload = "x".repeat(10_000);
    let records: Vec<_> = (0..200).map(|_| (None, Some(payload.as_str()))).collect();
    produce(&cluster, &records).await;
    for (room, most) in [
        (Room::records(7), 7),
        (Room::records(1000).bytes(55_000), 6),
        (Room::records(100).of_partition(3), 3),
    ] {
        let seen = Arc::new(AtomicUsize::new(0));
        let of_run = Arc::clone(&seen);
        let builder = builder(&cluster)
            .room(room)
            .set("client.id", format!("room-{most}"));
        let run = run(builder, move |_| {
            of_run.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>()
        });
        until("it is full", || seen.load(Ordering::SeqCst) == most).await;
        sleep(Duration::from_millis(100)).await;
        let status = run.consumer.status();
        assert_eq!(
            (status.partitions[0].records, seen.load(Ordering::SeqCst)),
            (most, most)
        );
        run.drop_future();
        until("it has ended", || !has_partitions(&run.consumer)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn what_is_in_memory_of_all_partitions_is_bounded() {
    let cluster = cluster(2);
    let records = [(None, Some("x")); 50];
    for partition in 0..2 {
        produce_to(&cluster, partition, &records).await;
    }
    let room = Room::records(20).of_partition(20);
    let run = run(builder(&cluster).room(room), |_| {
        std::future::pending::<()>()
    });
    let held = || {
        run.consumer
            .status()
            .partitions
            .iter()
            .map(|partition| partition.records)
            .sum::<usize>()
    };
    until("it is full", || held() >= 20).await;
    sleep(Duration::from_millis(200)).await;
    assert_eq!(held(), 20);
    run.drop_future();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn a_room_of_one_record_handles_all() {
    let cluster = cluster(3);
    let records: Vec<_> = (0..50).map(|_| (Some("key"), Some("x"))).collect();
    produce(&cluster, &records).await;
    let run = run(
        builder(&cluster).room(Room::records(1)).concurrency(1),
        |_| async {},
    );
    until("all", || run.consumer.status().finished == 50).await;
    run.end().await.expect("no error");
}

/// Two of three records have the key that fails, and are retried without an end.
async fn failing_keys(room: Room, payload: &str, others_fail: bool) -> (Cluster, Run) {
    let cluster = cluster(1);
    let keys = ["bad", "good", "bad"];
    let records: Vec<_> = (0..150)
        .map(|number| (Some(keys[number % 3]), Some(payload)))
        .collect();
    produce(&cluster, &records).await;
    let builder = builder(&cluster)
        .retries(u32::MAX)
        .exhausted(Exhausted::Skip);
    let run = run(builder.room(room), move |record: Record| {
        let fails = others_fail || text(record.key()) == "bad";
        async move { if fails { Err("no") } else { Ok(()) } }
    });
    (cluster, run)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn keys_that_fail_take_half_of_the_room_and_others_go_on() {
    let of_bytes = Room::records(1000).bytes(200_000);
    for (room, payload) in [(Room::records(20), "x"), (of_bytes, &"x".repeat(10_000))] {
        let (_cluster, run) = failing_keys(room, payload, false).await;
        until("the others", || run.consumer.status().finished == 50).await;
        let status = run.consumer.status();
        assert!(status.partitions[0].records <= 20 && status.skipped > 0);
        run.end().await.expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn while_nothing_succeeds_nothing_is_given_up_for_want_of_room() {
    let (_cluster, run) = failing_keys(Room::records(20), "x", true).await;
    until("many retries", || run.consumer.status().retries > 300).await;
    assert_eq!(run.consumer.status().skipped, 0);
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn what_succeeds_in_another_partition_takes_no_retries() {
    for order in [OrderBy::Key, OrderBy::Partition] {
        let cluster = cluster(2);
        let keys: Vec<_> = (0..30).map(|number| number.to_string()).collect();
        let records: Vec<_> = keys.iter().map(|key| (Some(&**key), Some("x"))).collect();
        produce(&cluster, &records).await;
        let (is_mended, go) = (Arc::new(AtomicBool::new(false)), Gate::default());
        let (mended, gate) = (Arc::clone(&is_mended), go.clone());
        let builder = builder(&cluster)
            .room(Room::records(40))
            .retries(u32::MAX)
            .exhausted(Exhausted::Skip);
        let run = run(builder.order_by(order), move |record: Record| {
            let (is_first, gate) = (record.partition() == 0, gate.clone());
            let fails = is_first && !mended.load(Ordering::SeqCst);
            async move {
                if fails {
                    return Err("no");
                }
                if is_first {
                    gate.pass().await;
                }
                Ok(())
            }
        });
        for number in 1..=20 {
            produce_to(&cluster, 1, &[(None, Some("x"))]).await;
            until("it is finished", || {
                run.consumer.status().finished == number
            })
            .await;
            sleep(Duration::from_millis(50)).await;
        }
        // Nothing of the first one succeeds before all that has failed is settled.
        is_mended.store(true, Ordering::SeqCst);
        sleep(Duration::from_millis(500)).await;
        go.open();
        until("all", || {
            let status = run.consumer.status();
            status.finished + status.skipped == 50
        })
        .await;
        let status = run.consumer.status();
        assert!(status.skipped == 0 && status.retries > 0, "{status:?}");
        run.end().await.expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn keys_that_are_delayed_on_purpose_take_no_retries() {
    let cluster = cluster(1);
    let keys: Vec<_> = (0..12).map(|number| number.to_string()).collect();
    let records: Vec<_> = keys
        .iter()
        .map(|key| (Some(&**key), Some("poll")))
        .collect();
    produce(&cluster, &records).await;
    let builder = builder(&cluster)
        .room(Room::records(20))
        .retries(u32::MAX)
        .exhausted(Exhausted::Skip);
    let delayed = Arc::new(AtomicUsize::new(0));
    let of_run = Arc::clone(&delayed);
    let run = run(builder, move |record: Record| {
        let verdict = match (record.attempt(), &*text(record.payload())) {
            (1, "poll") => Verdict::Retry("no"),
            (_, "poll") => {
                of_run.fetch_add(1, Ordering::SeqCst);
                Verdict::Ok(Outcome::Later(Duration::from_secs(3600)))
            }
            (_, "fails") => Verdict::Retry("no"),
            _ => Verdict::Ok(Outcome::Done),
        };
        async move { verdict }
    });
    until("all are delayed", || delayed.load(Ordering::SeqCst) == 12).await;
    let status = || run.consumer.status();
    produce(&cluster, &[(Some("a"), Some("fails"))]).await;
    until("it has failed", || status().retries > 12).await;
    produce(&cluster, &[(Some("b"), Some("good"))]).await;
    until("a success", || status().finished == 1).await;
    let retries = status().retries;
    until("more retries", || {
        status().retries > retries + 20 || status().skipped > 0
    })
    .await;
    assert_eq!(status().skipped, 0);
    run.end().await.expect("no error");
}
