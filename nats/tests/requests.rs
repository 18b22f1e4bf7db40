//! N12: no request has a partition wait for longer than a limit of its own, whichever of them is lost.

mod common;

use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::time::Duration;

use async_nats::jetstream;
use futures_util::TryStreamExt;
use futures_util::future::join_all;
use keyqueue_nats::{Config, Delivery, Fleet, Producer, Verdict, create, dead_letter};
use servers::nats::Server;
use servers::until;
use tokio::time::{Instant, timeout};

use common::{
    DONE, Log, Replica, Swallow, config, count, created, keys, killed, letters, logged, logging,
    one, one_retry, run, seen, stored,
};

/// The requests of a replica that takes a partition over, has its connection broken, and leaves: there are about 39, and two more for
/// each second that it takes longer, in which it renews its lease.
const REQUESTS: usize = 48;
/// How long a partition may stand still beside the lease.
const STILL: Duration = Duration::from_secs(3);
/// For a machine that is busy with a fleet for each request. One without a limit of its own takes 10 s.
const BUSY: Duration = Duration::from_secs(2);

/// With a server that has many records, the names of them.
const COUNTS: &str = "STREAM.INFO.KV_WORK-counts";
const HOUR: Duration = Duration::from_secs(3600);

fn failed(wait: Duration) -> Verdict<String> {
    Verdict::RetryAfter("bad".to_owned(), wait)
}

/// How long a partition has stood still while a request was lost.
struct Lost {
    request: String,
    taken_over: Duration,
    connected: Duration,
    left: Duration,
}

async fn lost(server: &Server, nth: usize) -> Lost {
    let config = Config {
        stream: format!("LOST{nth}"),
        subject: format!("lost{nth}"),
        ..one()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    producer.add("first", "").await.unwrap();
    killed(server, &config, 1, 1).await;

    let log = Log::default();
    let proxy = Swallow::start(server.url()).await;
    let fleet = Fleet::join(proxy.client().await, config.clone(), "b").await;
    let fleet = fleet.unwrap();
    proxy.lose(nth);
    let began = Instant::now();
    let Replica { fleet, running } = run(fleet, logging(&log, |_| ready(DONE)));
    until("it is taken over", async || count(&log, "first") == 1).await;
    let taken_over = began.elapsed();
    proxy.break_all();
    let began = Instant::now();
    producer.add("second", "").await.unwrap();
    until("the connection is back", async || {
        count(&log, "second") == 1
    })
    .await;
    let connected = began.elapsed();
    let began = Instant::now();
    // What it abandons is told by the time that it takes.
    let _ = fleet.leave(Duration::from_secs(10)).await;
    running.abort();
    Lost {
        request: proxy.requests().get(nth).cloned().unwrap_or_default(),
        taken_over,
        connected,
        left: began.elapsed(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_request_is_lost_a_partition_goes_on() {
    let Some(server) = Server::start().await else {
        return;
    };
    let all = join_all((0..REQUESTS).map(|nth| lost(&server, nth))).await;
    let mut late = Vec::new();
    for (nth, lost) in all.iter().enumerate() {
        let Lost {
            request,
            taken_over,
            connected,
            left,
        } = lost;
        let text = format!("{nth:2} {taken_over:5.1?} {connected:5.1?} {left:5.1?} {request}");
        println!("{text}");
        if *taken_over > config().lease + STILL + BUSY || connected.max(left) > &(STILL + BUSY) {
            late.push(text);
        }
    }
    let lost = all.iter().filter(|lost| !lost.request.is_empty()).count();
    assert!(lost > REQUESTS / 2, "only {lost} were lost");
    assert_eq!(all.last().unwrap().request, "", "there are more");
    assert!(late.is_empty(), "{late:#?}");
}

/// N12: dead letters are listed whichever request is lost, or comes to a server that does not know the new consumer yet (503).
#[tokio::test]
async fn whichever_request_is_lost_dead_letters_are_listed() {
    let config = letters();
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client);
    for n in 0..3 {
        let stored = context.publish("dead", n.to_string().into()).await;
        stored.unwrap().await.unwrap();
    }
    let proxy = Swallow::start(server.url()).await;
    let client = proxy.client().await;
    proxy.lose(usize::MAX - 1);
    dead_letter::list(&client, &config, 0, 10).await.unwrap();
    let requests = proxy.requests();
    // The first one looks for the stream: its limit is the client's.
    for (nth, request) in requests.iter().enumerate().skip(1) {
        for misdirected in [false, true] {
            match misdirected {
                false => proxy.lose(nth),
                true => proxy.misdirect(nth),
            }
            let list = dead_letter::list(&client, &config, 0, 10);
            let list = timeout(STILL + BUSY, list).await;
            let list = list.unwrap_or_else(|_| panic!("{request} is lost: {misdirected}"));
            let letters = list.unwrap_or_else(|error| panic!("{request} is lost: {error}"));
            assert_eq!(letters.len(), 3, "{request} is lost");
        }
    }
}

/// N12: the consumer by which a replica sees what the others do may die with its server, without a word.
#[tokio::test]
async fn a_replica_sees_the_others_again_when_its_watcher_has_died() {
    // With a short one a replica finds out by itself that the others' leases have ended.
    let config = Config {
        lease: Duration::from_secs(8),
        ..config()
    };
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let first = Replica::logging(&server, &config, "a", &log).await;
    let second = Replica::logging(&server, &config, "b", &log).await;
    first.owns(2).await;
    second.owns(2).await;
    let bucket = jetstream::new(client).get_stream("KV_WORK-owners").await;
    let bucket = bucket.unwrap();
    let watchers: Vec<String> = bucket.consumer_names().try_collect().await.unwrap();
    assert_eq!(watchers.len(), 2);
    for watcher in watchers {
        bucket.delete_consumer(&watcher).await.unwrap();
    }
    first.leave().await;
    let began = Instant::now();
    second.owns(4).await;
    let took = began.elapsed();
    println!("after {took:?}");
    assert!(took < STILL + BUSY, "{took:?}");
}

/// N12: a key whose payload cannot be read again waits for a limit, too.
#[tokio::test]
async fn a_payload_that_is_read_again() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let _replica = logged(proxy.client().await, &config, "a", &log, |_| {
        ready(failed(Duration::from_millis(500)))
    })
    .await;
    producer.add("key", "").await.unwrap();
    until("it has failed", async || count(&log, "key") == 1).await;
    proxy.lose_named(Some("STREAM.MSG.GET.WORK"));
    until("it is read", async || {
        proxy
            .requests()
            .iter()
            .any(|subject| subject.contains("STREAM.MSG.GET.WORK"))
    })
    .await;
    proxy.lose_named(None);
    let began = Instant::now();
    until("it is tried again", async || count(&log, "key") > 1).await;
    let took = began.elapsed();
    println!("after {took:?}");
    assert!(took < STILL + BUSY, "{took:?}");
}

/// N8, N12: a new owner asks once which keys fail, however many, and reads the count of one when it is delivered. A healthy key waits for
/// no count.
#[tokio::test]
async fn which_keys_fail_is_asked_for_once() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("bad", 300)).await;
    let log = Log::default();
    let first = logged(server.client().await, &config, "a", &log, |_| {
        ready(failed(HOUR))
    })
    .await;
    until("all have failed", async || count(&log, "bad-") == 300).await;
    first.leave().await;
    let proxy = Swallow::start(server.url()).await;
    let _second = logged(proxy.client().await, &config, "b", &log, |_| pending()).await;
    until("each task has one", async || count(&log, "bad-") == 308).await;
    let attempts = log.lock().unwrap()[300..]
        .iter()
        .map(|seen| seen.attempt)
        .max();
    assert_eq!(attempts, Some(2));
    let requests = proxy.requests().into_iter();
    let counts: Vec<_> = requests
        .filter(|to| to.contains("KV_WORK-counts"))
        .collect();
    // To join, for the names, and for those that come after these.
    let names = counts.iter().filter(|to| to.contains(COUNTS)).count();
    // For the epoch, for the keys that the eight tasks have, and for some that come before the names.
    let reads = counts.iter().filter(|to| to.contains("MSG.GET")).count();
    let is_few = names <= 3 && reads < 50 && counts.len() == names + reads;
    assert!(is_few, "{} requests: {counts:?}", counts.len());
}

