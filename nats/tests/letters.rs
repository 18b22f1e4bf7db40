//! Keys that are given up while their dead letters cannot be stored.

mod common;
#[path = "common/swallow.rs"]
mod swallow;

use std::future::ready;

use keyqueue_nats::{Config, Delivery, Verdict};
use servers::until;

use common::{DONE, Log, count, created, logged, one, stored};
use swallow::Swallow;

/// N8: a crowd of them comes behind a healthy key.
#[tokio::test]
async fn a_crowd_that_is_given_up_at_its_first_try() {
    const CROWD: usize = 40;
    let config = Config {
        dead_letters: Some("dead".into()),
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
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
    let batch = (0..CROWD).map(|n| (format!("poison-{n}"), String::new()));
    stored(&producer, batch).await;
    until("the letters are tried again", async || {
        letters() > CROWD + 8
    })
    .await;
    let before = letters();
    producer.add("healthy", "").await.unwrap();
    until("the healthy key is delivered", async || {
        count(&log, "healthy") == 1
    })
    .await;
    let others = letters() - before;
    println!("{others} letters before it");
    assert!(others <= 16, "{others} of {CROWD} letters before it");
    assert_eq!(count(&log, "poison"), CROWD, "none is handled again");
}
