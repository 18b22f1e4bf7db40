//! Faults that a second pair of eyes has found: each test failed before its mend.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;
use keyqueue_nats::{
    Coalesce, Config, Delivery, Error, Event, Fleet, Outcome, Producer, Verdict, create,
    repartition,
};
use servers::Proxy;
use servers::nats::Server;
use servers::until;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use common::{Log, Replica, Seen, config, drained, messages, seen};

const DONE: Verdict<String> = Verdict::Ok(Outcome::Done);

/// One partition, so that all keys are in it.
fn one() -> Config {
    Config {
        partitions: 1,
        ..config()
    }
}

async fn replica<F, R>(client: Client, config: &Config, name: &str, handler: F) -> Replica
where
    F: Fn(Delivery) -> R + Send + Sync + 'static,
    R: Future<Output = Verdict<String>> + Send + 'static,
{
    let fleet = Fleet::join(client, config.clone(), name).await.unwrap();
    let running: JoinHandle<Result<(), Error>> = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.run(8, handler).await }
    });
    Replica { fleet, running }
}

async fn stored(producer: &Producer, batch: impl IntoIterator<Item = (String, String)>) {
    for stored in producer.add_batch(batch).await {
        stored.unwrap();
    }
}

fn count(log: &Log, prefix: &str) -> usize {
    let seen = seen(log).into_iter();
    seen.filter(|seen| seen.key.starts_with(prefix)).count()
}

/// A crowd that is in back-off for a minute, more than `window`, and a handler that serves other keys.
async fn crowd(server: &Server, proxy: &Proxy, log: &Log) -> (Config, Producer, Replica) {
    let config = Config {
        window: 50,
        ..one()
    };
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    stored(
        &producer,
        (0..100).map(|n| (format!("poison-{n}"), String::new())),
    )
    .await;
    let client = async_nats::connect(proxy.address().to_string())
        .await
        .unwrap();
    let replica = replica(client, &config, "a", {
        let log = Arc::clone(log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            ready(if delivery.key().starts_with("poison") {
                Verdict::RetryAfter("poison".to_owned(), Duration::from_secs(60))
            } else {
                DONE
            })
        }
    })
    .await;
    until("the crowd has failed", async || count(log, "poison") == 100).await;
    (config, producer, replica)
}

async fn healthy_key_comes(producer: &Producer, log: &Log) {
    producer.add("healthy", "").await.unwrap();
    let began = Instant::now();
    while count(log, "healthy") == 0 && began.elapsed() < Duration::from_secs(15) {
        sleep(Duration::from_millis(20)).await;
    }
    println!("after {:?}", began.elapsed());
    assert_eq!(count(log, "healthy"), 1, "after {:?}", began.elapsed());
    assert_eq!(count(log, "poison"), 100, "none is tried early");
}

/// N8: the copies of messages whose keys are in back-off, which come when the connection is back, take no room.
#[tokio::test]
async fn a_crowd_in_back_off_and_a_new_connection() {
    let Some(server) = Server::start().await else {
        return;
    };
    let proxy = Proxy::start(server.url()).await.unwrap();
    let log = Log::default();
    let (_config, producer, _replica) = crowd(&server, &proxy, &log).await;
    proxy.break_all();
    sleep(Duration::from_secs(3)).await;
    healthy_key_comes(&producer, &log).await;
}

/// N8: neither do new messages of such keys.
#[tokio::test]
async fn a_crowd_in_back_off_gets_new_messages() {
    let Some(server) = Server::start().await else {
        return;
    };
    let proxy = Proxy::start(server.url()).await.unwrap();
    let log = Log::default();
    let (_config, producer, _replica) = crowd(&server, &proxy, &log).await;
    stored(
        &producer,
        (0..100).map(|n| (format!("poison-{n}"), "new".to_owned())),
    )
    .await;
    healthy_key_comes(&producer, &log).await;
}

