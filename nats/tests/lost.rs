//! N7: what is on its way gets lost, and the connection breaks, again and again: no key's older message is handled after a newer one,
//! and with `Coalesce::Never` none is left out.

mod common;

use std::future::ready;
use std::path::Path;
use std::time::Duration;

use async_nats::jetstream;
use futures_util::TryStreamExt;
use keyqueue_nats::{Coalesce, Config, Producer, create};
use servers::nats::Servers;
use servers::{Proxy, until};
use tokio::time::sleep;

use common::{
    DONE, Log, Swallow, config, created, drained, for_each_coalesce, keys, logged, numbers, one,
    payloads, stored, through,
};

async fn nothing_old_after_new(coalesce: Coalesce) {
    let config = Config {
        coalesce,
        ..config()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let proxy = Proxy::start(server.url()).await.unwrap();
    let (client, log) = (through(&proxy).await, Log::default());
    let replica = logged(client, &config, "a", &log, async |_| {
        sleep(Duration::from_millis(2)).await;
        DONE
    })
    .await;
    let adding = tokio::spawn(async move {
        for round in 0..400 {
            let batch = (0..25).map(|key| (key.to_string(), round.to_string()));
            stored(&producer, batch).await;
            sleep(Duration::from_millis(5)).await;
        }
    });
    while !adding.is_finished() {
        proxy.swallow(true);
        sleep(Duration::from_millis(100)).await;
        // Messages of the server are on their way, too.
        proxy.stall(true);
        sleep(Duration::from_millis(50)).await;
        proxy.break_all();
        proxy.stall(false);
        proxy.swallow(false);
        sleep(Duration::from_millis(250)).await;
    }
    adding.await.unwrap();
    drained(&server, &config).await;
    let handled = numbers(&log);
    assert_eq!(handled.len(), 25);
    for (key, rounds) in handled {
        assert!(rounds.is_sorted(), "{key}: {rounds:?}");
        assert_eq!(rounds.last(), Some(&399), "{key}");
        if coalesce == Coalesce::Never {
            let mut once = rounds.clone();
            once.dedup();
            assert!(once.into_iter().eq(0..400), "{key}: {rounds:?}");
        }
    }
    replica.leave().await;
}

for_each_coalesce!(nothing_old_after_new);

/// N7: what comes behind a message that is missing waits for it.
#[tokio::test]
async fn a_message_that_is_lost_comes_before_a_newer_one() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let proxy = Swallow::start(server.url()).await;
    let log = Log::default();
    let replica = logged(proxy.client().await, &config, "a", &log, |_| ready(DONE)).await;
    producer.add("key", "0").await.unwrap();
    drained(&server, &config).await;
    proxy.lose_deliveries(Some("key"));
    producer.add("key", "1").await.unwrap();
    until("it is lost", async || proxy.lost() > 0).await;
    proxy.lose_deliveries(None);
    producer.add("key", "2").await.unwrap();
    drained(&server, &config).await;
    assert_eq!(numbers(&log)["key"], [0, 1, 2]);
    replica.leave().await;
}

/// N7: a server of a cluster that was killed and is back may lead a new consumer, and has messages that others have removed. The consumers of a
/// fleet are led by the servers that lead their streams.
#[tokio::test]
async fn a_consumer_is_led_by_the_leader_of_its_stream() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_servers, client, config)) = cluster(directory.path()).await else {
        return;
    };
    let log = Log::default();
    let replica = logged(client.clone(), &config, "a", &log, |_| ready(DONE)).await;
    let context = jetstream::new(client);
    let is_together = async |partition| {
        let stream = context.get_stream(format!("WORK-8-{partition}")).await?;
        let leads = stream.cached_info().cluster.clone().unwrap().leader;
        let mut consumers = stream.consumers();
        let consumer = consumers.try_next().await?.ok_or("there is none yet")?;
        Ok::<bool, async_nats::Error>(consumer.cluster.unwrap().leader == leads)
    };
    until("the leaders are the same", async || {
        let mut together = 0;
        for partition in 0..PARTITIONS {
            together += u16::from(matches!(is_together(partition).await, Ok(true)));
        }
        // One stream may have changed its leader since.
        together + 1 >= PARTITIONS
    })
    .await;
    replica.leave().await;
}

/// N12: a consumer that cannot be moved is used where it is.
#[tokio::test]
async fn messages_come_although_no_consumer_can_be_moved() {
    let directory = tempfile::tempdir().unwrap();
    let Some((servers, client, config)) = cluster(directory.path()).await else {
        return;
    };
    let addresses = servers.addresses();
    let first = addresses.split(',').next().unwrap();
    let proxy = Swallow::start(first.to_owned()).await;
    proxy.lose_named(Some("STEPDOWN"));
    let log = Log::default();
    let replica = logged(proxy.client().await, &config, "a", &log, |_| ready(DONE)).await;
    let producer = Producer::new(client, &config).unwrap();
    stored(&producer, keys("key", 64)).await;
    until("all are delivered", async || payloads(&log).len() == 64).await;
    replica.leave().await;
}

const PARTITIONS: u16 = 8;

/// Three servers that have elected, and a fleet on them.
async fn cluster(directory: &Path) -> Option<(Servers, async_nats::Client, Config)> {
    let mut servers = Servers::prepare(directory, 3).unwrap()?;
    servers.start().unwrap();
    let client = servers.ready().await.unwrap();
    let config = Config {
        partitions: PARTITIONS,
        replicas: 3,
        lease: Duration::from_secs(4),
        ..config()
    };
    until("the servers have elected", async || {
        create(&client, &config).await.is_ok()
    })
    .await;
    Some((servers, client, config))
}
