//! Keys that are given up while their dead letters cannot be stored.

mod common;

use std::future::ready;
use std::time::Duration;

use async_nats::jetstream;
use futures_util::{FutureExt, StreamExt};
use keyqueue_nats::{Coalesce, Config, Delivery, Event, Outcome, Verdict, create, dead_letter};
use servers::until;
use tokio::sync::watch;
use tokio::time::sleep;

use common::{
    DONE, Log, Swallow, consumers, count, created, drained, gated, keys, letters, logged, messages,
    one, seen, stored, told,
};

/// N8: a crowd of them comes behind a healthy key, also after another consumer has sent copies of their messages, and with the next owner.
#[tokio::test]
async fn a_crowd_that_is_given_up_at_its_first_try() {
    const CROWD: usize = 40;
    let config = letters();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    // Each letter keeps one of 8 tasks for 2 s.
    proxy.lose_named(Some("dead"));
    let letters = || {
        let requests = proxy.requests().into_iter();
        requests.filter(|to| to == "dead").count()
    };
    let handler = |delivery: Delivery| {
        ready(match delivery.key() {
            "healthy" => DONE,
            _ => Verdict::GiveUp("bad".to_owned()),
        })
    };
    let replica = logged(proxy.client().await, &config, "a", &log, handler).await;
    stored(&producer, keys("poison", CROWD)).await;
    until("the letters are tried again", async || {
        letters() > CROWD + 8
    })
    .await;
    let comes_first = async |times| {
        let before = letters();
        producer.add("healthy", "").await.unwrap();
        until("the healthy key is delivered", async || {
            count(&log, "healthy") == times
        })
        .await;
        let others = letters() - before;
        println!("{others} letters before it");
        assert!(others <= 16, "{others} of {CROWD} letters before it");
    };
    comes_first(1).await;
    let context = jetstream::new(client.clone());
    let stream = context.get_stream("WORK-1-0").await.unwrap();
    let consumer = async || consumers(&client).await.into_iter().next();
    let former = consumer().await;
    proxy.break_all();
    until("another consumer has sent all", async || {
        let Some(name) = consumer()
            .await
            .filter(|name| former.as_ref() != Some(name))
        else {
            return false;
        };
        let info = stream.consumer_info(name).await;
        info.is_ok_and(|info| info.delivered.consumer_sequence >= CROWD as u64)
    })
    .await;
    let each_task_has_tried_one = async || {
        let before = letters();
        until("each task is through with a letter", async || {
            letters() > before + 8
        })
        .await;
    };
    each_task_has_tried_one().await;
    comes_first(2).await;
    assert_eq!(count(&log, "poison"), CROWD, "none is handled again");
    replica.leave().await;
    let _next = logged(proxy.client().await, &config, "b", &log, handler).await;
    each_task_has_tried_one().await;
    comes_first(3).await;
}

