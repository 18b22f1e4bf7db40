//! What is counted of a key, when the server does not reply, or another replica takes over.

mod common;

use std::future::{pending, ready};
use std::pin::Pin;
use std::time::Duration;

use async_nats::{Client, jetstream};
use futures_util::{FutureExt, Stream, StreamExt};
use keyqueue_nats::{Config, Delivery, Event, Fleet, Verdict, dead_letter};
use servers::nats::Server;
use servers::until;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use common::{
    DONE, Log, Replica, Swallow, another_consumer, consumers, count, created, drained, gated, keys,
    killed, letters, logged, logging, messages, one, one_retry, run, run_many, seen, stored, told,
};

fn later(time: Duration) -> Verdict<String> {
    Verdict::RetryAfter("bad".to_owned(), time)
}

/// N15: keys that hang, and may have killed, keep others for a lease.
#[tokio::test]
async fn suspects_that_hang_do_not_keep_others_waiting() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    for kind in ["hangs", "quick"] {
        stored(&producer, keys(kind, 8)).await;
    }
    let join = async |name| Fleet::join(client.clone(), config.clone(), name).await;
    // The first death is not counted.
    for name in ["a", "b"] {
        let log = Log::default();
        let hangs = logging(&log, |_| pending());
        let killed = run_many(join(name).await.unwrap(), 64, hangs);
        until("they are in hand", async || seen(&log).len() == 16).await;
        killed.running.abort();
    }
    let handler = |delivery: Delivery| async move {
        if delivery.key().starts_with("hangs") {
            pending::<()>().await;
        }
        DONE
    };
    let _next = run_many(join("c").await.unwrap(), 64, handler);
    until("the others are handled", async || {
        messages(&server, &config).await == 8
    })
    .await;
}

/// N15: what was in hand counts, also if the owner has died when its last consumer had received nothing.
#[tokio::test]
async fn a_key_in_hand_counts_after_another_consumer() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    producer.add("key", "").await.unwrap();
    let proxy = Swallow::start(server.url()).await;
    let log = Log::default();
    let first = logged(client.clone(), &config, "a", &log, |_| pending()).await;
    until("it is in hand", async || seen(&log).len() == 1).await;
    first.running.abort();
    let second = logged(proxy.client().await, &config, "b", &log, |_| pending()).await;
    until("it is in hand again", async || seen(&log).len() == 2).await;
    proxy.lose_named(Some("CONSUMER.MSG.NEXT"));
    proxy.break_all();
    another_consumer(&client, &log).await;
    second.running.abort();
    let _next = logged(client, &config, "c", &log, |_| ready(DONE)).await;
    drained(&server, &config).await;
    assert_eq!(seen(&log).last().unwrap().attempt, 2);
}

/// N15: a key that was in hand at a death, and whose partition is handed over before it is delivered again, is suspected by the next owner.
#[tokio::test]
async fn a_hand_over_hands_on_what_was_in_hand_at_a_death() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("key", 3)).await;
    // The first death is not counted.
    killed(&server, &config, 2, 3).await;
    let (log, gate) = (Log::default(), watch::Sender::new(false));
    let fleet = Fleet::join(client.clone(), config.clone(), "c").await;
    let leaves = run_many(fleet.unwrap(), 1, logging(&log, gated(&gate)));
    until("one is in hand", async || seen(&log).len() == 1).await;
    let finish = async {
        sleep(Duration::from_millis(100)).await;
        gate.send_replace(true);
    };
    tokio::join!(leaves.leave(), finish);
    let _next = logged(client.clone(), &config, "d", &log, |_| ready(DONE)).await;
    drained(&server, &config).await;
    let attempts: Vec<_> = seen(&log).iter().map(|seen| seen.attempt).collect();
    assert_eq!(attempts, [2; 3]);
}

