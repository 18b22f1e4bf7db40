//! Letters that brokers are slow to take, and those of a run that ends: on librdkafka's mock cluster.

mod common;

use std::future::ready;
use std::time::Duration;

use common::{
    Cluster, Gate, Knows, Notes, Run, builder, cluster, create, is_leaving, produce, round_trip,
    run, run_batches, two_brokers, until,
};
use keyqueue_kafka::{Doing, Ended, Outcome, Record, Verdict};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A cluster whose second broker has the letters.
fn letters_apart() -> Cluster {
    let cluster = two_brokers();
    create(&cluster, "topic", &[1]);
    create(&cluster, "dead", &[2]);
    cluster
}

/// The same without that broker: a letter is refused after half a minute.
fn without_letters() -> Cluster {
    let cluster = letters_apart();
    cluster.broker_down(2).expect("a broker");
    cluster
}

/// Waits until eight bad keys are given up, and until a good one behind them is finished although no letter is; then for the letters.
async fn letters_hold_up_no_other_key(
    cluster: &Cluster,
    run: Run,
    given_up: &Notes,
    limiter: &Knows,
) {
    let consumer = &run.consumer;
    let bad = ["a", "b", "c", "d", "e", "f", "g", "h"];
    produce(cluster, &bad.map(|key| (Some(key), Some("bad")))).await;
    let good = async {
        until("all are given up", || given_up.len() == bad.len()).await;
        produce(cluster, &[(Some("i"), Some("good"))]).await;
        until("it is finished", || consumer.status().finished == 1).await;
    };
    let good = timeout(Duration::from_secs(20), good).await;
    good.expect("before the first letter is refused");
    let status = consumer.status();
    let oldest = status.partitions[0].oldest.as_ref().expect("a record");
    assert_eq!((oldest.doing, status.dead_letters), (Doing::Unburied, 0));
    // A letter on its way is no failure.
    assert_eq!(limiter.len(), 0);
    cluster.broker_up(2).expect("a broker");
    until("letters", || consumer.status().dead_letters == 8).await;
    assert_eq!(given_up.len(), bad.len());
    let ended = run.end().await.expect("an end");
    assert_eq!((ended.finished, ended.dead_letters), (1, 8));
}

