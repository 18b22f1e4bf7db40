//! What a handler gets, and what its verdict does, on a real server.

mod common;

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::{HeaderMap, HeaderValue};
use futures_util::StreamExt;
use keyqueue_nats::{Coalesce, Config, Event, Outcome, Verdict, create, dead_letter};
use servers::until;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use common::{
    DONE, Log, Replica, Seen, Warnings, config, created, drained, for_each_coalesce, letters,
    logged, messages, payloads, replica, seen, told,
};

#[tokio::test]
async fn each_key_is_delivered_and_its_message_is_acknowledged() {
    let config = config();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let keys: Vec<String> = (0..50).map(|n| format!("key {n} / ü.*>")).collect();
    let sequences = producer
        .add_batch(keys.iter().map(|key| (key, "state")))
        .await;

    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    drained(&server, &config).await;
    let deliveries = seen(&log);
    assert_eq!(deliveries.len(), keys.len());
    for (key, sequence) in keys.iter().zip(sequences) {
        let delivery = deliveries.iter().find(|delivery| delivery.key == *key);
        let delivery = delivery.expect("it was delivered");
        assert_eq!(delivery.payloads, ["state"]);
        assert_eq!(delivery.sequence, sequence.unwrap());
        assert_eq!(delivery.attempt, 1);
    }
    let owned = replica.fleet.owned();
    assert_eq!(owned.len(), 4);
    assert!(
        deliveries
            .iter()
            .all(|delivery| owned.contains(&delivery.fence))
    );
    replica.leave().await;
}

#[tokio::test]
async fn a_failure_is_a_warning_with_its_error() {
    let config = config();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let warnings = Warnings::hear();
    producer.add("bad", "state").await.unwrap();
    let log = Log::default();
    let replica = logged(client, &config, "a", &log, |delivery| {
        ready(match delivery.attempt() {
            1 => Verdict::Retry("no disk".to_owned()),
            _ => DONE,
        })
    })
    .await;
    drained(&server, &config).await;
    replica.leave().await;
    let lines = warnings.with("no disk");
    assert_eq!(lines.len(), 1);
    for part in ["WARN", r#"key="bad""#, "attempt=1"] {
        assert!(lines[0].contains(part), "{part}");
    }
}