/// N15: a key that was handled before the death, and is added again after it, is not suspected after a hand-over.
#[tokio::test]
async fn a_hand_over_suspects_nothing_that_was_handled() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, [("handled", ""), ("hangs", "")]).await;
    let (gate, open) = watch::channel("");
    let waits = move |delivery: Delivery| {
        let mut open = open.clone();
        async move {
            let _ = open.wait_for(|key| *key == delivery.key()).await;
            DONE
        }
    };
    // The first death is not counted.
    for (name, handles, left) in [("a", "", 2), ("b", "handled", 1)] {
        let log = Log::default();
        let killed = logged(client.clone(), &config, name, &log, waits.clone()).await;
        until("both are in hand", async || seen(&log).len() == 2).await;
        gate.send_replace(handles);
        until("one is handled", async || {
            messages(&server, &config).await == left
        })
        .await;
        killed.running.abort();
    }
    let log = Log::default();
    let fleet = Fleet::join(client.clone(), config.clone(), "c").await;
    let leaves = run_many(fleet.unwrap(), 1, logging(&log, waits));
    until("one is in hand", async || seen(&log).len() == 1).await;
    producer.add("handled", "").await.unwrap();
    let context = jetstream::new(client.clone());
    let stream = context.get_stream("WORK-1-0").await.unwrap();
    until("the other one has come", async || {
        let info = stream.consumer_info(&consumers(&client).await[0]).await;
        let info = info.unwrap();
        info.delivered.stream_sequence == 3
    })
    .await;
    let finish = async {
        sleep(Duration::from_millis(100)).await;
        gate.send_replace("hangs");
    };
    tokio::join!(leaves.leave(), finish);
    let _next = logged(client, &config, "d", &log, |_| ready(DONE)).await;
    drained(&server, &config).await;
    let seen = seen(&log).into_iter();
    let tries: Vec<_> = seen.map(|seen| (seen.key, seen.attempt)).collect();
    assert_eq!(tries, [("hangs".to_owned(), 2), ("handled".to_owned(), 1)]);
}

/// A success that cannot be written is written later: by a replica that goes on, or before it hands over.
async fn a_success_is_written_later(goes_on: bool) {
    let config = one();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let writes = || {
        let requests = proxy.requests().into_iter();
        requests.filter(|to| to.contains(".a.0.key")).count()
    };
    let replica = logged(
        proxy.client().await,
        &config,
        "a",
        &log,
        |delivery| async move {
            match delivery.attempt() {
                1 => later(Duration::from_secs(1)),
                _ => DONE,
            }
        },
    )
    .await;
    producer.add("key", "").await.unwrap();
    until("the failure is written", async || writes() == 1).await;
    sleep(Duration::from_millis(200)).await;
    proxy.lose_named(Some(".a.0.key"));
    until("the success cannot be written", async || writes() == 2).await;
    proxy.lose_named(None);
    if goes_on {
        until("it is written again", async || writes() == 3).await;
        replica.running.abort();
    } else {
        replica.leave().await;
    }
    producer.add("key", "").await.unwrap();
    let log = Log::default();
    let _next = logged(client, &config, "b", &log, |_| ready(DONE)).await;
    drained(&server, &config).await;
    assert_eq!(seen(&log)[0].attempt, 1);
}

#[tokio::test]
async fn a_success_is_written_again() {
    a_success_is_written_later(true).await;
}

#[tokio::test]
async fn a_success_is_written_before_a_hand_over_is_over() {
    a_success_is_written_later(false).await;
}

/// A count of failures is kept until the key is tried again, whenever the handler has asked for that.
#[tokio::test]
async fn a_count_outlasts_the_wait_of_its_key() {
    let config = one();
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let _replica = logged(client.clone(), &config, "a", &log, |delivery| {
        ready(later(match delivery.key() {
            "days" => Duration::from_secs(10 * 24 * 3600),
            _ => Duration::MAX,
        }))
    })
    .await;
    let counts = jetstream::new(client).get_stream("KV_WORK-counts").await;
    let counts = counts.unwrap();
    for (key, least) in [("days", 10), ("forever", 10_000)] {
        producer.add(key, "").await.unwrap();
        let subject = format!("$KV.WORK-counts.1.a.0.{key}");
        until("it has failed", async || {
            counts
                .get_last_raw_message_by_subject(&subject)
                .await
                .is_ok()
        })
        .await;
        let record = counts.get_last_raw_message_by_subject(&subject).await;
        let headers = record.unwrap().headers;
        let kept: u64 = headers.get("Nats-TTL").unwrap().as_str().parse().unwrap();
        assert!(kept > least * 24 * 3600, "{key}: {kept}");
    }
}

/// A replica that has lost its lease while it had keys in hand. `fails` fails then, others are given up, and a message of no producer comes.
struct Suspended {
    config: Config,
    server: Server,
    proxy: Swallow,
    client: Client,
    replica: Replica,
    events: Pin<Box<dyn Stream<Item = Event> + Send>>,
}