fn verdict(record: &Record, given_up: &Notes) -> Verdict<&'static str> {
    if record.payload() == Some(b"good") {
        return Verdict::Ok(Outcome::Done);
    }
    given_up.add(common::text(record.key()));
    Verdict::GiveUp("no")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn letters_that_brokers_are_slow_to_refuse_hold_up_no_other_key() {
    let (cluster, notes) = (without_letters(), Notes::default());
    let (given_up, limiter) = (notes.clone(), Knows::default());
    let settings = builder(&cluster).dead_letters("dead").concurrency(1);
    let settings = settings.backoff(limiter.clone());
    let run = run(settings, move |record| ready(verdict(&record, &given_up)));
    letters_hold_up_no_other_key(&cluster, run, &notes, &limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn letters_that_brokers_are_slow_to_refuse_hold_up_no_other_key_of_their_batch() {
    let (cluster, notes) = (without_letters(), Notes::default());
    let (given_up, limiter) = (notes.clone(), Knows::default());
    let settings = builder(&cluster).dead_letters("dead").concurrency(1);
    let settings = settings.backoff(limiter.clone());
    let run = run_batches(settings, 60, move |records| {
        let verdicts = records.iter().map(|record| verdict(record, &given_up));
        ready(verdicts.collect::<Vec<_>>())
    });
    letters_hold_up_no_other_key(&cluster, run, &notes, &limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4
async fn a_letter_that_was_late_makes_no_other_one_late() {
    let (cluster, notes) = (letters_apart(), Notes::default());
    round_trip(&cluster, 2, Duration::from_millis(1500));
    let settings = builder(&cluster).dead_letters("dead").concurrency(1);
    let go = Gate::default();
    let (handled, gate) = (notes.clone(), go.clone());
    let run = run_batches(settings, 60, move |records| {
        let verdicts = records.iter().map(|record| {
            handled.add(common::text(record.payload()));
            verdict(record, &Notes::default())
        });
        let verdicts: Vec<_> = verdicts.collect();
        let (gate, waits) = (gate.clone(), records[0].key() == Some(b"gate"));
        async move {
            if waits {
                gate.pass().await;
            }
            verdicts
        }
    });
    let status = || run.consumer.status();
    produce(&cluster, &[(Some("a"), Some("bad"))]).await;
    until("a letter", || status().dead_letters == 1).await;
    round_trip(&cluster, 2, Duration::ZERO);
    // While the only worker waits, the other two come, so that one batch has both.
    let good = Some("good");
    produce(&cluster, &[(Some("gate"), good)]).await;
    until("the gate", || notes.len() == 2).await;
    produce(&cluster, &[(Some("b"), Some("bad")), (Some("b"), good)]).await;
    until("they are held", || status().partitions[0].records == 3).await;
    go.open();
    until("all", || status().finished == 2).await;
    let ended = run.end().await.expect("an end");
    assert_eq!((ended.finished, ended.dead_letters), (2, 2));
    assert_eq!(notes.len(), 4, "each is handled once");
}

/// Ends a run, and opens a gate once it leaves.
async fn end(run: Run, gate: &Gate) -> Ended {
    let consumer = run.consumer.clone();
    let open = async {
        until("it leaves", || is_leaving(&consumer)).await;
        gate.open();
    };
    tokio::join!(run.end(), open).0.expect("an end")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4, R6
async fn a_record_that_is_given_up_while_the_run_ends_has_its_letter() {
    let cluster = letters_apart();
    // No worker waits for it until it is written.
    round_trip(&cluster, 2, Duration::from_secs(1));
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let (begun, go) = (Notes::default(), Gate::default());
    let (of_run, gate) = (begun.clone(), go.clone());
    let run = run(builder(&cluster).dead_letters("dead"), move |_| {
        of_run.add("begun");
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Verdict::<_>::GiveUp("no")
        }
    });
    until("it runs", || begun.len() == 1).await;
    let ended = end(run, &go).await;
    assert_eq!((ended.dead_letters, ended.left), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)] // R4
async fn a_record_that_is_given_up_when_nobody_waits_any_more_has_no_letter() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    produce(&cluster, &[(Some("a"), Some("x"))]).await;
    let consumer = builder(&cluster).dead_letters("dead").build();
    let consumer = consumer.expect("settings");
    let (begun, stop, of_run) = (Notes::default(), Notify::new(), consumer.clone());
    let notes = begun.clone();
    let run = consumer.run_until(stop.notified(), Duration::ZERO, move |_| {
        notes.add("begun");
        let consumer = of_run.clone();
        async move {
            // It blocks its thread, so that nothing cancels it.
            while !is_leaving(&consumer) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(50));
            Verdict::<_>::GiveUp("no")
        }
    });
    let end = async {
        until("it runs", || begun.len() == 1).await;
        stop.notify_one();
    };
    let ended = tokio::join!(run, end).0.expect("an end");
    assert_eq!((ended.dead_letters, ended.left), (0, 1));
    let letters = consumer.dead_letters().expect("there is a topic");
    let letters = tokio::task::spawn_blocking(move || letters.read()).await;
    assert_eq!(letters.expect("no panic").expect("the letters").len(), 0);
}

/// Runs a batch that gives up the first record of a key and finishes the second one, while the run ends.
async fn end_of_a_batch(cluster: &Cluster) -> Ended {
    let records = [(Some("a"), Some("bad")), (Some("a"), Some("good"))];
    produce(cluster, &records).await;
    let settings = builder(cluster).dead_letters("dead");
    let settings = settings.linger(Duration::from_secs(1));
    let (given_up, go) = (Notes::default(), Gate::default());
    let (of_run, gate) = (given_up.clone(), go.clone());
    let run = run_batches(settings, 60, move |records| {
        let verdicts = records.iter().map(|record| verdict(record, &of_run));
        let (verdicts, gate) = (verdicts.collect::<Vec<_>>(), gate.clone());
        async move {
            gate.pass().await;
            verdicts
        }
    });
    until("it runs", || given_up.len() == 1).await;
    end(run, &go).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R4, R6
async fn a_record_of_a_batch_that_is_given_up_while_the_run_ends_has_its_letter() {
    let cluster = cluster(1);
    cluster.create_topic("dead", 1, 1).expect("a topic");
    let ended = end_of_a_batch(&cluster).await;
    let ended = (ended.dead_letters, ended.finished, ended.left);
    assert_eq!(ended, (1, 1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // R2
async fn a_record_behind_one_whose_letter_the_end_cancels_is_not_finished() {
    let ended = end_of_a_batch(&without_letters()).await;
    let ended = (ended.dead_letters, ended.finished, ended.left);
    assert_eq!(ended, (0, 0, 2));
}
