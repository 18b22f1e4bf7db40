//! N14: epochs and fences only grow, whatever is deleted, however many keys fail, and if a clock steps back.

mod common;

use std::collections::BTreeMap;
use std::future::ready;
use std::iter;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream;
use async_nats::jetstream::message::StreamMessage;
use futures_util::{FutureExt, StreamExt};
use keyqueue_nats::{Config, Event, Producer, Verdict, create, repartition};
use servers::nats::Server;
use servers::until;
use tokio::sync::watch;
use tokio::time::sleep;

use common::{
    DONE, Log, Replica, Seen, Swallow, config, count, created, drained, gated, keys, logged, one,
    payloads, seen, stored,
};

const KEYS: usize = 40;

/// Adds all keys, and waits until they are done.
async fn round(server: &Server, config: &Config, log: &Log, rounds: usize) {
    let producer = Producer::new(server.client().await, config).unwrap();
    stored(&producer, keys("key", KEYS)).await;
    until("all keys come", async || {
        count(log, "key-") >= rounds * KEYS
    })
    .await;
    drained(server, config).await;
}

/// The fences of each key grow.
fn grows(log: &Log, owners: usize) {
    let mut fences = BTreeMap::<String, Vec<u64>>::new();
    for seen in seen(log) {
        fences.entry(seen.key).or_default().push(seen.fence.epoch);
    }
    for (key, mut epochs) in fences {
        assert!(epochs.is_sorted(), "the epochs of {key}: {epochs:?}");
        epochs.dedup();
        assert_eq!(epochs.len(), owners, "the epochs of {key}: {epochs:?}");
    }
}

/// The records of the bucket of owners.
async fn copied(server: &Server) -> Vec<StreamMessage> {
    let context = jetstream::new(server.client().await);
    let bucket = context.get_stream("KV_WORK-owners").await.unwrap();
    let state = &bucket.cached_info().state;
    let mut records = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        // Others were replaced.
        records.extend(bucket.get_raw_message(sequence).await.ok());
    }
    assert!(!records.is_empty());
    records
}

/// Deletes the bucket of owners, and makes it again on a machine whose clock was set back by this, with these records.
async fn made_again(server: &Server, config: &Config, back: Duration, copy: Vec<StreamMessage>) {
    let client = server.client().await;
    let context = jetstream::new(client.clone());
    let bucket = context.get_stream("KV_WORK-owners").await.unwrap();
    let mut bucket = bucket.cached_info().config.clone();
    context.delete_stream("KV_WORK-owners").await.unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = (now - back).as_millis();
    bucket.first_sequence = Some(u64::try_from(first).unwrap());
    context.create_stream(bucket).await.unwrap();
    for record in copy {
        let stored = context.publish(record.subject, record.payload).await;
        stored.unwrap().await.unwrap();
    }
    create(&client, config).await.unwrap();
}

enum End {
    Leaves,
    IsKilled,
    Runs,
    /// It runs, and the bucket is an old copy, which has its session.
    RunsBesideACopy,
}

const MINUTE: Duration = Duration::from_secs(60);