impl Suspended {
    async fn new(keys: &[&str]) -> Option<Self> {
        let config = letters();
        let (server, _, producer) = created(&config).await?;
        stored(&producer, keys.iter().map(|key| (key, ""))).await;
        let (log, gate) = (Log::default(), watch::Sender::new(false));
        let proxy = Swallow::start(server.url()).await;
        let client = proxy.client().await;
        let (open, ended) = (gate.subscribe(), watch::Sender::new(0));
        let mut all = ended.subscribe();
        let fleet = Fleet::join(client.clone(), config.clone(), "a").await;
        let fleet = fleet.unwrap();
        let mut events = Box::pin(fleet.events());
        let fails = move |delivery: Delivery| {
            let (mut open, ended) = (open.clone(), ended.clone());
            async move {
                let _ = open.wait_for(|open| *open).await;
                ended.send_modify(|ended| *ended += 1);
                match delivery.key() {
                    "fails" => later(Duration::from_secs(60)),
                    _ => Verdict::GiveUp("never".to_owned()),
                }
            }
        };
        let replica = run(fleet, logging(&log, fails));
        until("they are in hand", async || seen(&log).len() == keys.len()).await;
        proxy.lose_named(Some("KV.WORK-owners"));
        let suspended = |event| matches!(event, Event::Suspended { .. }).then_some(());
        told(&mut events, suspended).await;
        let context = jetstream::new(server.client().await);
        let stranger = context.publish("work.1.0.in.no/key", "".into()).await;
        stranger.unwrap().await.unwrap();
        until("the message of no producer has come", async || {
            let stream = context.get_stream("WORK-1-0").await.unwrap();
            // A test that stands still for 2 s loses the consumer, and the message comes with the next one, when there is the lease.
            let Some(name) = consumers(&client).await.pop() else {
                return true;
            };
            let info = stream.consumer_info(name).await;
            info.is_ok_and(|info| info.delivered.consumer_sequence > keys.len() as u64)
        })
        .await;
        gate.send_replace(true);
        let all = all.wait_for(|ended| *ended == keys.len()).await;
        all.unwrap();
        let it = Suspended {
            config,
            server,
            proxy,
            client,
            replica,
            events,
        };
        it.nothing_is_written().await;
        Some(it)
    }

    /// Neither a count nor a letter was sent by now.
    async fn nothing_is_written(&self) {
        // What the client sends after it has come through the proxy.
        let _ = self.client.request("nobody", "".into()).await;
        let requests = self.proxy.requests();
        assert!(requests.contains(&"nobody".to_owned()));
        let is_write = |to: &&String| to.contains(".a.0.") || *to == "dead";
        let writes: Vec<_> = requests.iter().filter(is_write).collect();
        assert!(writes.is_empty(), "{writes:?}");
    }
}

async fn the_failure_is_counted(server: &Server) {
    let context = jetstream::new(server.client().await);
    let counts = context.get_stream("KV_WORK-counts").await.unwrap();
    until("the failure is counted", async || {
        let subject = "$KV.WORK-counts.1.a.0.fails";
        let record = counts.get_last_raw_message_by_subject(subject).await;
        record.is_ok_and(|record| record.payload == "1")
    })
    .await;
}

/// N3, N15: a replica without the lease writes no counts and no letters, which another one may own by now, until it has renewed the lease.
#[tokio::test]
async fn counts_and_letters_wait_for_the_lease() {
    let Some(it) = Suspended::new(&["fails", "given-up"]).await else {
        return;
    };
    it.proxy.lose_named(None);
    let client = it.server.client().await;
    until(
        "it is given up, and there is the other letter",
        async || dead_letter::count(&client, &it.config).await.unwrap() == Some(2),
    )
    .await;
    the_failure_is_counted(&it.server).await;
}

/// N15: so does a hand-over, which is the last that can write them.
#[tokio::test]
async fn a_hand_over_waits_for_the_lease() {
    let Some(mut it) = Suspended::new(&["fails"]).await else {
        return;
    };
    let leave = it.replica.fleet.leave(Duration::from_secs(20));
    let resume = async {
        let is_over = |event| matches!(event, Event::HandedOver(_)).then_some(());
        let early = timeout(Duration::from_secs(1), told(&mut it.events, is_over)).await;
        assert!(early.is_err(), "what is counted is lost");
        it.proxy.lose_named(None);
    };
    let (left, ()) = tokio::join!(leave, resume);
    assert!(left.abandoned.is_empty(), "{left:?}");
    the_failure_is_counted(&it.server).await;
}