/// A key that is to be delivered again later is not delivered sooner because the connection was lost.
#[tokio::test]
async fn a_requeue_after_outlasts_a_connection() {
    let Some(server) = Server::start().await else {
        return;
    };
    let proxy = Proxy::start(server.url()).await.unwrap();
    let config = one();
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    producer.add("key", "").await.unwrap();
    let log = Log::default();
    let client = async_nats::connect(proxy.address().to_string())
        .await
        .unwrap();
    let _replica = replica(client, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            ready(Verdict::Ok(Outcome::RequeueAfter(Duration::from_secs(60))))
        }
    })
    .await;
    until("it is delivered", async || count(&log, "key") == 1).await;
    proxy.break_all();
    sleep(Duration::from_secs(4)).await;
    assert_eq!(count(&log, "key"), 1, "{:?}", seen(&log));
    producer.add("key", "new").await.unwrap();
    until("a new message comes at once", async || {
        count(&log, "key") == 2
    })
    .await;
}

/// Deletes the partition's stream, and makes it again.
async fn made_again(client: &Client, config: &Config) {
    let context = jetstream::new(client.clone());
    context
        .delete_stream(format!("{}-1-0", config.stream))
        .await
        .unwrap();
    create(client, config).await.unwrap();
}

/// N1: a message in a stream that was made again is not taken for an older one than what was in the former stream.
#[tokio::test]
async fn a_message_of_a_stream_made_again_is_handled() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = one();
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let log = Log::default();
    let _replica = replica(server.client().await, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            ready(if delivery.latest().payload == "old" {
                Verdict::RetryAfter("later".to_owned(), Duration::from_secs(6))
            } else {
                DONE
            })
        }
    })
    .await;
    for _ in 0..5 {
        producer.add("other", "").await.unwrap();
    }
    producer.add("key", "old").await.unwrap();
    until("it has failed", async || count(&log, "key") == 1).await;
    made_again(&client, &config).await;
    producer.add("key", "new").await.unwrap();
    drained(&server, &config).await;
    let of_key = seen(&log).into_iter().filter(|seen| seen.key == "key");
    let payloads: Vec<_> = of_key.flat_map(|seen| seen.payloads).collect();
    assert_eq!(payloads, ["old", "new"]);
}

/// A payload that is read again is that of the key.
#[tokio::test]
async fn a_payload_of_a_stream_made_again_is_not_another_keys() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = one();
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let log = Log::default();
    let _replica = replica(server.client().await, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            ready(Verdict::RetryAfter(
                "later".to_owned(),
                Duration::from_secs(5),
            ))
        }
    })
    .await;
    producer.add("a", "of a").await.unwrap();
    until("a has failed", async || count(&log, "a") == 1).await;
    made_again(&client, &config).await;
    producer.add("b", "of b").await.unwrap();
    until("b has failed", async || count(&log, "b") == 1).await;
    sleep(Duration::from_secs(6)).await;
    for seen in seen(&log) {
        assert_eq!(seen.payloads, [format!("of {}", seen.key)], "{seen:?}");
    }
}

/// N6: a dead letter of a stream that was made again is not taken for one of the former stream.
#[tokio::test]
async fn dead_letters_of_a_stream_made_again_are_kept() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        dead_letters: Some("dead".into()),
        ..one()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let _replica = replica(server.client().await, &config, "a", |_| {
        ready(Verdict::GiveUp("bad".to_owned()))
    })
    .await;
    producer.add("a", "").await.unwrap();
    drained(&server, &config).await;
    made_again(&client, &config).await;
    producer.add("b", "").await.unwrap();
    drained(&server, &config).await;
    let context = jetstream::new(client);
    let dead = context.get_stream("WORK-dead").await.unwrap();
    assert_eq!(dead.cached_info().state.messages, 2);
}