/// A handler that gives a key up has given up all the messages that it got, also if more of them have to be read again than come at once.
#[tokio::test]
async fn many_messages_that_are_given_up_in_one_delivery() {
    let config = Config {
        coalesce: Coalesce::Never,
        window: 60,
        ..letters()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    context.delete_stream("WORK-dead").await.unwrap();
    let (log, gate) = (Log::default(), watch::Sender::new(false));
    let replica = logged(client.clone(), &config, "a", &log, {
        let busy = gated(&gate);
        move |delivery| match delivery.key() {
            "bad" => ready(Verdict::GiveUp("bad".to_owned())).boxed(),
            _ => busy(delivery),
        }
    })
    .await;
    let mut events = replica.fleet.events();
    stored(&producer, keys("busy", 8)).await;
    until("all tasks are busy", async || count(&log, "busy") == 8).await;
    // Half of the window is read again at once.
    stored(&producer, (0..40).map(|n| ("bad", n.to_string()))).await;
    until("its messages are held", async || {
        let name = consumers(&client).await.pop().unwrap_or_default();
        let stream = context.get_stream("WORK-1-0").await.unwrap();
        let info = stream.consumer_info(name).await;
        info.is_ok_and(|info| info.delivered.consumer_sequence == 48)
    })
    .await;
    sleep(Duration::from_millis(200)).await;
    gate.send_replace(true);
    let refused = |event| matches!(event, Event::DeadLetterRefused { .. }).then_some(());
    told(&mut events, refused).await;
    create(&client, &config).await.unwrap();
    drained(&server, &config).await;
    assert_eq!(count(&log, "bad"), 1, "{:?}", seen(&log));
    let letters = dead_letter::count(&client, &config).await.unwrap();
    assert_eq!(letters, Some(40));
}

/// Of the messages of a delivery those whose letters are stored are removed, although the letter of another one is refused: each has one letter,
/// however long that lasts.
#[tokio::test]
async fn one_letter_of_a_delivery_is_refused() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..letters()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let takes = async |bytes| {
        let mut dead = context.get_stream("WORK-dead").await.unwrap();
        let mut settings = dead.info().await.unwrap().config.clone();
        settings.max_message_size = bytes;
        context.update_stream(settings).await.unwrap();
    };
    takes(1000).await;
    let log = Log::default();
    let replica = logged(client.clone(), &config, "a", &log, |delivery| {
        ready(match delivery.messages().len() {
            4 => Verdict::GiveUp("bad".to_owned()),
            _ => Verdict::Ok(Outcome::Later(Duration::from_millis(10))),
        })
    })
    .await;
    let mut events = replica.fleet.events();
    let payloads = ["one", "two", &"x".repeat(2000), "four"];
    stored(
        &producer,
        payloads.map(|payload| ("bad", payload.to_owned())),
    )
    .await;
    let refused = |event| matches!(event, Event::DeadLetterRefused { .. }).then_some(());
    told(&mut events, refused).await;
    until("the first two are removed", async || {
        messages(&server, &config).await == 2
    })
    .await;
    let letters = async || dead_letter::count(&client, &config).await.unwrap();
    assert_eq!(letters().await, Some(2));
    takes(-1).await;
    drained(&server, &config).await;
    assert_eq!(letters().await, Some(4));
    let was_given_up = |event| matches!(event, Event::GivenUp { .. }).then_some(());
    told(&mut events, was_given_up).await;
    assert_eq!(
        seen(&log)
            .iter()
            .filter(|seen| seen.payloads.len() == 4)
            .count(),
        1
    );
}

/// A message of no key whose letter is refused is held, and told, so that nothing is wrong with its consumer.
#[tokio::test]
async fn the_letter_of_a_stranger_is_refused() {
    // The server sends it again twice.
    let config = Config {
        ack_wait: letters().lease + Duration::from_millis(200),
        ..letters()
    };
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    context.delete_stream("WORK-dead").await.unwrap();
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let replica = logged(proxy.client().await, &config, "a", &log, |_| ready(DONE)).await;
    let mut events = replica.fleet.events();
    let stored = context.publish("work.1.0.in.no/key", "".into()).await;
    stored.unwrap().await.unwrap();
    let refused = |event| match event {
        Event::DeadLetterRefused { key, .. } => Some(key),
        _ => None,
    };
    let subject = "work.1.0.key.no/key";
    assert_eq!(told(&mut events, refused).await, subject);
    let former = consumers(&client).await;
    let letters = || {
        let requests = proxy.requests().into_iter();
        requests.filter(|to| to == "dead").count()
    };
    until("it is tried again", async || letters() >= 5).await;
    assert_eq!(consumers(&client).await, former);
    create(&client, &config).await.unwrap();
    let removed = |event| match event {
        Event::Stranger { subject, .. } => Some(subject),
        Event::DeadLetterRefused { .. } => panic!("it is told once"),
        _ => None,
    };
    assert_eq!(told(&mut events, removed).await, subject);
    drained(&server, &config).await;
    let letters = dead_letter::count(&client, &config).await.unwrap();
    assert_eq!(letters, Some(1));
}

