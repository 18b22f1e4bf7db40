//! What handlers return, what becomes of the records, and in which order: on librdkafka's mock cluster.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{
    Gate, Knows, Notes, builder, cluster, create, is_finished, of_brokers, produce, produce_into,
    run, text, until,
};
use keyqueue_kafka::{
    Consumer, Doing, Exhausted, OrderBy, Outcome, PartitionStatus, Record, Verdict,
};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2
async fn the_records_of_a_key_come_in_order_and_one_at_a_time() {
    let cluster = cluster(1);
    let keys = ["a", "b", "c", "d"];
    let records: Vec<_> = (0..400)
        .map(|number| (keys[number % 4], number.to_string()))
        .collect();
    let records: Vec<_> = records
        .iter()
        .map(|(key, number)| (Some(*key), Some(number.as_str())))
        .collect();
    produce(&cluster, &records).await;
    let (notes, most) = (Notes::default(), Arc::new(AtomicUsize::new(0)));
    let (of_run, at_once) = (notes.clone(), Arc::clone(&most));
    let now = Arc::new(AtomicUsize::new(0));
    let run = run(builder(&cluster), move |record| {
        let (notes, most, now) = (of_run.clone(), Arc::clone(&at_once), Arc::clone(&now));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            notes.add(format!("{} {}", text(record.key()), text(record.payload())));
            sleep(Duration::from_millis(1)).await;
            notes.add(format!("{} end", text(record.key())));
            now.fetch_sub(1, Ordering::SeqCst);
        }
    });
    until("all", || notes.len() == 800).await;
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.left, ended.uncommitted), (400, 0, 0));
    let mut of_key = BTreeMap::<String, Vec<String>>::new();
    for note in notes.all() {
        let (key, what) = note.split_once(' ').expect("two words");
        of_key
            .entry(key.to_owned())
            .or_default()
            .push(what.to_owned());
    }
    for (key, what) in of_key {
        let first = keys.iter().position(|name| *name == key).expect("a key");
        let expected = (first..400)
            .step_by(4)
            .flat_map(|number| [number.to_string(), "end".into()]);
        assert_eq!(what, expected.collect::<Vec<_>>());
    }
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

