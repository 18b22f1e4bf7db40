//! What comes again with a new connection or another owner, and requests for messages that end.

mod common;

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream;
use keyqueue_nats::{Coalesce, Config, Delivery, Error, Event, Outcome, Producer, Verdict, create};
use servers::nats::Server;
use servers::until;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use common::{
    DONE, Log, Replica, Swallow, another_consumer, consumers, count, created, drained,
    for_each_coalesce, gated, keys, letters, logged, messages, one, payloads, replica, seen,
    stored, told,
};

/// A key that is to be delivered again later is not delivered sooner because the connection was lost.
#[tokio::test]
async fn a_requeue_after_outlasts_a_connection() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    producer.add("key", "").await.unwrap();
    let _replica = logged(proxy.client().await, &config, "a", &log, |_| {
        ready(Verdict::Ok(Outcome::RequeueAfter(Duration::MAX)))
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

/// A key whose group is to be held, of which a fleet has none, waits itself: whatever comes.
#[tokio::test]
async fn a_hold_outlasts_a_new_message() {
    let config = one();
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let _replica = logged(client, &config, "a", &log, |_| {
        ready(Verdict::Ok(Outcome::HoldGroup(Duration::MAX)))
    })
    .await;
    producer.add("key", "").await.unwrap();
    until("it is delivered", async || count(&log, "key") == 1).await;
    producer.add("key", "new").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&log, "key"), 1, "{:?}", seen(&log));
}

/// N5: what is handled when its consumer was made again meanwhile is not delivered by the next owner.
async fn a_handler_that_runs_while_the_connection_is_new_and_a_hand_over(coalesce: Coalesce) {
    let config = Config { coalesce, ..one() };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let gate = watch::Sender::new(false);
    let first = logged(proxy.client().await, &config, "a", &log, gated(&gate)).await;
    producer.add("key", "").await.unwrap();
    until("it runs", async || count(&log, "key") == 1).await;
    // No copy of the message comes.
    proxy.lose_named(Some("CONSUMER.MSG.NEXT"));
    proxy.break_all();
    another_consumer(&client, &log).await;
    until("all is thought to have come again", async || {
        let name = consumers(&client).await.pop().unwrap_or_default();
        let look = format!("CONSUMER.INFO.WORK-1-0.{name}");
        proxy.requests().iter().any(|to| to.ends_with(&look))
    })
    .await;
    // What comes later is the next owner's.
    if coalesce != Coalesce::Server {
        producer.add("key", "new").await.unwrap();
    }
    let finish = async {
        sleep(Duration::from_millis(100)).await;
        gate.send_replace(true);
    };
    tokio::join!(first.leave(), finish);
    let next = Replica::logging(&server, &config, "b", &log).await;
    drained(&server, &config).await;
    let payloads: Vec<_> = seen(&log).into_iter().map(|seen| seen.payloads).collect();
    let expected: &[&[&str]] = match coalesce {
        Coalesce::Server => &[&[""]],
        _ => &[&[""], &["new"]],
    };
    assert_eq!(payloads, expected);
    next.leave().await;
}

for_each_coalesce!(a_handler_that_runs_while_the_connection_is_new_and_a_hand_over);

/// N5 and N7: an acknowledgement is lost, and no copy of its message has come when the partition is handed over. The next owner does not get
/// the message, after a newer one.
async fn a_lost_acknowledgement_and_a_hand_over(coalesce: Coalesce) {
    let config = Config { coalesce, ..one() };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let first = logged(proxy.client().await, &config, "a", &log, |_| ready(DONE)).await;
    proxy.lose_named(Some("$JS.ACK"));
    producer.add("key", "old").await.unwrap();
    until("it is handled", async || proxy.lost() == 1).await;
    // No copy of the message comes, and what comes later has another key or is acknowledged.
    proxy.lose_named(None);
    let newer = if coalesce == Coalesce::Server {
        "other"
    } else {
        "key"
    };
    producer.add(newer, "new").await.unwrap();
    until("the newer one is handled", async || seen(&log).len() == 2).await;
    proxy.lose_named(Some("CONSUMER.MSG.NEXT"));
    proxy.break_all();
    another_consumer(&client, &log).await;
    first.leave().await;
    assert_eq!(messages(&server, &config).await, 0, "{:?}", seen(&log));
}

for_each_coalesce!(a_lost_acknowledgement_and_a_hand_over);

