//! N8: keys that fail do not stop healthy ones, however many of them fail.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, ready};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue_nats::{Config, Delivery, Outcome, Producer, Verdict, dead_letter};
use servers::nats::Server;
use servers::until;
use tokio::time::{Instant, sleep};

use common::{
    DONE, Log, Replica, Swallow, config, count, created, drained, keys, killed, logged, messages,
    one, one_retry, replica, seen, stored,
};

/// 500 of 1000 keys always fail, and each partition has more of them than `window`. When they can succeed, they do.
#[tokio::test]
async fn a_poison_crowd() {
    let config = Config {
        partitions: 8,
        window: 50,
        max_backoff: Duration::from_secs(2),
        ..config()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    // The poisoned ones are first in the stream.
    for state in ["poisoned", "healthy"] {
        stored(&producer, keys(state, 500)).await;
    }

    let cured = Arc::new(AtomicBool::new(false));
    let tries: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let replica = replica(server.client().await, &config, "a", {
        let (cured, tries) = (Arc::clone(&cured), Arc::clone(&tries));
        move |delivery| {
            let key = delivery.key().to_owned();
            let fails = key.starts_with("poisoned") && !cured.load(Relaxed);
            *tries.lock().unwrap().entry(key).or_default() += 1;
            async move {
                if fails {
                    return Verdict::Retry("always".to_owned());
                }
                Verdict::Ok(Outcome::Done)
            }
        }
    })
    .await;
    let tried = |state: &str, times: usize| {
        let tries = tries.lock().unwrap();
        let tried = tries.iter().filter(|(_, count)| **count >= times);
        tried.filter(|(key, _)| key.starts_with(state)).count()
    };
    let began = Instant::now();
    while tried("healthy", 1) < 500 && began.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(10)).await;
    }
    let took = began.elapsed();
    println!(
        "after {took:?}: {} poisoned keys were tried",
        tried("poisoned", 1)
    );
    assert_eq!(tried("healthy", 1), 500, "healthy keys after {took:?}");

    until("all poisoned keys are tried again", async || {
        tried("poisoned", 3) == 500
    })
    .await;
    until("the healthy keys' messages are removed", async || {
        messages(&server, &config).await <= 500
    })
    .await;
    assert_eq!(messages(&server, &config).await, 500, "none is given up");
    let healthy: BTreeSet<usize> = {
        let tries = tries.lock().unwrap();
        let healthy = tries.iter().filter(|(key, _)| key.starts_with("healthy"));
        healthy.map(|(_, count)| *count).collect()
    };
    assert_eq!(healthy, BTreeSet::from([1]), "none is repeated");
    cured.store(true, Relaxed);
    drained(&server, &config).await;
    replica.leave().await;
}

const MINUTE: Duration = Duration::from_secs(60);

fn failed() -> Verdict<String> {
    Verdict::RetryAfter("bad".to_owned(), MINUTE)
}