/// Of 20 records with these keys this many are handled at the same time.
async fn at_once(order: OrderBy, keys: &[Option<&str>], most: usize) {
    let cluster = cluster(1);
    let records: Vec<_> = (0..20)
        .map(|number| (keys[number % keys.len()], Some("x")))
        .collect();
    produce(&cluster, &records).await;
    let (now, go) = (Arc::new(AtomicUsize::new(0)), Gate::default());
    let (of_run, gate) = (Arc::clone(&now), go.clone());
    let run = run(builder(&cluster).order_by(order), move |_| {
        let (now, gate) = (Arc::clone(&of_run), gate.clone());
        async move {
            now.fetch_add(1, Ordering::SeqCst);
            gate.pass().await;
        }
    });
    // All are in memory, and what can run runs.
    until("all are in memory", || {
        let status = run.consumer.status();
        let mut partitions = status.partitions.iter();
        partitions.any(|partition| partition.records == 20) && now.load(Ordering::SeqCst) >= most
    })
    .await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(now.load(Ordering::SeqCst), most, "{keys:?}");
    go.open();
    until("all", || run.consumer.status().finished == 20).await;
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2
async fn other_orders_than_by_key() {
    let (same, two) = (
        [Some("a")],
        [Some("a/1"), Some("b/1"), Some("a/2"), Some("b/2")],
    );
    let by_first = OrderBy::by(|record| Some(record.key()?[..1].to_vec()));
    tokio::join!(
        at_once(OrderBy::Key, &same, 1),
        at_once(OrderBy::Key, &two, 4),
        // A record without a key waits for none.
        at_once(OrderBy::Key, &[None], 20),
        at_once(OrderBy::Partition, &two, 1),
        at_once(OrderBy::None, &same, 20),
        at_once(by_first, &two, 2),
        // A function that panics leaves an order.
        at_once(OrderBy::by(|_| panic!("a bad function")), &two, 1),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_what_was_produced() {
    let cluster = cluster(1);
    let large = "x".repeat(1_000_000);
    produce(
        &cluster,
        &[
            (None, None),
            (Some(""), Some("")),
            (Some("key"), None),
            (Some("key"), Some(&large)),
            (None, Some("p")),
        ],
    )
    .await;
    let notes = Notes::default();
    let of_run = notes.clone();
    let run = run(builder(&cluster), move |record: Record| {
        let payload = record.payload().map_or(-1, |payload| payload.len() as i64);
        assert!(record.timestamp().is_some());
        of_run.add(format!(
            "{} {} {}:{} {payload}",
            record.offset(),
            text(record.key()),
            record.topic(),
            record.partition()
        ));
        async {}
    });
    until("all", || notes.len() == 5).await;
    run.end().await.expect("no error");
    let mut all = notes.all();
    all.sort();
    assert_eq!(
        all,
        [
            "0 - topic:0 -1",
            "1  topic:0 0",
            "2 key topic:0 -1",
            "3 key topic:0 1000000",
            "4 - topic:0 1"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn each_verdict_does_what_it_says() {
    let cluster = cluster(1);
    let names = [
        "done",
        "retry",
        "retry-after",
        "give-up",
        "panic",
        "requeue",
        "later",
        "limited",
        "always",
    ];
    let records: Vec<_> = names
        .iter()
        .map(|name| (Some(*name), Some(*name)))
        .collect();
    produce(&cluster, &records).await;
    let notes = Notes::default();
    let of_run = notes.clone();
    let builder = builder(&cluster).retries(3).exhausted(Exhausted::Skip);
    let run = run(builder, move |record: Record| {
        let name = text(record.key());
        of_run.add(format!("{name} {}", record.attempt()));
        let attempts = of_run
            .all()
            .iter()
            .filter(|note| note.starts_with(&format!("{name} ")))
            .count();
        let wait = Duration::from_millis(5);
        async move {
            match (&*name, attempts) {
                ("retry", 1 | 2) => Verdict::Retry("no"),
                ("retry-after", 1) => Verdict::RetryAfter("no", wait),
                ("give-up", _) => Verdict::GiveUp("never"),
                ("panic", 1) => panic!("a bad handler"),
                ("requeue", 1) => Verdict::Ok(Outcome::RequeueAfter(wait)),
                ("later", 1 | 2) => Verdict::Ok(Outcome::Later(wait)),
                ("limited", 1) => Verdict::Ok(Outcome::RequeueRateLimited),
                ("always", _) => Verdict::Retry("always"),
                _ => Verdict::Ok(Outcome::Done),
            }
        }
    });
    until("the last", || is_finished(&run.consumer, 9)).await;
    let status = run.consumer.status();
    assert_eq!(
        (status.finished, status.skipped, status.dead_letters),
        (7, 2, 0)
    );
    run.end().await.expect("no error");
    let of = |name: &str| {
        let of_name = notes
            .all()
            .into_iter()
            .filter_map(|note| note.strip_prefix(&format!("{name} ")).map(str::to_owned));
        of_name.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names.map(of),
        [
            "1", "1 2 3", "1 2", "1", "1 2", "1 1", "1 1 1", "1 1", "1 2 3 4"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn a_record_is_finished_when_its_dead_letter_is_acknowledged() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    produce(&cluster, &[(Some("bad"), Some("0"))]).await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error; 50]);
    let limiter = Knows::default();
    let builder = builder(&cluster).retries(0).dead_letters("dead");
    let run = run(builder.backoff(limiter.clone()), |_| async {
        Err::<(), _>("no")
    });
    let partition = || run.consumer.status().partitions.first().cloned();
    let (mut refused, mut is_failure) = (false, false);
    until("it has its letter", || {
        let found = partition();
        let oldest = found
            .as_ref()
            .and_then(|partition| partition.oldest.as_ref());
        refused |= oldest.is_some_and(|oldest| oldest.doing == Doing::Unburied);
        is_failure |= limiter.len() > 0;
        let (is_finished, letters) = (
            found.is_some_and(|partition| partition.base == 1),
            run.consumer.status().dead_letters,
        );
        assert!(!is_finished || letters == 1);
        is_finished
    })
    .await;
    assert!(refused && is_failure);
    run.end().await.expect("no error");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4, R7
async fn a_stall_has_a_name() {
    let cluster = cluster(1);
    produce(
        &cluster,
        &[
            (Some("bad"), Some("0")),
            (Some("good"), Some("1")),
            (Some("bad"), Some("2")),
        ],
    )
    .await;
    let builder = builder(&cluster)
        .exhausted(Exhausted::Block)
        .stalled_after(Duration::from_millis(1));
    let run = run(builder.retries(0), move |record: Record| {
        let result = if text(record.key()) == "bad" {
            Err("no route")
        } else {
            Ok(())
        };
        async move { result }
    });
    let oldest = || run.consumer.status().partitions.first()?.oldest.clone();
    until("it has failed twice", || {
        oldest().is_some_and(|oldest| oldest.attempts >= 2 && oldest.doing == Doing::BackingOff)
    })
    .await;
    let (status, found) = (run.consumer.status(), oldest().expect("the oldest"));
    let partition = &status.partitions[0];
    assert_eq!(
        (
            partition.base,
            partition.next,
            partition.finished_beyond,
            partition.records,
            partition.failing
        ),
        (0, Some(3), 1, 2, 1)
    );
    assert_eq!(
        (
            found.offset,
            found.key.as_deref(),
            found.error.as_deref(),
            found.is_stalled
        ),
        (0, Some("bad"), Some("no route"), true)
    );
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.left), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn the_last_error_of_the_client_has_its_reason() {
    // Nobody listens there.
    let builder = Consumer::builder("127.0.0.1:1", "group").topics(["topic"]);
    let run = run(builder, |_| async {});
    let consumer = run.consumer.clone();
    until("an error", || consumer.status().last_error.is_some()).await;
    run.end().await.expect("no error");
    let error = consumer.status().last_error.expect("an error");
    let has_reason = ["127.0.0.1:1", "brokers are down"].map(|reason| error.contains(reason));
    assert!(has_reason.contains(&true), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R7
async fn a_member_whose_commits_are_refused_begins_nothing_after_half_of_the_session() {
    let cluster = cluster(1);
    let (notes, go) = (Notes::default(), Gate::default());
    let (of_run, gate) = (notes.clone(), go.clone());
    let run = run(of_brokers(&cluster), move |record| {
        let (notes, gate) = (of_run.clone(), gate.clone());
        async move {
            let offset = record.offset();
            notes.add(offset.to_string());
            if offset == 1 {
                gate.pass().await;
            }
        }
    });
    let status = || run.consumer.status();
    produce(&cluster, &[(Some("a"), Some("x")), (Some("b"), Some("x"))]).await;
    until("both have begun", || notes.len() == 2).await;
    // While nothing changes, the same is committed again.
    until("two sessions have passed", || {
        let oldest = status().partitions[0].oldest.clone();
        oldest.is_some_and(|oldest| oldest.age > Duration::from_secs(2))
    })
    .await;
    until("the lease is renewed", || status().held_up.is_none()).await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
    let refused = async || {
        let before = status().commit_errors;
        until("a commit is refused", || status().commit_errors > before).await;
    };
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &vec![error; 100_000]);
    // Then none is on its way.
    refused().await;
    until("nothing begins", || status().held_up.is_some()).await;
    let records: Vec<_> = (0..10).map(|_| (None, Some("x"))).collect();
    produce(&cluster, &records).await;
    until("they are in memory", || {
        status().partitions[0].records == 11 || notes.len() > 2
    })
    .await;
    refused().await;
    assert_eq!(notes.len(), 2);
    let error = status().last_error.expect("it is noted");
    assert!(error.starts_with("an offset is not committed"), "{error}");
    // What runs goes on.
    go.open();
    until("it ends", || status().finished == 2).await;
    assert_eq!(notes.len(), 2);
    cluster.clear_request_errors(RDKafkaApiKey::OffsetCommit);
    until("all", || status().finished == 12).await;
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.uncommitted, ended.left, notes.len()), (0, 0, 12));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn each_topic_says_what_becomes_of_what_is_exhausted() {
    let cluster = cluster(1);
    create(&cluster, "other", &[1]);
    for topic in ["topic", "other"] {
        produce_into(&cluster, topic, 0, &[(Some("bad"), Some("x"))]).await;
    }
    let builder = builder(&cluster)
        .topics(["^topic$", "^other$"])
        .retries(0)
        .exhausted(Exhausted::Block);
    let run = run(builder.exhausted_of("other", Exhausted::Skip), |_| async {
        Err::<(), _>("no")
    });
    let of = |topic: &str, is: fn(&PartitionStatus) -> bool| {
        let partitions = run.consumer.status().partitions;
        partitions.iter().any(|of| &*of.topic == topic && is(of))
    };
    until("one is skipped", || of("other", |of| of.base == 1)).await;
    until("one blocks", || {
        of("topic", |of| {
            let oldest = of.oldest.as_ref();
            of.base == 0 && oldest.is_some_and(|oldest| oldest.attempts >= 3)
        })
    })
    .await;
    let ended = run.end().await.expect("no error");
    assert_eq!((ended.finished, ended.skipped, ended.left), (0, 1, 1));
}
