//! Keys that are given up while their dead letters cannot be stored.

mod common;

use std::future::ready;

use async_nats::jetstream;
use keyqueue_nats::{Delivery, Verdict};
use servers::until;

use common::{DONE, Log, Swallow, consumers, count, created, keys, letters, logged, stored};

/// N8: a crowd of them comes behind a healthy key, also after another consumer has sent copies of their messages.
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
    let _replica = logged(proxy.client().await, &config, "a", &log, handler).await;
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
    let copies = letters();
    until("each task is through with a letter", async || {
        letters() > copies + 8
    })
    .await;
    comes_first(2).await;
    assert_eq!(count(&log, "poison"), CROWD, "none is handled again");
}