/// N7: what is handled, and comes again because its acknowledgement was lost, is not delivered again, however long it waits for a task.
#[tokio::test]
async fn slow_handlers_and_a_new_connection() {
    let Some(server) = Server::start().await else {
        return;
    };
    let proxy = Proxy::start(server.url()).await.unwrap();
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    for round in 0..2 {
        stored(
            &producer,
            (0..80).map(|key| (format!("key-{key}"), round.to_string())),
        )
        .await;
    }
    let log = Log::default();
    let client = async_nats::connect(proxy.address().to_string())
        .await
        .unwrap();
    let _replica = replica(client, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            async {
                sleep(Duration::from_secs(1)).await;
                DONE
            }
        }
    })
    .await;
    until("the first are done", async || seen(&log).len() > 16).await;
    sleep(Duration::from_millis(500)).await;
    proxy.break_all();
    drained(&server, &config).await;
    let mut rounds = BTreeMap::<_, Vec<String>>::new();
    for seen in seen(&log) {
        rounds.entry(seen.key).or_default().extend(seen.payloads);
    }
    rounds.retain(|_, rounds| *rounds != ["0", "1"]);
    assert!(rounds.is_empty(), "{rounds:?}");
}

/// N8: keys that may have killed the former owner wait for one another, and not healthy keys for them.
#[tokio::test]
async fn suspects_do_not_keep_healthy_keys_from_a_task() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = one();
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    stored(
        &producer,
        (0..40).map(|n| (format!("poison-{n}"), String::new())),
    )
    .await;
    let log = Log::default();
    let killed = replica(server.client().await, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            ready(Verdict::RetryAfter(
                "bad".to_owned(),
                Duration::from_secs(60),
            ))
        }
    })
    .await;
    until("they have failed", async || count(&log, "poison") == 40).await;
    sleep(Duration::from_millis(200)).await;
    killed.running.abort();
    let _next = replica(server.client().await, &config, "b", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            async move {
                if delivery.key().starts_with("healthy") {
                    return DONE;
                }
                sleep(Duration::from_secs(1)).await;
                Verdict::RetryAfter("bad".to_owned(), Duration::from_secs(60))
            }
        }
    })
    .await;
    until("it was taken over", async || count(&log, "poison") > 41).await;
    producer.add("healthy", "").await.unwrap();
    let began = Instant::now();
    until("the healthy key is delivered", async || {
        count(&log, "healthy") == 1
    })
    .await;
    let took = began.elapsed();
    println!("after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    until("the others are tried, too", async || {
        count(&log, "poison") == 80
    })
    .await;
}

/// A key that is not failing has no failures, also if its delivery may have killed the former owner.
#[tokio::test]
async fn a_suspect_that_asks_for_time_has_not_failed() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = one();
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    producer.add("key", "").await.unwrap();
    let log = Log::default();
    let killed = replica(server.client().await, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            std::future::pending()
        }
    })
    .await;
    until("it runs", async || seen(&log).len() == 1).await;
    killed.running.abort();
    let _next = replica(server.client().await, &config, "b", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            ready(Verdict::Ok(Outcome::Later(Duration::from_millis(100))))
        }
    })
    .await;
    until("it is delivered again", async || seen(&log).len() >= 4).await;
    let attempts: Vec<_> = seen(&log).iter().map(|seen| seen.attempt).collect();
    assert!(attempts.iter().all(|attempt| *attempt == 1), "{attempts:?}");
}

