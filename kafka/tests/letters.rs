//! Dead letters that are read, put back and dropped.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    Cluster, Knows, Notes, Run, builder, cluster, coordinate, create, has_partitions, is_committed,
    is_finished, produce, run, two_brokers, until,
};
use futures_util::future::join_all;
use keyqueue::limiter::RateLimiter;
use keyqueue_kafka::dead_letter::{self, Letters};
use keyqueue_kafka::{Builder, Consumer, Doing, Error, Outcome, Place, Verdict};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::{sleep, timeout};

fn seen(letters: &Letters) -> Vec<String> {
    let letters = letters.read().expect("the letters");
    let letter = |letter: &Arc<dead_letter::Letter>| {
        let key = common::text(letter.key.as_deref());
        let place = &letter.place;
        let (topic, partition, offset) = (&place.topic, place.partition, place.offset);
        format!(
            "{key} {topic}/{partition}/{offset}: {} after {}",
            letter.error, letter.attempts
        )
    };
    letters.iter().map(letter).collect()
}

/// Waits for the brokers in a thread that may block.
async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(f).await.expect("no panic")
}

/// Writes a letter of a record of this topic to a partition of the topic of letters.
async fn write(cluster: &Cluster, partition: i32, topic: &str) {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .create()
        .expect("a producer");
    let headers = [
        (dead_letter::TOPIC, topic),
        (dead_letter::PARTITION, "0"),
        (dead_letter::OFFSET, "0"),
        (dead_letter::GROUP, "group"),
    ];
    let headers = headers
        .into_iter()
        .fold(OwnedHeaders::new(), |headers, (key, value)| {
            let value = Some(value);
            headers.insert(Header { key, value })
        });
    let letter = FutureRecord::<str, str>::to("dead").partition(partition);
    let sent = producer.send(letter.headers(headers), Duration::from_secs(10));
    sent.await.expect("stored");
}