async fn a_clock_that_steps_back(end: End, back: Duration) {
    let config = config();
    let Some((server, _, _)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let mut first = Some(Replica::logging(&server, &config, "a", &log).await);
    round(&server, &config, &log, 1).await;
    let mut copy = Vec::new();
    match end {
        End::Leaves => first.take().unwrap().leave().await,
        End::IsKilled => first.take().unwrap().running.abort(),
        End::Runs => {}
        End::RunsBesideACopy => {
            copy = copied(&server).await;
            // It renews its lease meanwhile.
            sleep(config.lease).await;
        }
    }
    let events = first.as_ref().map(|first| first.fleet.events());
    made_again(&server, &config, back, copy).await;
    let replica = match first {
        Some(first) => {
            // It waits for a lease.
            until("it notices", async || first.fleet.owned().is_empty()).await;
            first
        }
        None => Replica::logging(&server, &config, "b", &log).await,
    };
    round(&server, &config, &log, 2).await;
    grows(&log, 2);
    if let Some(mut events) = events {
        // N13: that, and then that it has a lease again.
        let told = iter::from_fn(|| events.next().now_or_never().flatten());
        let told = told.filter(|event| matches!(event, Event::Suspended { .. } | Event::Resumed));
        let is_it = |event: &Event| matches!(event, Event::Suspended { reason } if reason.contains("made again"));
        let next = told.skip_while(|event| !is_it(event)).nth(1);
        assert_eq!(next, Some(Event::Resumed));
    }
    replica.leave().await;
}

#[tokio::test]
async fn the_bucket_is_made_again_after_its_replicas_have_left() {
    a_clock_that_steps_back(End::Leaves, MINUTE).await;
}

#[tokio::test]
async fn the_bucket_is_made_again_after_its_replicas_were_killed() {
    a_clock_that_steps_back(End::IsKilled, MINUTE).await;
}

#[tokio::test]
async fn the_bucket_is_made_again_while_a_replica_runs() {
    a_clock_that_steps_back(End::Runs, MINUTE).await;
}

#[tokio::test]
async fn an_old_copy_of_the_bucket_is_restored_while_a_replica_runs() {
    a_clock_that_steps_back(End::RunsBesideACopy, MINUTE).await;
}

/// N14: also if its revisions are higher, because the clock is right.
#[tokio::test]
async fn an_old_copy_with_higher_revisions_is_restored_while_a_replica_runs() {
    a_clock_that_steps_back(End::RunsBesideACopy, Duration::ZERO).await;
}

/// N10: it does not take the revisions of the former bucket for ones that it has not seen.
#[tokio::test]
async fn a_bucket_that_was_made_again_is_watched_once() {
    let config = Config {
        lease: Duration::from_secs(4),
        ..config()
    };
    let Some((server, _, _)) = created(&config).await else {
        return;
    };
    let proxy = Swallow::start(server.url()).await;
    let client = proxy.client().await;
    let replica = logged(client, &config, "a", &Log::default(), |_| ready(DONE)).await;
    let fleet = &replica.fleet;
    until("it owns", async || !fleet.owned().is_empty()).await;
    made_again(&server, &config, MINUTE, Vec::new()).await;
    until("it notices", async || fleet.owned().is_empty()).await;
    until("it owns again", async || !fleet.owned().is_empty()).await;
    proxy.lose(usize::MAX - 1);
    sleep(config.lease).await;
    let requests = proxy.requests().into_iter();
    let watches = |to: &String| to.contains("CONSUMER.CREATE.KV_WORK-owners");
    let watches = requests.filter(watches).count();
    assert!(watches < 2, "it was watched again {watches} times");
}

/// N10: a partition whose noted epoch somebody has deleted goes on.
#[tokio::test]
async fn the_note_of_an_epoch_is_deleted() {
    let config = one();
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let first = Replica::logging(&server, &config, "a", &log).await;
    round(&server, &config, &log, 1).await;
    first.leave().await;
    let counts = jetstream::new(client).get_key_value("WORK-counts").await;
    let (counts, note) = (counts.unwrap(), "1.e.0");
    counts.delete(note).await.unwrap();
    let next = Replica::logging(&server, &config, "b", &log).await;
    round(&server, &config, &log, 2).await;
    grows(&log, 2);
    let noted = counts.get(note).await.unwrap().expect("it is noted again");
    let epoch = seen(&log).last().unwrap().fence.epoch;
    assert_eq!(noted, epoch.to_string());
    next.leave().await;
}

/// The epochs are as high as before because their base was raised. That of the partitions of another number is not.
#[tokio::test]
async fn the_number_of_partitions_is_changed_after_the_bucket_was_made_again() {
    let old = config();
    let new = Config {
        partitions: 7,
        ..old.clone()
    };
    let Some((server, client, _)) = created(&old).await else {
        return;
    };
    let log = Log::default();
    for (rounds, name) in [(1, "a"), (2, "b")] {
        let replica = Replica::logging(&server, &old, name, &log).await;
        round(&server, &old, &log, rounds).await;
        replica.leave().await;
        if rounds == 1 {
            made_again(&server, &old, MINUTE, Vec::new()).await;
        }
    }
    repartition(&client, &new).await.unwrap();
    let replica = Replica::logging(&server, &new, "c", &log).await;
    round(&server, &new, &log, 3).await;
    grows(&log, 3);
    replica.leave().await;
}

/// N1, N14: a replica that was not ended goes on after a change of the number and one back: not before what the other number's replicas have
/// left is handled, and with epochs above theirs.
#[tokio::test]
async fn a_replica_stays_while_the_number_is_changed_and_back() {
    let old = config();
    let new = Config {
        partitions: 7,
        ..old.clone()
    };
    let Some((server, client, _)) = created(&old).await else {
        return;
    };
    let log = Log::default();
    let stays = Replica::logging(&server, &old, "a", &log).await;
    round(&server, &old, &log, 1).await;
    repartition(&client, &new).await.unwrap();
    let between = Replica::logging(&server, &new, "b", &log).await;
    round(&server, &new, &log, 2).await;
    between.leave().await;
    let gate = watch::Sender::new(false);
    let waits = gated(&gate);
    let between = logged(client.clone(), &new, "c", &log, waits).await;
    let producer = Producer::new(client.clone(), &new).unwrap();
    stored(&producer, keys("key", KEYS).map(|(key, _)| (key, "first"))).await;
    until("all partitions have an owner", async || {
        between.fleet.owned().len() == 7 && count(&log, "key-") > 2 * KEYS
    })
    .await;
    // The notes of its epochs are gone.
    let context = jetstream::new(client.clone());
    context.delete_stream("KV_WORK-counts").await.unwrap();
    create(&client, &new).await.unwrap();
    let back = tokio::spawn({
        let (client, old) = (client.clone(), old.clone());
        async move { repartition(&client, &old).await }
    });
    let producer = Producer::new(client.clone(), &old).unwrap();
    let producer = producer.patience(Duration::from_secs(5));
    stored(&producer, keys("key", KEYS).map(|(key, _)| (key, "second"))).await;
    // Several tries of the replica that stays.
    sleep(Duration::from_secs(1)).await;
    let later = |seen: &Seen| seen.payloads.contains(&"second".to_owned());
    let early = seen(&log).into_iter().find(later);
    assert_eq!(early, None, "before the streams are drained");
    gate.send_replace(true);
    back.await.unwrap().unwrap();
    drained(&server, &old).await;
    for (key, payloads) in payloads(&log) {
        assert_eq!(payloads, ["", "", "first", "second"], "{key}");
    }
    grows(&log, 4);
    between.running.abort();
    stays.leave().await;
}

/// Thousands of failures in a second, which are counted on the server, are more records than the milliseconds that they take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_failures_and_both_buckets_are_made_again() {
    let config = Config {
        max_backoff: Duration::from_millis(10),
        ..config()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let failing = logged(client.clone(), &config, "a", &log, |_| {
        ready(Verdict::Retry("bad".to_owned()))
    })
    .await;
    stored(&producer, keys("key", KEYS)).await;
    until("thousands of failures", async || {
        count(&log, "key-") > 20_000
    })
    .await;
    // Nobody has owned a partition meanwhile: the next owner is the first one that sees how far the revisions are.
    failing.leave().await;
    let moved = Replica::logging(&server, &config, "b", &log).await;
    drained(&server, &config).await;
    moved.leave().await;
    let context = jetstream::new(client.clone());
    for bucket in ["KV_WORK-owners", "KV_WORK-counts"] {
        // There was one once.
        let _ = context.delete_stream(bucket).await;
    }
    create(&client, &config).await.unwrap();
    let before = seen(&log).len() / KEYS;
    let last = Replica::logging(&server, &config, "c", &log).await;
    round(&server, &config, &log, before + 1).await;
    grows(&log, 3);
    last.leave().await;
}