/// N8: strangers whose letters are refused leave their room to keys, as many of them as the window has room for.
#[tokio::test]
async fn strangers_whose_letters_are_refused_keep_no_key_waiting() {
    const STRANGERS: u64 = 200;
    let config = Config {
        window: 150,
        ..letters()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    context.delete_stream("WORK-dead").await.unwrap();
    for number in 0..STRANGERS {
        let subject = format!("work.1.0.in.no/{number}");
        let stored = context.publish(subject, "".into()).await;
        stored.unwrap().await.unwrap();
    }
    producer.add("key", "").await.unwrap();
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let replica = logged(proxy.client().await, &config, "a", &log, |_| ready(DONE)).await;
    until("the key is delivered", async || count(&log, "key") == 1).await;
    // Each second one of them is tried. If each gave its room back after its first try only, 51 would be.
    let requests = proxy.requests().into_iter();
    let tries = requests.filter(|to| to == "dead").count();
    assert!(tries < 25, "{tries}");
    create(&client, &config).await.unwrap();
    until("they are removed", async || {
        dead_letter::count(&client, &config).await.unwrap() == Some(STRANGERS)
    })
    .await;
    replica.leave().await;
}

/// N6: a key that is given up is told, also if the run ends while the server is asked to forget its count.
#[tokio::test]
async fn a_key_is_told_as_given_up_before_its_count_is_forgotten() {
    let Some((server, _, producer)) = created(&one()).await else {
        return;
    };
    let proxy = Swallow::start(server.url()).await;
    let (log, gate) = (Log::default(), watch::Sender::new(false));
    let waits = gated(&gate);
    let handler = move |delivery: Delivery| match delivery.attempt() {
        1 => ready(Verdict::RetryAfter("bad".to_owned(), Duration::ZERO)).boxed(),
        _ => waits(delivery)
            .map(|_| Verdict::GiveUp("bad".to_owned()))
            .boxed(),
    };
    let replica = logged(proxy.client().await, &one(), "a", &log, handler).await;
    let mut events = replica.fleet.events();
    producer.add("key", "").await.unwrap();
    let writes = || {
        let requests = proxy.requests().into_iter();
        requests.filter(|to| to.ends_with(".a.0.key")).count()
    };
    until("it has failed once", async || count(&log, "key") == 2).await;
    assert_eq!(writes(), 1);
    proxy.lose_named(Some(".a.0.key"));
    gate.send_replace(true);
    until("its count is to be forgotten", async || writes() == 2).await;
    replica.running.abort();
    assert!(replica.running.await.is_err());
    let mut told = std::iter::from_fn(|| events.next().now_or_never().flatten());
    assert!(told.any(|event| matches!(event, Event::GivenUp { .. })));
}

/// A call has added the message of a letter, and has not deleted the letter yet, when another one comes: the message is added once, by both.
#[tokio::test]
async fn a_letter_that_is_put_back_twice() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..letters()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let give_up = |_| ready(Verdict::GiveUp("bad".to_owned()));
    let replica = logged(client.clone(), &config, "a", &log, give_up).await;
    producer.add("key", "").await.unwrap();
    drained(&server, &config).await;
    replica.leave().await;
    let proxy = Swallow::start(server.url()).await;
    proxy.hold(Some("MSG.DELETE.WORK-dead"));
    let first = tokio::spawn({
        let (client, config) = (proxy.client().await, config.clone());
        async move { dead_letter::put_back(&client, &config, 1).await }
    });
    until("it is added", async || {
        messages(&server, &config).await == 1
    })
    .await;
    assert!(dead_letter::put_back(&client, &config, 1).await.unwrap());
    assert_eq!(messages(&server, &config).await, 1);
    proxy.hold(None);
    assert!(first.await.unwrap().unwrap());
}