/// A delivery covers no copies of what an earlier one has handled.
#[tokio::test]
async fn a_copy_of_what_is_handled_is_not_covered() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let gate = watch::Sender::new(false);
    let _replica = logged(proxy.client().await, &config, "a", &log, gated(&gate)).await;
    producer.add("key", "first").await.unwrap();
    until("it runs", async || count(&log, "key") == 1).await;
    proxy.break_all();
    another_consumer(&client, &log).await;
    producer.add("key", "second").await.unwrap();
    let stream = jetstream::new(client.clone()).get_stream("WORK-1-0").await;
    let stream = stream.unwrap();
    until("the copy and the other one have come", async || {
        let name = consumers(&client).await.pop().unwrap_or_default();
        let info = stream.consumer_info(name).await;
        info.is_ok_and(|info| info.delivered.consumer_sequence == 2)
    })
    .await;
    sleep(Duration::from_millis(200)).await;
    gate.send_replace(true);
    drained(&server, &config).await;
    let seen = seen(&log).into_iter();
    let seen: Vec<_> = seen
        .map(|seen| (seen.payloads.join(" "), seen.covered))
        .collect();
    assert_eq!(seen, [("first".to_owned(), 1), ("second".to_owned(), 1)]);
}

/// N7: what is handled, and comes again because its acknowledgement was lost, is not delivered again, however long it waits for a task.
#[tokio::test]
async fn slow_handlers_and_a_new_connection() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    for round in 0..2 {
        let batch = (0..80).map(|key| (format!("key-{key}"), round.to_string()));
        stored(&producer, batch).await;
    }
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let _replica = logged(proxy.client().await, &config, "a", &log, |_| async {
        sleep(Duration::from_secs(1)).await;
        DONE
    })
    .await;
    until("the first are done", async || seen(&log).len() > 16).await;
    sleep(Duration::from_millis(500)).await;
    proxy.break_all();
    drained(&server, &config).await;
    let mut rounds = payloads(&log);
    rounds.retain(|_, rounds| *rounds != ["0", "1"]);
    assert!(rounds.is_empty(), "{rounds:?}");
}

/// A key that was given up by an owner, and then handled by the next one, is no dead letter.
#[tokio::test]
async fn a_key_that_the_next_owner_has_handled_is_no_dead_letter() {
    let config = Config {
        partitions: 2,
        ..letters()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
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
    let refused = |event| matches!(event, Event::DeadLetterRefused { .. }).then_some(());
    told(&mut events, refused).await;
    let (log, well) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let second = logged(server.client().await, &config, "b", &log, {
        let well = Arc::clone(&well);
        move |_| {
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

/// A request whose bytes are over with the last byte of a message ends without a word of the server.
#[tokio::test]
async fn a_request_that_is_used_up_to_the_last_byte() {
    let config = one();
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
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

/// Room is for messages that are not acknowledged: a handler that keeps its deliveries does not stop its partition.
#[tokio::test]
async fn a_handler_that_keeps_its_deliveries() {
    let config = Config {
        window: 20,
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let kept: Arc<Mutex<Vec<Delivery>>> = Arc::default();
    let _replica = replica(server.client().await, &config, "a", {
        let kept = Arc::clone(&kept);
        move |delivery| {
            kept.lock().unwrap().push(delivery);
            ready(DONE)
        }
    })
    .await;
    stored(&producer, keys("key", 50)).await;
    until("all come", async || kept.lock().unwrap().len() == 50).await;
}

/// A batch does not wait for its messages one after the other when the server does not reply: these would take
/// hours.
#[tokio::test]
async fn a_batch_gives_up_when_the_server_is_gone() {
    let Some((mut server, _, producer)) = created(&Config::default()).await else {
        return;
    };
    let impatient = producer.clone().patience(Duration::from_secs(1));
    server.kill();
    let batch = (0..20_000).map(|n| (n.to_string(), ""));
    let results = impatient.add_batch(batch).await;
    assert_eq!(results.len(), 20_000);
    for (n, result) in results.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Server { .. }), "{error:?}");
        let said = error.to_string();
        let open = n < 1000;
        assert!(said.contains(&format!("{n:?}")), "{said}");
        assert_eq!(said.contains("may be stored or not"), open, "{said}");
        assert_eq!(said.contains("was not tried"), !open, "{said}");
    }
    server.restart().await;
    producer.add("0", "").await.unwrap();
}

#[test]
fn a_producer_is_made_outside_of_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some(server) = runtime.block_on(Server::start()) else {
        return;
    };
    let client = runtime.block_on(server.client());
    let config = Config::default();
    runtime.block_on(create(&client, &config)).unwrap();
    let producer = Producer::new(client, &config).unwrap();
    runtime.block_on(producer.add("key", "")).unwrap();
    let _guard = runtime.enter();
    drop(server);
}