/// A crowd of keys, more than `window`, each of which waits for a minute by this verdict, and a handler that serves other keys.
async fn crowd(
    log: &Log,
    verdict: fn() -> Verdict<String>,
) -> Option<(Server, Producer, Swallow, Replica)> {
    let config = Config {
        window: 50,
        ..one()
    };
    let (server, _, producer) = created(&config).await?;
    stored(&producer, keys("poison", 100)).await;
    let proxy = Swallow::start(server.url()).await;
    let replica = logged(proxy.client().await, &config, "a", log, move |delivery| {
        ready(match delivery.key() {
            "healthy" => DONE,
            _ => verdict(),
        })
    })
    .await;
    until("the crowd waits", async || count(log, "poison") == 100).await;
    Some((server, producer, proxy, replica))
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

async fn a_crowd_and_a_new_connection(verdict: fn() -> Verdict<String>) {
    let log = Log::default();
    let Some((_server, producer, proxy, _replica)) = crowd(&log, verdict).await else {
        return;
    };
    proxy.break_all();
    sleep(Duration::from_secs(3)).await;
    healthy_key_comes(&producer, &log).await;
}

/// N8: the copies of messages whose keys are in back-off, which come when the connection is back, take no room.
#[tokio::test]
async fn a_crowd_in_back_off_and_a_new_connection() {
    a_crowd_and_a_new_connection(failed).await;
}

/// N8: nor do those of keys that wait because their handler has asked for it.
#[tokio::test]
async fn a_crowd_that_waits_and_a_new_connection() {
    a_crowd_and_a_new_connection(|| Verdict::Ok(Outcome::Later(MINUTE))).await;
}

/// N8: neither do new messages of such keys.
#[tokio::test]
async fn a_crowd_in_back_off_gets_new_messages() {
    let log = Log::default();
    let Some((_server, producer, _proxy, _replica)) = crowd(&log, failed).await else {
        return;
    };
    stored(&producer, keys("poison", 100)).await;
    healthy_key_comes(&producer, &log).await;
}

/// N8: a crowd of failing keys that another owner has left, and which are all tried again, comes behind a healthy key, although their messages
/// come before it.
#[tokio::test]
async fn a_crowd_that_changes_its_owner_comes_behind_healthy_keys() {
    const CROWD: usize = 300;
    let config = one();
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("poison", CROWD)).await;
    let log = Log::default();
    let first = logged(client.clone(), &config, "a", &log, |_| ready(failed())).await;
    until("they have failed", async || count(&log, "poison") == CROWD).await;
    first.leave().await;
    producer.add("healthy", "").await.unwrap();
    let log = Log::default();
    let _next = logged(client, &config, "b", &log, |delivery| async move {
        if delivery.key() == "healthy" {
            return DONE;
        }
        // So that their message has come before all of these are delivered.
        sleep(Duration::from_millis(50)).await;
        failed()
    })
    .await;
    until("the healthy key is delivered", async || {
        count(&log, "healthy") == 1
    })
    .await;
    let before = count(&log, "poison");
    println!("{before} before it");
    assert!(before < CROWD / 2, "{before} of {CROWD} before it");
    until("the crowd is tried again", async || {
        count(&log, "poison") >= CROWD
    })
    .await;
    let attempts = seen(&log).into_iter().filter(|seen| seen.key != "healthy");
    assert!(attempts.into_iter().all(|seen| seen.attempt == 2));
}

/// N8: keys that may have killed the former owner wait for one another, and not healthy keys for them.
#[tokio::test]
async fn suspects_do_not_keep_healthy_keys_from_a_task() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("poison", 8)).await;
    // Each of them has killed twice, as far as is known: it is delivered when no other one is.
    killed(&server, &config, 3, 8).await;
    let log = Log::default();
    let _next = logged(client, &config, "b", &log, |delivery| async move {
        if delivery.key() != "healthy" {
            pending::<()>().await;
        }
        DONE
    })
    .await;
    until("one of them runs", async || count(&log, "poison") == 1).await;
    producer.add("healthy", "").await.unwrap();
    until("the healthy key is delivered", async || {
        count(&log, "healthy") == 1
    })
    .await;
}

/// A key that is not failing has no failures, also if its delivery may have killed the former owner.
#[tokio::test]
async fn a_suspect_that_asks_for_time_has_not_failed() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    producer.add("key", "").await.unwrap();
    killed(&server, &config, 1, 1).await;
    let log = Log::default();
    let _next = logged(client, &config, "b", &log, |_| {
        ready(Verdict::Ok(Outcome::Later(Duration::from_millis(100))))
    })
    .await;
    until("it is delivered again", async || seen(&log).len() >= 3).await;
    let attempts: Vec<_> = seen(&log).iter().map(|seen| seen.attempt).collect();
    assert!(attempts.iter().all(|attempt| *attempt == 1), "{attempts:?}");
}

/// N15: a key whose handler never failed is not given up because its process was killed by something else.
#[tokio::test]
async fn a_key_that_is_in_hand_when_its_process_is_killed_is_not_given_up() {
    let config = one_retry();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    producer.add("key", "").await.unwrap();
    killed(&server, &config, 5, 1).await;
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "b", &log).await;
    drained(&server, &config).await;
    assert_eq!(count(&log, "key"), 1, "it was given up");
    replica.leave().await;
}