/// A run that has given one record up.
async fn one_letter() -> (Cluster, Run, Arc<Letters>) {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    produce(&cluster, &[(Some("a"), Some("1"))]).await;
    let settings = builder(&cluster).dead_letters("dead");
    let run = run(settings, |_| async { Verdict::<_>::GiveUp("no") });
    until("a letter", || run.consumer.status().dead_letters == 1).await;
    // Otherwise an outage that is longer than the session would repeat the record, and so the letter.
    until("it is committed", || is_committed(&run.consumer, 1)).await;
    let letters = Arc::new(run.consumer.dead_letters().expect("there is a topic"));
    (cluster, run, letters)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn a_letter_is_put_back_once_and_one_that_is_dropped_is_gone_for_every_process() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    let records = [
        (Some("bad"), Some("1")),
        (Some("bad"), Some("2")),
        (Some("bad"), None),
        (Some("good"), Some("3")),
    ];
    produce(&cluster, &records).await;
    let is_mended = Arc::new(AtomicBool::new(false));
    let (notes, mended) = (Notes::default(), Arc::clone(&is_mended));
    let of_handler = notes.clone();
    let settings = || builder(&cluster).retries(0).dead_letters("dead");
    let run = run(settings(), move |record| {
        let (notes, is_mended) = (of_handler.clone(), mended.load(Ordering::Relaxed));
        async move {
            let key = common::text(record.key());
            if key != "good" && !is_mended {
                return Verdict::GiveUp(format!("{key} fails"));
            }
            let payload = common::text(record.payload());
            let headers = record
                .headers()
                .map(|(name, value)| format!("{name}={}", common::text(value)));
            notes.add(format!(
                "{key} {payload} {}",
                headers.collect::<Vec<_>>().join(" ")
            ));
            Verdict::Ok(Outcome::Done)
        }
    });
    let count = || run.consumer.status().dead_letters == 3 && notes.len() == 1;
    until("letters", count).await;
    // Those of another group in the same topic are not this one's.
    let other = Builder::build(settings()).expect("settings");
    let here = Arc::new(run.consumer.dead_letters().expect("there is a topic"));
    let there = Arc::new(other.dead_letters().expect("there is a topic"));
    let all = [
        "bad topic/0/0: bad fails after 1",
        "bad topic/0/1: bad fails after 1",
        "bad topic/0/2: bad fails after 1",
    ];
    for letters in [&here, &there] {
        let letters = Arc::clone(letters);
        assert_eq!(blocking(move || seen(&letters)).await, all);
    }
    is_mended.store(true, Ordering::Relaxed);
    let letters = Arc::clone(&here);
    let ended = blocking(move || letters.put_back(&[1, 2, 2, 9])).await;
    assert_eq!(ended.expect("a transaction"), [true, true, false, false]);
    // The other process has read them, and has the same numbers.
    let letters = Arc::clone(&there);
    let ended = blocking(move || (letters.put_back(&[1]), letters.discard(&[3, 2])));
    let (again, dropped) = ended.await;
    assert_eq!(again.expect("a transaction"), [false]);
    assert_eq!(dropped.expect("a transaction"), [true, false]);
    let letters = Arc::clone(&here);
    assert_eq!(
        blocking(move || letters.put_back(&[3]))
            .await
            .expect("a transaction"),
        [false]
    );
    until("they are handled", || notes.len() == 3).await;
    let first_failure = |note: &String| note.rsplit_once('/').expect("a time").0.to_owned();
    assert_eq!(
        notes.all()[1..]
            .iter()
            .map(first_failure)
            .collect::<Vec<_>>(),
        [
            "bad 1 keyqueue-letter=dead/0/0",
            "bad 2 keyqueue-letter=dead/0/1"
        ]
    );
    let fresh = Builder::build(settings()).expect("settings");
    let fresh = Arc::new(fresh.dead_letters().expect("there is a topic"));
    for letters in [here, there, fresh] {
        assert_eq!(blocking(move || seen(&letters)).await, [""; 0]);
    }
    let ended = run.end().await.expect("an end");
    assert_eq!((ended.finished, ended.dead_letters), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn letters_are_written_after_a_fatal_error_of_their_producer() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    cluster.request_errors(
        RDKafkaApiKey::InitProducerId,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED],
    );
    let settings = builder(&cluster).dead_letters("dead");
    let run = run(settings, |_| async { Verdict::<_>::GiveUp("no") });
    until("it is assigned", || has_partitions(&run.consumer)).await;
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    until("the letter", || run.consumer.status().dead_letters == 1).await;
    run.end().await.expect("an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn a_letter_has_the_beginning_of_an_error_that_is_larger_than_a_record_may_be() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let settings = builder(&cluster).dead_letters("dead");
    let run = run(settings, |_| async {
        Verdict::<_>::GiveUp(format!("no: {}", "\u{20ac}".repeat(1_000_000)))
    });
    until("the letter", || run.consumer.status().dead_letters == 1).await;
    let letters = run.consumer.dead_letters().expect("there is a topic");
    let letters = blocking(move || letters.read()).await.expect("the letters");
    let error = &letters[0].error;
    let count = error.chars().count();
    assert!(
        error.starts_with("no: \u{20ac}") && count == 8192,
        "{count}"
    );
    run.end().await.expect("an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4, R5, R7
async fn a_record_fails_first_when_its_handler_says_so_and_not_when_that_delays_it() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let (said, calls) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
    let (says, of_run) = (Arc::clone(&said), Arc::clone(&calls));
    let settings = builder(&cluster).dead_letters("dead");
    let run = run(settings, move |_| {
        of_run.fetch_add(1, Ordering::SeqCst);
        let soon = Outcome::Later(Duration::from_millis(5));
        let said: Option<Verdict<String>> = says.lock().expect("no panic").take();
        async move { said.unwrap_or(Verdict::Ok(soon)) }
    });
    let oldest = || run.consumer.status().partitions.first()?.oldest.clone();
    until("it is delayed", || calls.load(Ordering::SeqCst) > 2).await;
    let found = oldest().expect("the oldest");
    assert_ne!(found.doing, Doing::BackingOff);
    assert_eq!((found.attempts, found.error), (0, None));
    assert_eq!(run.consumer.status().partitions[0].failing, 0);
    // While it is retried, not all of a long error is kept.
    *said.lock().expect("no panic") = Some(Verdict::Retry("no".repeat(1000)));
    until("it has failed", || {
        oldest().is_some_and(|of| of.attempts == 1)
    })
    .await;
    let error = oldest().and_then(|of| of.error).expect("its error");
    assert_eq!(error.len(), 512);
    *said.lock().expect("no panic") = Some(Verdict::Ok(Outcome::RequeueAfter(Duration::ZERO)));
    until("that is forgotten", || {
        oldest().is_some_and(|of| of.attempts == 0)
    })
    .await;
    *said.lock().expect("no panic") = Some(Verdict::GiveUp("no".to_owned()));
    until("the letter", || run.consumer.status().dead_letters == 1).await;
    let letters = run.consumer.dead_letters().expect("there is a topic");
    let letters = blocking(move || letters.read()).await.expect("the letters");
    assert_eq!(letters[0].first, letters[0].last);
    run.end().await.expect("an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn letters_are_read_after_an_outage_of_their_brokers() {
    let (cluster, run, letters) = one_letter().await;
    let seen = async || {
        let letters = Arc::clone(&letters);
        blocking(move || seen(&letters)).await.len()
    };
    assert_eq!(seen().await, 1);
    cluster.broker_down(1).expect("a broker");
    // What was read is not fresh any more.
    sleep(Duration::from_secs(1)).await;
    let down = Arc::clone(&letters);
    let read = blocking(move || down.read()).await;
    assert!(read.is_err());
    // Those who have waited for a look look at its end: eight looks would take 40 s.
    let reads = (0..8).map(|_| {
        let down = Arc::clone(&letters);
        blocking(move || down.read())
    });
    let reads = timeout(Duration::from_secs(20), join_all(reads)).await;
    assert!(reads.expect("two looks").iter().all(Result::is_err));
    cluster.broker_up(1).expect("a broker");
    produce(&cluster, &[(Some("a"), Some("2"))]).await;
    until("another letter", || run.consumer.status().dead_letters == 2).await;
    assert_eq!(seen().await, 2);
    run.end().await.expect("an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn a_topic_that_brokers_refuse_is_no_topic_without_letters() {
    let (cluster, run, letters) = one_letter().await;
    run.end().await.expect("an end");
    let look = async |error| {
        cluster.topic_error("dead", error).expect("a topic");
        let letters = Arc::clone(&letters);
        blocking(move || {
            let ended = letters.put_back(&[9]).map_err(|error| error.to_string());
            let read = letters.read().map(|letters| letters.len());
            (ended, read.map_err(|error| error.to_string()))
        })
        .await
    };
    let (ended, read) = look(RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).await;
    assert_eq!((ended, read), (Ok(vec![false]), Ok(1)));
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    // What was read is not fresh any more.
    sleep(Duration::from_secs(1)).await;
    let (ended, read) = look(refused).await;
    let why = "TopicAuthorizationFailed";
    assert!(ended.expect_err("it is refused").contains(why));
    assert!(read.expect_err("it is refused").contains(why));
    // It was deleted; and brokers create it.
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    let new = RDKafkaRespErr::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
    for (absent, why) in [
        (unknown, "UnknownTopicOrPartition"),
        (new, "LeaderNotAvailable"),
    ] {
        sleep(Duration::from_secs(1)).await;
        let (ended, read) = look(absent).await;
        assert!(ended.expect_err("it is not there").contains(why));
        assert_eq!(read, Ok(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn only_a_letter_whose_commit_was_asked_for_is_perhaps_put_back() {
    let (cluster, run, letters) = one_letter().await;
    run.end().await.expect("an end");
    assert_eq!(seen(&letters).len(), 1);
    for (step, is_unconfirmed) in [
        (RDKafkaApiKey::AddPartitionsToTxn, false),
        (RDKafkaApiKey::EndTxn, true),
    ] {
        let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
        cluster.request_errors(step, &[refused]);
        let letters = Arc::clone(&letters);
        let ended = blocking(move || letters.put_back(&[1])).await;
        let error = ended.expect_err("it is refused");
        let unconfirmed = matches!(error, Error::Unconfirmed { .. });
        assert_eq!(unconfirmed, is_unconfirmed, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn a_letter_whose_topic_is_gone_is_refused_and_not_waited_for() {
    let (cluster, run, letters) = one_letter().await;
    run.end().await.expect("an end");
    assert_eq!(seen(&letters).len(), 1);
    let gone = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("topic", gone).expect("a topic");
    // Nor one that brokers would create.
    write(&cluster, 0, "never").await;
    for number in [1, 2] {
        let letters = Arc::clone(&letters);
        let ended = blocking(move || letters.put_back(&[number])).await;
        let error = ended.expect_err("it is refused").to_string();
        assert!(error.contains("failed delivery"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn a_letter_that_is_put_back_into_its_topic_is_no_other_letter() {
    let (cluster, first, letters) = one_letter().await;
    first.end().await.expect("an end");
    cluster.create_topic("dead2", 1, 1).expect("a topic");
    let repair = Consumer::builder(&cluster.bootstrap_servers(), "repair")
        .topics(["dead"])
        .dead_letters("dead2");
    let run = run(repair, |_| async { Verdict::<_>::GiveUp("no") });
    until("its letter", || run.consumer.status().dead_letters == 1).await;
    let of_repair = run.consumer.dead_letters().expect("there is a topic");
    run.end().await.expect("an end");
    let list = blocking(move || {
        assert_eq!(seen(&of_repair).len(), 1);
        assert_eq!(letters.put_back(&[1]).expect("a transaction"), [true]);
        assert_eq!(of_repair.put_back(&[1]).expect("a transaction"), [true]);
        seen(&letters)
    });
    assert_eq!(list.await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn letters_are_read_while_another_broker_is_down() {
    let cluster = two_brokers();
    for topic in ["topic", "dead"] {
        create(&cluster, topic, &[1]);
    }
    produce(&cluster, &[(Some("a"), Some("1"))]).await;
    let settings = || builder(&cluster).dead_letters("dead");
    let run = run(settings(), |_| async { Verdict::<_>::GiveUp("no") });
    until("a letter", || run.consumer.status().dead_letters == 1).await;
    run.end().await.expect("an end");
    // Each client looks for the group there.
    coordinate(&cluster, 2);
    cluster.broker_down(2).expect("a broker");
    for _ in 0..10 {
        // Another one has read nothing yet.
        let consumer = Builder::build(settings()).expect("settings");
        let letters = consumer.dead_letters().expect("there is a topic");
        assert_eq!(blocking(move || seen(&letters)).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R8
async fn a_number_is_that_of_the_same_letter_in_each_call() {
    let cluster = cluster(2);
    create(&cluster, "dead", &[1, 1]);
    let settings = builder(&cluster).dead_letters("dead");
    let consumer = Builder::build(settings).expect("settings");
    let named = async || {
        let letters = consumer.dead_letters().expect("there is a topic");
        let letters = blocking(move || letters.read()).await.expect("the letters");
        let named = letters.iter().map(|of| (of.number, of.name.clone()));
        named.collect::<Vec<_>>()
    };
    let mut last = Vec::new();
    // One that reads all of them at once finds those of a partition one after the other.
    for partition in [1, 0, 1] {
        write(&cluster, partition, "topic").await;
        let now = named().await;
        assert_eq!((now.len(), &now[..last.len()]), (last.len() + 1, &last[..]));
        last = now;
        // What was read is not fresh any more.
        sleep(Duration::from_secs(1)).await;
    }
}

/// A limiter that panics when it is told of a success.
struct Panics;

impl RateLimiter<Place> for Panics {
    fn when(&self, _: &Place) -> Duration {
        Duration::from_millis(1)
    }

    fn forget(&self, key: &Place) {
        panic!("{key:?}");
    }

    fn num_requeues(&self, _: &Place) -> u32 {
        0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R3, R4
async fn a_limiter_that_panics_repeats_no_record_and_no_letter() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    let notes = Notes::default();
    let of_run = notes.clone();
    let settings = builder(&cluster).retries(1).dead_letters("dead");
    let run = run(settings.backoff(Panics), move |record| {
        let key = common::text(record.key());
        let is_first = !of_run.all().contains(&"later 1".to_owned());
        of_run.add(format!("{key} {}", record.attempt()));
        async move {
            match key.as_str() {
                "later" if is_first => Verdict::Ok(Outcome::RequeueAfter(Duration::ZERO)),
                "fails once" if record.attempt() == 1 => Verdict::Retry("no"),
                "fails" => Verdict::Retry("no"),
                _ => Verdict::Ok(Outcome::Done),
            }
        }
    });
    for (number, key) in (1..).zip(["fails once", "fails", "later"]) {
        produce(&cluster, &[(Some(key), Some("x"))]).await;
        until("it is finished", || is_finished(&run.consumer, number)).await;
    }
    let ended = run.end().await.expect("an end");
    assert_eq!((ended.finished, ended.dead_letters), (2, 1));
    let first = ["fails once 1", "fails once 2", "fails 1", "fails 2"];
    assert_eq!(notes.all()[..4], first);
    assert_eq!(notes.all()[4..], ["later 1", "later 1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R5
async fn a_limiter_does_not_keep_the_records_of_a_partition_that_is_given_back() {
    let cluster = cluster(1);
    produce(&cluster, &[(Some("a"), Some("x")), (Some("b"), Some("x"))]).await;
    let limiter = Knows::default();
    let settings = builder(&cluster).backoff(limiter.clone());
    let wait = Verdict::RetryAfter("no", Duration::from_secs(3600));
    let run = run(settings, move |_| std::future::ready(wait));
    until("both have failed", || limiter.len() == 2).await;
    let ended = run.end().await.expect("an end");
    assert_eq!((ended.left, limiter.len()), (2, 0));
}
