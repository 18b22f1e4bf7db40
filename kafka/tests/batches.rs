//! Handlers of many records: on librdkafka's mock cluster.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use common::{
    Cluster, Gate, Notes, builder, cluster, is_finished, produce, round_trip, run, run_batches,
    until,
};
use keyqueue_kafka::{Builder, Doing, Ended, Exhausted, IntoVerdicts, Outcome, Record, Verdict};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::sync::Notify;

/// Runs batches of up to `max` until all 60 records of 6 keys are finished or skipped.
async fn batches<F, R>(cluster: &Cluster, builder: Builder, max: usize, f: F) -> Ended
where
    F: Fn(Vec<Record>) -> R + Send + Sync + 'static,
    R: Future<Output: IntoVerdicts> + Send + 'static,
{
    let keys = ["a", "b", "c", "d", "e", "f"];
    let records: Vec<_> = (0..60)
        .map(|number| (Some(keys[number % 6]), Some("x")))
        .collect();
    produce(cluster, &records).await;
    let run = run_batches(builder, max, f);
    until("all", || is_finished(&run.consumer, 60)).await;
    run.end().await.expect("no error")
}

/// Notes the batch, and that the records of each key are in order.
fn note(notes: &Notes, records: &[Record]) {
    let mut last = BTreeMap::new();
    for record in records {
        let before = last.insert(record.key().map(<[u8]>::to_vec), record.offset());
        assert!(before.is_none_or(|before| before < record.offset()));
    }
    let offsets: Vec<_> = records
        .iter()
        .map(|record| record.offset().to_string())
        .collect();
    notes.add(offsets.join(" "));
}