/// A key that was given up by an owner, and then handled by the next one, is no dead letter.
#[tokio::test]
async fn a_key_that_the_next_owner_has_handled_is_no_dead_letter() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        dead_letters: Some("dead".into()),
        partitions: 2,
        ..config()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let context = jetstream::new(client.clone());
    context.delete_stream("WORK-dead").await.unwrap();
    let first = replica(server.client().await, &config, "a", |_| {
        ready(Verdict::GiveUp("bad".to_owned()))
    })
    .await;
    let mut events = first.fleet.events();
    for key in 0..20 {
        producer.add(&format!("key-{key}"), "").await.unwrap();
    }
    while !matches!(
        events.next().await.unwrap(),
        Event::DeadLetterRefused { .. }
    ) {}
    let (log, well) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let second = replica(server.client().await, &config, "b", {
        let (log, well) = (Arc::clone(&log), Arc::clone(&well));
        move |delivery| {
            log.lock().unwrap().push(Seen::of(&delivery));
            ready(if well.load(Relaxed) {
                DONE
            } else {
                Verdict::RetryAfter("not yet".to_owned(), Duration::from_millis(100))
            })
        }
    })
    .await;
    until("a partition moves", async || {
        second.fleet.owned().len() == 1 && first.fleet.owned().len() == 1
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    create(&client, &config).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    well.store(true, Relaxed);
    drained(&server, &config).await;
    let handled: BTreeSet<_> = seen(&log).into_iter().map(|seen| seen.key).collect();
    assert!(!handled.is_empty());
    let dead = context.get_stream("WORK-dead").await.unwrap();
    let letters = dead.cached_info().state.messages;
    assert_eq!(
        letters,
        20 - handled.len() as u64,
        "{handled:?} were handled"
    );
}

/// A replica that waits to begin again leaves in time.
#[tokio::test]
async fn a_replica_that_begins_again_leaves_in_time() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        lease: Duration::from_secs(8),
        ..one()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    until("it owns", async || replica.fleet.owned().len() == 1).await;
    let mut events = replica.fleet.events();
    let context = jetstream::new(client.clone());
    context.delete_stream("KV_WORK-owners").await.unwrap();
    create(&client, &config).await.unwrap();
    loop {
        match events.next().await.unwrap() {
            Event::Suspended { reason } if reason.contains("made again") => break,
            _ => {}
        }
    }
    let began = Instant::now();
    replica.fleet.leave(Duration::from_millis(500)).await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    replica.running.await.unwrap().unwrap();
}

/// N11: the payloads of a key that has failed are bounded, too.
#[tokio::test]
async fn what_is_read_again_is_bounded() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        coalesce: Coalesce::Never,
        max_held_bytes: 1 << 20,
        ..one()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let log: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
    let _replica = replica(server.client().await, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            let bytes = delivery.messages().iter().map(|m| m.payload.len()).sum();
            log.lock().unwrap().push((delivery.messages().len(), bytes));
            ready(if delivery.attempt() < 12 {
                Verdict::RetryAfter("bad".to_owned(), Duration::from_millis(500))
            } else {
                DONE
            })
        }
    })
    .await;
    let large = "x".repeat(250_000);
    stored(
        &producer,
        (0..60).map(|_| ("key".to_owned(), large.clone())),
    )
    .await;
    drained(&server, &config).await;
    let log = log.lock().unwrap().clone();
    // What is on its way: twice 1 MiB.
    assert!(log.iter().all(|(_, bytes)| *bytes < 4 << 20), "{log:?}");
}

/// A request whose bytes are over with the last byte of a message ends without a word of the server.
#[tokio::test]
async fn a_request_that_is_used_up_to_the_last_byte() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = one();
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let context = jetstream::new(client.clone());
    let publish = async |key: &str, bytes: usize| {
        let payload = vec![b'x'; bytes].into();
        let stored = context.publish(format!("work.1.0.in.{key}"), payload).await;
        stored.unwrap().await.unwrap();
    };
    let most = client.server_info().max_payload + 4096;
    let reply = "$JS.ACK.WORK-1-0.p0-e1732600000000-1.1.1.1.1732600000000000000.2";
    let beside = "work.1.0.key.a".len() + reply.len();
    publish("a", 600_000).await;
    publish("b", most - 600_000 - 2 * beside).await;
    publish("c", 10).await;
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    until("two have come", async || seen(&log).len() >= 2).await;
    let began = Instant::now();
    until("the third has come", async || seen(&log).len() >= 3).await;
    let took = began.elapsed();
    println!("after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop(replica);
}

async fn names(context: &Context) -> Vec<String> {
    let names = context.stream_names();
    let names = names.map(Result::unwrap);
    names
        .filter(|name| ready(name.starts_with("WORK-") && !name.ends_with("dead")))
        .collect()
        .await
}