/// N15: so does one that begins while the replica has the lease, of a server that does not reply any more.
#[tokio::test]
async fn a_hand_over_writes_again_until_it_can() {
    let config = Config {
        // A write waits for two seconds. The second one begins with the lease as well.
        lease: Duration::from_secs(6),
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    producer.add("fails", "").await.unwrap();
    let (log, gate) = (Log::default(), watch::Sender::new(false));
    let proxy = Swallow::start(server.url()).await;
    let fleet = Fleet::join(proxy.client().await, config, "a").await;
    let fleet = fleet.unwrap();
    let mut events = fleet.events();
    let waits = gated(&gate);
    let fails = move |delivery| waits(delivery).map(|_| later(Duration::from_secs(60)));
    let replica = run(fleet, logging(&log, fails));
    until("it is in hand", async || seen(&log).len() == 1).await;
    proxy.lose_named(Some("KV.WORK-"));
    gate.send_replace(true);
    let leave = replica.fleet.leave(Duration::from_secs(60));
    let resume = async {
        let suspended = |event| {
            let is_over = matches!(event, Event::HandedOver(_));
            assert!(!is_over, "what is counted is lost");
            matches!(event, Event::Suspended { .. }).then_some(())
        };
        told(&mut events, suspended).await;
        proxy.lose_named(None);
    };
    let (left, ()) = tokio::join!(leave, resume);
    assert!(left.abandoned.is_empty(), "{left:?}");
    the_failure_is_counted(&server).await;
}

/// N15: nor is one given up that the server stores slowly.
#[tokio::test]
async fn a_hand_over_waits_for_counts_that_are_stored_slowly() {
    const KEYS: usize = 100;
    let config = Config {
        // It is renewed while they are stored, which takes 8 s.
        lease: Duration::from_secs(8),
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("key", KEYS)).await;
    let (log, gate) = (Log::default(), watch::Sender::new(false));
    let proxy = Swallow::start(server.url()).await;
    let fleet = Fleet::join(proxy.client().await, config, "a").await;
    let waits = gated(&gate);
    let fails = move |delivery| waits(delivery).map(|_| later(Duration::from_secs(60)));
    let replica = run_many(fleet.unwrap(), KEYS, logging(&log, fails));
    until("they are in hand", async || seen(&log).len() == KEYS).await;
    proxy.lose_named(Some("KV.WORK-counts"));
    gate.send_replace(true);
    until("their counts are lost", async || proxy.lost() >= KEYS).await;
    proxy.slow("KV.WORK-counts", Duration::from_millis(80));
    proxy.lose_named(None);
    let left = replica.fleet.leave(Duration::from_secs(60)).await;
    assert!(left.abandoned.is_empty(), "{left:?}");
    let context = jetstream::new(server.client().await);
    let counts = context.get_stream("KV_WORK-counts").await.unwrap();
    let names = counts.info_with_subjects("$KV.WORK-counts.1.a.0.>").await;
    assert_eq!(names.unwrap().count().await, KEYS);
}

/// N3, N15: nor if another one has taken over.
#[tokio::test]
async fn counts_and_letters_of_a_lost_key_are_not_written() {
    let Some(it) = Suspended::new(&["fails", "given-up"]).await else {
        return;
    };
    let _next = Replica::logging(&it.server, &it.config, "b", &Log::default()).await;
    drained(&it.server, &it.config).await;
    it.proxy.lose_named(None);
    it.replica.owns(0).await;
    it.nothing_is_written().await;
}

/// N3: a replica whose dead letter is stored after another one has taken over leaves the count to that one.
#[tokio::test]
async fn a_letter_that_is_stored_after_a_take_over_forgets_nothing() {
    let config = Config {
        // The letter waits for two seconds.
        lease: Duration::from_secs(1),
        max_retries: Some(5),
        ..one_retry()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let proxy = Swallow::start(server.url()).await;
    let handler = |delivery: Delivery| async move {
        match delivery.attempt() {
            1 => later(Duration::from_millis(10)),
            _ => Verdict::GiveUp("never".to_owned()),
        }
    };
    let first = logged(proxy.client().await, &config, "a", &Log::default(), handler).await;
    let mut events = first.fleet.events();
    first.owns(1).await;
    let log = Log::default();
    let bad = |_| ready(later(Duration::from_secs(60)));
    let next = logged(client.clone(), &config, "b", &log, bad).await;
    sleep(config.lease).await;
    proxy.hold(Some("dead"));
    producer.add("key", "").await.unwrap();
    until("another one has failed", async || count(&log, "key") == 1).await;
    first.owns(0).await;
    proxy.hold(None);
    sleep(Duration::from_secs(2)).await;
    let context = jetstream::new(client);
    let counts = context.get_stream("KV_WORK-counts").await.unwrap();
    let subject = "$KV.WORK-counts.1.a.0.key";
    let record = counts.get_last_raw_message_by_subject(subject).await;
    assert_eq!(record.unwrap().payload, "2");
    while let Some(Some(event)) = events.next().now_or_never() {
        assert!(!matches!(event, Event::GivenUp { .. }), "{event:?}");
    }
    next.leave().await;
}