/// N8, N12: however long that takes: keys are delivered meanwhile, with their counts.
#[tokio::test]
async fn deliveries_do_not_wait_for_the_counts_of_failing_keys() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    producer.add("bad", "").await.unwrap();
    let log = Log::default();
    let handler = |delivery: Delivery| {
        ready(match delivery.key() {
            "bad" => failed(HOUR),
            _ => DONE,
        })
    };
    let first = logged(server.client().await, &config, "a", &log, handler).await;
    until("it has failed", async || count(&log, "bad") == 1).await;
    first.leave().await;
    producer.add("healthy", "").await.unwrap();
    let proxy = Swallow::start(server.url()).await;
    let fleet = Fleet::join(proxy.client().await, config.clone(), "b").await;
    proxy.lose_named(Some(COUNTS));
    let _second = run(fleet.unwrap(), logging(&log, handler));
    until("both are delivered", async || {
        count(&log, "healthy") == 1 && count(&log, "bad") == 2
    })
    .await;
    let attempts = seen(&log);
    let attempts = attempts.iter().map(|seen| (&*seen.key, seen.attempt));
    let attempts: BTreeMap<_, _> = attempts.collect();
    assert_eq!(attempts, BTreeMap::from([("bad", 2), ("healthy", 1)]));
    until("it is tried again", async || {
        let requests = proxy.requests().into_iter();
        requests.filter(|subject| subject.contains(COUNTS)).count() > 2
    })
    .await;
}

/// How often a take-over of this many keys, from a replica that was killed when it had received them, writes what it may have in hand.
async fn take_over(config: &Config, many: usize) -> Option<usize> {
    let (server, _, producer) = created(config).await?;
    stored(&producer, keys("key", many)).await;
    killed(&server, config, 1, 8).await;
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let _second = logged(proxy.client().await, config, "b", &log, |_| ready(DONE)).await;
    until("all are handled", async || count(&log, "key-") == many).await;
    let requests = proxy.requests().into_iter();
    let is_written = |subject: &String| subject.starts_with("$KV.WORK-counts.1.");
    let records = requests.filter(is_written);
    Some(records.filter(|subject| !subject.contains(".e.")).count())
}

/// N12: a take-over writes no record for each key that the killed replica had received, if nothing follows from it.
#[tokio::test]
async fn a_take_over_writes_nothing_for_what_was_received() {
    if let Some(writes) = take_over(&one(), 300).await {
        assert_eq!(writes, 0);
    }
}

/// N12: if a key may be given up, it writes a record for many keys at a time.
#[tokio::test]
async fn a_take_over_writes_few_records_of_what_it_may_have_in_hand() {
    let config = one_retry();
    if let Some(writes) = take_over(&config, 1500).await {
        println!("{writes} writes");
        assert!((1..120).contains(&writes), "{writes} writes");
    }
}