/// N1: a message that comes while the key is processed causes one more delivery, after it.
async fn a_message_that_comes_during_a_delivery_causes_one_more(coalesce: Coalesce) {
    let config = Config {
        coalesce,
        ..config()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let (log, began, release) = (
        Log::default(),
        Arc::<Notify>::default(),
        Arc::<Notify>::default(),
    );
    let replica = logged(client, &config, "a", &log, {
        let (began, release) = (Arc::clone(&began), Arc::clone(&release));
        move |_| {
            let (began, release) = (Arc::clone(&began), Arc::clone(&release));
            async move {
                began.notify_one();
                release.notified().await;
                DONE
            }
        }
    })
    .await;
    producer.add("key", "0").await.unwrap();
    began.notified().await;
    for payload in ["1", "2", "3"] {
        producer.add("key", payload).await.unwrap();
    }
    // The replica has them all, or the server has replaced them.
    until("the messages have come", async || {
        let left = messages(&server, &config).await;
        left == if coalesce == Coalesce::Never { 4 } else { 2 } || left == 1
    })
    .await;
    assert_eq!(seen(&log).len(), 1, "two deliveries at once");
    release.notify_one();
    began.notified().await;
    until("all payloads are seen, or the last one", async || {
        release.notify_one();
        let seen = &payloads(&log)["key"];
        match coalesce {
            // In order, in as many deliveries as it takes.
            Coalesce::Never => *seen == ["0", "1", "2", "3"],
            Coalesce::Server | Coalesce::Client => seen[seen.len() - 1] == "3",
        }
    })
    .await;
    drained(&server, &config).await;
    replica.leave().await;
}

for_each_coalesce!(a_message_that_comes_during_a_delivery_causes_one_more);

#[tokio::test]
async fn a_failure_is_retried_and_then_a_dead_letter() {
    let config = Config {
        max_retries: Some(2),
        dead_letters: Some("dead".into()),
        ..config()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let replica = logged(
        server.client().await,
        &config,
        "a",
        &log,
        |delivery| async move {
            match (delivery.key(), delivery.attempt()) {
                ("panics", _) => panic!("on\npurpose"),
                ("recovers", 3) => Verdict::Ok(Outcome::Done),
                ("refused", _) => Verdict::GiveUp("never".to_owned()),
                _ => Verdict::Retry("not yet".to_owned()),
            }
        },
    )
    .await;
    let events = replica.fleet.events();
    for key in ["fails", "panics", "recovers", "refused"] {
        producer
            .add(key, format!("payload of {key}"))
            .await
            .unwrap();
    }
    drained(&server, &config).await;

    let tries = |key: &str| seen(&log).iter().filter(|seen| seen.key == key).count();
    assert_eq!(
        ["fails", "panics", "recovers", "refused"].map(tries),
        [3, 3, 3, 1]
    );
    let given_up = events
        .filter_map(|event| async {
            match event {
                Event::GivenUp {
                    key,
                    error,
                    attempts,
                    ..
                } => Some((key, error, attempts)),
                _ => None,
            }
        })
        .take(3)
        .collect::<BTreeSet<_>>()
        .await;
    let wanted = [
        ("fails", "not yet", 3),
        ("panics", "panicked: on\npurpose", 3),
        ("refused", "never", 1),
    ];
    let wanted = wanted.map(|(key, error, attempts)| (key.to_owned(), error.to_owned(), attempts));
    assert_eq!(given_up, BTreeSet::from(wanted));

    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream("WORK-dead").await.unwrap();
    let letters = stream.get_info().await.unwrap().state.messages;
    assert_eq!(letters, 3);
    for sequence in 1..=letters {
        let letter = stream.get_raw_message(sequence).await.unwrap();
        let key = dead_letter::key(&letter.headers).unwrap();
        assert_eq!(letter.payload, format!("payload of {key}"));
        let attempts = letter.headers.get(dead_letter::ATTEMPTS).unwrap();
        assert_eq!(attempts.as_str(), if key == "refused" { "1" } else { "3" });
    }
    replica.leave().await;
}

/// A 429: neither the retry nor a later message is delivered before the time that the handler asked for.
#[tokio::test]
async fn a_key_that_is_to_be_retried_later_is_not_delivered_sooner() {
    let config = config();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let pause = Duration::from_millis(700);
    let log: Arc<Mutex<Vec<(Instant, Seen)>>> = Arc::default();
    let replica = replica(server.client().await, &config, "a", {
        let log = Arc::clone(&log);
        move |delivery| {
            log.lock()
                .unwrap()
                .push((Instant::now(), Seen::of(&delivery)));
            async move {
                match delivery.attempt() {
                    1 => Verdict::RetryAfter("too many requests".to_owned(), pause),
                    _ => Verdict::Ok(Outcome::Done),
                }
            }
        }
    })
    .await;
    producer.add("key", "first").await.unwrap();
    until("the first try", async || log.lock().unwrap().len() == 1).await;
    producer.add("key", "second").await.unwrap();
    drained(&server, &config).await;
    let log = log.lock().unwrap().clone();
    assert_eq!(log.len(), 2);
    assert!(log[1].0 - log[0].0 >= pause);
    assert_eq!(
        (&*log[1].1.payloads, log[1].1.attempt),
        (&["second".to_owned()][..], 2)
    );
    replica.leave().await;
}

/// N6: the recipe of `dead_letter`. While the dead letters' stream takes nothing, the key is kept.
#[tokio::test]
async fn dead_letters_are_kept_until_they_are_stored_and_can_be_added_again() {
    let config = Config {
        dead_letters: Some("dead".into()),
        ..config()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let context = async_nats::jetstream::new(client.clone());
    context.delete_stream("WORK-dead").await.unwrap();
    let log = Log::default();
    let well = Arc::new(AtomicBool::new(false));
    let replica = logged(client.clone(), &config, "a", &log, {
        let well = Arc::clone(&well);
        move |_| {
            ready(if well.load(Relaxed) {
                DONE
            } else {
                Verdict::GiveUp("no route".to_owned())
            })
        }
    })
    .await;
    let key = "pod/a b.ü%";
    let mut events = replica.fleet.events();
    producer.add(key, "state").await.unwrap();
    let refused = |event| matches!(event, Event::DeadLetterRefused { .. }).then_some(());
    told(&mut events, refused).await;
    assert_eq!(messages(&server, &config).await, 1, "the key is kept");

    create(&client, &config).await.unwrap();
    drained(&server, &config).await;
    let given_up = told(&mut events, |event| match event {
        Event::GivenUp { attempts, .. } => Some(attempts),
        _ => None,
    });
    let given_up = given_up.await;
    assert_eq!(
        (given_up, seen(&log).len()),
        (1, 1),
        "the handler was called once"
    );
    well.store(true, Relaxed);
    let before = seen(&log).len();
    let stream = context.get_stream("WORK-dead").await.unwrap();
    let reader = pull::Config {
        durable_name: Some("reader".into()),
        ..Default::default()
    };
    let consumer = stream
        .get_or_create_consumer("reader", reader)
        .await
        .unwrap();
    let mut letters = consumer.fetch().max_messages(100).messages().await.unwrap();
    let mut read = 0;
    while let Some(letter) = letters.next().await {
        let letter = letter.unwrap();
        assert_eq!(&*letter.subject, "dead", "all keys have one subject");
        let headers = letter.headers.as_ref().unwrap();
        assert_eq!(dead_letter::key(headers).unwrap(), key);
        assert_eq!(
            headers.get(dead_letter::ERROR).unwrap().as_str(),
            "no route"
        );
        producer.add(key, letter.payload.clone()).await.unwrap();
        letter.ack().await.unwrap();
        let sequence = letter.info().unwrap().stream_sequence;
        assert!(stream.delete_message(sequence).await.unwrap());
        read += 1;
    }
    assert_eq!(read, 1, "one letter, however often it was refused");
    drained(&server, &config).await;
    let last = seen(&log).pop().unwrap();
    assert_eq!((seen(&log).len(), last.attempt), (before + 1, 1));
    assert_eq!(
        (&*last.key, &*last.payloads),
        (key, &["state".to_owned()][..])
    );
    assert_eq!(stream.get_info().await.unwrap().state.messages, 0);
    replica.leave().await;
}

/// The subject of a stranger, and what is wrong with it.
fn stranger(event: Event) -> Option<(String, String)> {
    match event {
        Event::Stranger {
            subject, reason, ..
        } => Some((subject, reason)),
        _ => None,
    }
}

/// N6: a message that no `Producer` has published is a dead letter, and an event.
#[tokio::test]
async fn a_message_in_the_wrong_partition_is_refused() {
    let config = Config {
        dead_letters: Some("dead".into()),
        ..config()
    };
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    let mut events = replica.fleet.events();
    let context = async_nats::jetstream::new(client);
    // One of the four partitions is the right one.
    for partition in 0..4 {
        let subject = format!("work.4.{partition}.in.key");
        let stored = context.publish(subject, "state".into()).await.unwrap();
        stored.await.unwrap();
    }
    let mut refused = BTreeSet::new();
    while refused.len() < 3 {
        let (subject, reason) = told(&mut events, stranger).await;
        let said = "its key belongs to partition ";
        assert!(reason.starts_with(said), "{reason}");
        refused.insert(subject);
    }
    drained(&server, &config).await;
    let seen = seen(&log);
    assert_eq!(seen.len(), 1);
    let right = format!("work.4.{}.key.key", seen[0].fence.partition);
    assert!(!refused.contains(&right), "{refused:?}");
    let dead = context.get_stream("WORK-dead").await.unwrap();
    assert_eq!(dead.get_info().await.unwrap().state.messages, 3);
    replica.leave().await;
}

/// N6: what a message tells the server, in headers that begin with `Nats-`, is not said again in its dead letter, whose stream would refuse
/// it. The server adds some to a message that was delayed.
#[tokio::test]
async fn a_letter_has_no_headers_that_are_for_the_server() {
    let config = letters();
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    let context = async_nats::jetstream::new(client.clone());
    let log = Log::default();
    let give_up = |_| ready(Verdict::GiveUp("never".to_owned()));
    let replica = logged(client.clone(), &config, "a", &log, give_up).await;
    let second = Duration::from_secs(1);
    producer.add_after("later", "", second).await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Stream", "WORK-1-0");
    headers.insert("nats-lower", "dropped");
    headers.insert("Own", "kept");
    let stored = context.publish_with_headers("work.1.0.in.foreign", headers, "".into());
    stored.await.unwrap().await.unwrap();

    until("both have letters", async || {
        dead_letter::count(&client, &config).await.unwrap() == Some(2)
    })
    .await;
    let dead = context.get_stream("WORK-dead").await.unwrap();
    let [foreign, later] = [1, 2].map(|sequence| dead.get_raw_message(sequence));
    let headers = [foreign.await.unwrap(), later.await.unwrap()].map(|letter| letter.headers);
    assert_eq!(headers[0].get("Own").map(HeaderValue::as_str), Some("kept"));
    for (name, _) in headers.iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        let is_own = name == "Nats-Msg-Id" || !name.to_lowercase().starts_with("nats-");
        assert!(is_own, "{name}");
    }
    assert_eq!(seen(&log).len(), 2);
    replica.leave().await;
}

/// N6: a letter is stored whatever the length of the error, also if its message has hardly room for an error, or has many headers.
#[tokio::test]
async fn a_letter_with_a_long_error_is_stored() {
    let config = letters();
    let Some((_server, client, _)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    // A character of two bytes is where each cut may be.
    let error = || format!("x{}", "ü".repeat(35_000));
    let give_up = move |_| ready(Verdict::GiveUp(error()));
    let replica = logged(client.clone(), &config, "a", &log, give_up).await;
    let most = client.max_payload();
    let messages = [
        (0, 0),
        (0, most - 2000),
        (4000, most - 6000),
        (62 << 10, 0),
        // With the headers of a letter they are more than 64 KiB.
        (65_000, 0),
    ];
    let context = async_nats::jetstream::new(client.clone());
    for (n, (header, payload)) in messages.into_iter().enumerate() {
        let mut headers = HeaderMap::new();
        headers.insert("Own", "x".repeat(header));
        let (subject, payload) = (format!("work.1.0.in.{n}"), "x".repeat(payload));
        let stored = context.publish_with_headers(subject, headers, payload.into());
        stored.await.unwrap().await.unwrap();
    }
    until("all have letters", async || {
        dead_letter::count(&client, &config).await.unwrap() == Some(5)
    })
    .await;
    let letters = dead_letter::list(&client, &config, 0, 5).await.unwrap();
    for letter in letters {
        let kept = letter.error.len();
        assert!(kept > 500 && error().starts_with(&letter.error), "{kept}");
    }
    replica.leave().await;
}

/// N6: a token that no producer would use, because it is too long for a key.
#[tokio::test]
async fn a_token_that_is_too_long_is_refused() {
    let config = letters();
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    let mut events = replica.fleet.events();
    let long = format!("work.1.0.in.{}", "a".repeat(201));
    let context = async_nats::jetstream::new(client.clone());
    let stored = context.publish(long, "".into()).await.unwrap();
    stored.await.unwrap();
    let stranger = told(&mut events, stranger);
    let stranger = timeout(Duration::from_secs(10), stranger).await;
    assert_eq!(stranger.unwrap().1, "it has no key");
    drained(&server, &config).await;
    let letters = dead_letter::count(&client, &config).await.unwrap();
    assert_eq!(letters, Some(1));
    replica.leave().await;
}