/// A change of the number of partitions with another `coalesce` deletes nothing.
#[tokio::test]
async fn a_change_with_another_coalesce_is_refused() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let producer = Producer::new(client.clone(), &config).unwrap();
    for n in 0..10 {
        producer.add("key", n.to_string()).await.unwrap();
    }
    let new = Config {
        partitions: 3,
        coalesce: Coalesce::Server,
        ..config.clone()
    };
    let changed = timeout(Duration::from_secs(2), repartition(&client, &new)).await;
    let left = messages(&server, &config).await;
    assert_eq!(left, 10, "{changed:?}");
    assert!(
        matches!(changed, Ok(Err(Error::Mismatch { .. }))),
        "{changed:?}"
    );
}

/// A change that was killed before it deleted can be followed by one back.
#[tokio::test]
async fn a_change_that_was_killed_at_its_end_and_one_back() {
    let Some(server) = Server::start().await else {
        return;
    };
    let with = |partitions| Config {
        partitions,
        ..config()
    };
    let client = server.client().await;
    create(&client, &with(2)).await.unwrap();
    let context = jetstream::new(client.clone());
    let producer = Producer::new(client.clone(), &with(2)).unwrap();
    producer.add("key", "").await.unwrap();
    let change = tokio::spawn({
        let client = client.clone();
        async move { repartition(&client, &with(3)).await }
    });
    let mut closed = None;
    until("it drains", async || {
        let stream = context.get_stream("WORK-2-1").await.unwrap();
        closed = Some(stream.cached_info().config.clone());
        closed.as_ref().unwrap().subjects.len() == 1
    })
    .await;
    let log = Log::default();
    let replica = Replica::logging(&server, &with(2), "a", &log).await;
    change.await.unwrap().unwrap();
    replica.running.abort();
    // As if it had been killed before it has deleted this one.
    context.create_stream(closed.unwrap()).await.unwrap();
    repartition(&client, &with(2)).await.unwrap();
    let producer = Producer::new(client.clone(), &with(2)).unwrap();
    let producer = producer.patience(Duration::from_secs(3));
    let batch = (0..50).map(|key| (format!("key-{key}"), String::new()));
    let refused = producer.add_batch(batch).await.into_iter();
    let refused: Vec<_> = refused.filter_map(Result::err).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let log = Log::default();
    let replica = Replica::logging(&server, &with(2), "a", &log).await;
    drained(&server, &with(2)).await;
    replica.leave().await;
}

/// N1: two run the same change; one of them is stopped for a while, in which the other ends and the number is changed once more.
#[tokio::test]
async fn a_change_that_wakes_late_deletes_nothing() {
    let Some(server) = Server::start().await else {
        return;
    };
    let with = |partitions| Config {
        partitions,
        ..config()
    };
    let client = server.client().await;
    create(&client, &with(2)).await.unwrap();
    let context = jetstream::new(client.clone());
    // It keeps the change from ending.
    let producer = Producer::new(client.clone(), &with(2)).unwrap();
    producer.add("key", "").await.unwrap();
    let proxy = Proxy::start(server.url()).await.unwrap();
    let late = tokio::spawn({
        let client = async_nats::connect(proxy.address().to_string())
            .await
            .unwrap();
        let new = with(3);
        async move { repartition(&client, &new).await }
    });
    until("it drains", async || {
        names(&context).await.contains(&"WORK-3-2".to_owned())
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    proxy.stall(true);
    let log = Log::default();
    let replica = Replica::logging(&server, &with(2), "a", &log).await;
    repartition(&client, &with(3)).await.unwrap();
    replica.running.abort();
    repartition(&client, &with(5)).await.unwrap();
    let producer = Producer::new(client.clone(), &with(5)).unwrap();
    stored(
        &producer,
        (0..50).map(|key| (format!("key-{key}"), String::new())),
    )
    .await;
    proxy.stall(false);
    let late = late.await.unwrap();
    assert_eq!(messages(&server, &with(5)).await, 50, "{late:?}");
    assert!(matches!(late, Err(Error::Mismatch { .. })), "{late:?}");
}