/// N15: and such keys do not wait one behind the other.
#[tokio::test]
async fn keys_that_are_in_hand_when_their_process_is_killed_do_not_wait_for_each_other() {
    let config = one_retry();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("key", 8)).await;
    // The first death is not counted.
    killed(&server, &config, 2, 8).await;
    let in_hand: Arc<Mutex<[usize; 2]>> = Arc::default();
    let _replica = replica(server.client().await, &config, "b", {
        let in_hand = Arc::clone(&in_hand);
        move |_| {
            let in_hand = Arc::clone(&in_hand);
            async move {
                {
                    let mut in_hand = in_hand.lock().unwrap();
                    in_hand[0] += 1;
                    in_hand[1] = in_hand[1].max(in_hand[0]);
                }
                sleep(Duration::from_millis(500)).await;
                in_hand.lock().unwrap()[0] -= 1;
                DONE
            }
        }
    })
    .await;
    drained(&server, &config).await;
    let [_, most] = *in_hand.lock().unwrap();
    assert!(most > 3, "at most {most} at a time");
}

/// N15: of what a replica had received when it was killed only the keys that it had in hand, and some that were to come next, are delivered
/// as if they had ended the process.
#[tokio::test]
async fn keys_that_were_received_but_not_in_hand_are_not_suspected() {
    let config = one_retry();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("key", 300)).await;
    killed(&server, &config, 2, 8).await;
    let log = Log::default();
    let _replica = Replica::logging(&server, &config, "b", &log).await;
    drained(&server, &config).await;
    let suspected = seen(&log).into_iter().filter(|seen| seen.attempt == 2);
    let suspected: BTreeSet<String> = suspected.map(|seen| seen.key).collect();
    println!("{suspected:?}");
    let in_hand = (0..8).all(|n| suspected.contains(&format!("key-{n}")));
    assert!(in_hand && suspected.len() < 50, "{suspected:?}");
}

/// N15: a key that kills is given up, also if each message of which a process has died is replaced before the next owner comes.
#[tokio::test]
async fn a_key_that_kills_and_is_added_again_is_given_up() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let is_dead = async || dead_letter::count(&client, &config).await.unwrap() == Some(1);
    for deaths in 0.. {
        producer.add("key", deaths.to_string()).await.unwrap();
        let client = server.client().await;
        let killed = logged(client, &config, "a", &log, |_| pending()).await;
        until("it is in hand or given up", async || {
            count(&log, "key") > deaths || is_dead().await
        })
        .await;
        if is_dead().await {
            break;
        }
        killed.running.abort();
        // What is added from now on is not received by this one.
        let _ = killed.running.await;
        sleep(Duration::from_millis(100)).await;
        assert!(deaths < 9, "nobody has noticed {deaths} deaths");
    }
}

/// N15: what a key has killed counts also if its message has come later, or the owner before has handed over.
#[tokio::test]
async fn a_key_that_has_killed_is_a_suspect_for_each_owner() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let counts = async_nats::jetstream::new(client.clone());
    // As owners have written it.
    let six = counts.publish("$KV.WORK-counts.1.d.0.key", "6".into());
    six.await.unwrap().await.unwrap();
    producer.add("key", "").await.unwrap();
    let log = Log::default();
    let _replica = Replica::logging(&server, &config, "a", &log).await;
    drained(&server, &config).await;
    let letters = dead_letter::count(&client, &config).await.unwrap();
    assert_eq!((letters, seen(&log).len()), (Some(1), 0));
}

/// A key that was handled, and is named in the record of what was in hand, has killed nobody: a new message of it is a first try.
#[tokio::test]
async fn a_new_message_of_a_handled_key_is_a_first_try() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    for key in ["key", "handled"] {
        producer.add(key, "").await.unwrap();
    }
    killed(&server, &config, 1, 2).await;
    let log = Log::default();
    let handler = |delivery: Delivery| async move {
        if delivery.key() == "key" {
            pending::<()>().await;
        }
        DONE
    };
    let replica = logged(client.clone(), &config, "a", &log, handler).await;
    until("both are in hand", async || seen(&log).len() == 2).await;
    until("one is handled", async || {
        messages(&server, &config).await == 1
    })
    .await;
    replica.running.abort();
    let _next = logged(client, &config, "b", &log, handler).await;
    until("it is taken over", async || count(&log, "key") == 2).await;
    producer.add("handled", "new").await.unwrap();
    until("it is handled again", async || count(&log, "handled") == 2).await;
    let attempts: Vec<_> = seen(&log).into_iter().skip(2).collect();
    let attempts = attempts.iter().map(|seen| (&*seen.key, seen.attempt));
    assert_eq!(attempts.collect::<Vec<_>>(), [("key", 2), ("handled", 1)]);
}