fn handled(notes: &Notes) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for note in notes.all() {
        note.split(' ')
            .for_each(|offset| *times.entry(offset.to_owned()).or_default() += 1);
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R1, R2
async fn a_batch_has_records_of_many_keys_each_in_order() {
    let (cluster, notes) = (cluster(1), Notes::default());
    let of_run = notes.clone();
    let ended = batches(
        &cluster,
        builder(&cluster)
            .linger(Duration::from_millis(20))
            .concurrency(2),
        12,
        move |records| {
            note(&of_run, &records);
            async {}
        },
    );
    assert_eq!(ended.await.finished, 60);
    let times = handled(&notes);
    assert_eq!((times.len(), times.values().sum::<usize>()), (60, 60));
    assert!(notes.all().iter().all(|note| note.split(' ').count() <= 12));
    assert!(notes.len() < 60, "{}", notes.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R4
async fn a_bad_record_fails_alone_and_the_others_are_finished() {
    let (cluster, notes) = (cluster(1), Notes::default());
    let of_run = notes.clone();
    let builder = builder(&cluster)
        .concurrency(1)
        .retries(1)
        .exhausted(Exhausted::Skip);
    let ended = batches(
        &cluster,
        builder.linger(Duration::from_millis(20)),
        30,
        move |records| {
            // As a transaction: a batch with the bad record is rolled back.
            let is_bad = records.iter().any(|record| record.offset() == 20);
            if !is_bad {
                note(&of_run, &records);
            }
            async move {
                match is_bad {
                    true => Err("a row violates a constraint"),
                    false => Ok(()),
                }
            }
        },
    );
    let ended = ended.await;
    assert_eq!((ended.finished, ended.skipped), (59, 1));
    let times = handled(&notes);
    assert_eq!((times.len(), times.values().max()), (59, Some(&1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R4
async fn a_verdict_for_each_keeps_the_order_of_a_key() {
    let (cluster, notes) = (cluster(1), Notes::default());
    let of_run = notes.clone();
    let builder = builder(&cluster)
        .concurrency(1)
        .linger(Duration::from_millis(20));
    let ended = batches(&cluster, builder, 60, move |records| {
        let verdict = |record: &Record| {
            // The third of each key fails once.
            let fails = record.offset() / 6 == 2 && record.attempt() == 1;
            of_run.add(format!("{} {}", record.offset() % 6, record.offset() / 6));
            match fails {
                true => Verdict::Retry("no"),
                false => Verdict::Ok(Outcome::Done),
            }
        };
        let verdicts: Vec<_> = records.iter().map(verdict).collect();
        async move { verdicts }
    });
    assert_eq!(ended.await.finished, 60);
    for key in 0..6 {
        let of_key = notes
            .all()
            .into_iter()
            .filter_map(|note| note.strip_prefix(&format!("{key} ")).map(str::to_owned));
        let of_key: Vec<usize> = of_key
            .map(|number| number.parse().expect("a number"))
            .collect();
        // What was behind the third is handled again behind it.
        let third = of_key
            .iter()
            .rposition(|number| *number == 2)
            .expect("it was handled");
        assert!(of_key[third..].iter().copied().eq(2..10), "{of_key:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn a_batch_that_panics_or_returns_too_few_verdicts_is_cut() {
    let cluster = cluster(1);
    let builder = builder(&cluster)
        .concurrency(1)
        .retries(0)
        .exhausted(Exhausted::Skip)
        .linger(Duration::from_millis(20));
    let ended = batches(&cluster, builder, 30, move |records| async move {
        if records.iter().any(|record| record.offset() == 7) {
            panic!("a bad batch");
        }
        let few = usize::from(records.iter().any(|record| record.offset() == 33));
        vec![Ok::<(), String>(()); records.len() - few]
    });
    let ended = ended.await;
    assert_eq!((ended.finished, ended.skipped), (58, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R7
async fn a_record_whose_handler_runs_is_seen_to_run_also_in_a_batch() {
    for is_batch in [false, true] {
        let cluster = cluster(1);
        produce(&cluster, &[(Some("a"), Some("x"))]).await;
        let gate = Gate::default();
        let of_run = gate.clone();
        let work = move || {
            let gate = of_run.clone();
            async move { gate.pass().await }
        };
        let run = match is_batch {
            false => run(builder(&cluster), move |_| work()),
            true => run_batches(builder(&cluster), 2, move |_| work()),
        };
        until("it runs", || {
            let partitions = run.consumer.status().partitions;
            let oldest = partitions.first().and_then(|of| of.oldest.as_ref());
            oldest.is_some_and(|oldest| oldest.doing == Doing::Running)
        })
        .await;
        gate.open();
        until("it ends", || run.consumer.status().finished == 1).await;
        run.end().await.expect("no error");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R4
async fn the_letters_of_a_batch_are_written_together_and_those_of_a_key_in_order() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    round_trip(&cluster, 1, Duration::from_millis(300));
    let began = Arc::new(OnceLock::new());
    let of_run = Arc::clone(&began);
    let settings = || builder(&cluster).dead_letters("dead");
    let builder = settings().concurrency(1).linger(Duration::from_secs(2));
    let ended = batches(&cluster, builder, 60, move |records| {
        of_run.get_or_init(Instant::now);
        let verdicts: Vec<Verdict<_>> = records.iter().map(|_| Verdict::GiveUp("no")).collect();
        async move { verdicts }
    });
    assert_eq!(ended.await.dead_letters, 60);
    // One after the other they take 18 s, and those of a key 3 s.
    let took = began.get().expect("it was called").elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    round_trip(&cluster, 1, Duration::ZERO);
    each_key_has_its_letters_in_order(settings()).await;
}

async fn each_key_has_its_letters_in_order(builder: Builder) {
    let letters = builder.build().expect("settings").dead_letters();
    let letters = letters.expect("there is a topic");
    let read = tokio::task::spawn_blocking(move || letters.read()).await;
    let mut of_keys = BTreeMap::<_, Vec<_>>::new();
    for letter in read.expect("no panic").expect("the letters") {
        let of_key = of_keys.entry(letter.key.clone()).or_default();
        of_key.push(letter.place.offset);
    }
    let is_whole = |of_key: &Vec<i64>| of_key.len() == 10 && of_key.is_sorted();
    assert!(
        of_keys.len() == 6 && of_keys.values().all(is_whole),
        "{of_keys:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2, R4
async fn letters_of_a_batch_that_are_refused_are_written_again_in_order() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    let (called, go) = (Arc::new(Notify::new()), Gate::default());
    let (of_run, gate) = (Arc::clone(&called), go.clone());
    let again = Notes::default();
    let handled = again.clone();
    let settings = || builder(&cluster).dead_letters("dead");
    let builder = settings().concurrency(1).linger(Duration::from_millis(50));
    let ended = batches(&cluster, builder, 60, move |records| {
        of_run.notify_one();
        let is_again = |record: &&Record| record.attempt() > 1;
        let twice = records.iter().filter(is_again);
        twice.for_each(|record| handled.add(record.offset().to_string()));
        let gate = gate.clone();
        let verdicts: Vec<Verdict<_>> = records.iter().map(|_| Verdict::GiveUp("no")).collect();
        async move {
            gate.pass().await;
            verdicts
        }
    });
    let refusals = async {
        called.notified().await;
        let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
        cluster.request_errors(RDKafkaApiKey::Produce, &[error; 3]);
        go.open();
    };
    let (ended, ()) = tokio::join!(ended, refusals);
    assert_eq!(ended.dead_letters, 60);
    // One that is given up is not handled again.
    assert_eq!(again.all(), [""; 0]);
    each_key_has_its_letters_in_order(settings()).await;
}
