//! N13: a partition with work whose messages do not come for a second is told, with the reason, whatever it is, and so is the end of it.

mod common;

use std::future::{pending, ready};
use std::time::Duration;

use async_nats::{ConnectOptions, jetstream};
use futures_util::{FutureExt, Stream, StreamExt};
use keyqueue_nats::{Config, Event, Fleet};
use servers::until;
use time::OffsetDateTime;
use tokio::time::timeout;

use common::{
    DONE, Log, Replica, Swallow, consumers, count, created, keys, logged, logging, messages, one,
    replica, run, stored, told,
};

/// A second, what it takes to see that something is wrong, and a busy machine.
const SOON: Duration = Duration::from_secs(6);

/// The reason of the next event that tells that messages do not come.
async fn stalled(events: &mut (impl Stream<Item = Event> + Unpin)) -> String {
    let told = told(events, |event| match event {
        Event::Stalled { reason, .. } => Some(reason),
        _ => None,
    });
    let reason = timeout(SOON, told).await.expect("it is told");
    println!("{reason}");
    reason
}

async fn receiving(events: &mut (impl Stream<Item = Event> + Unpin)) {
    let told = told(events, |event| {
        matches!(event, Event::Receiving(_)).then_some(())
    });
    timeout(SOON, told).await.expect("the end is told");
}

/// Somebody pauses the consumer, and resumes it. The replica leaves it as it is.
#[tokio::test]
async fn a_paused_consumer() {
    let config = one();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    let mut events = replica.fleet.events();
    producer.add("first", "").await.unwrap();
    until("it comes", async || count(&log, "first") == 1).await;

    let names = consumers(&client).await;
    let stream = jetstream::new(client).get_stream("WORK-1-0").await.unwrap();
    let end = OffsetDateTime::now_utc() + Duration::from_secs(600);
    stream.pause_consumer(&names[0], end).await.unwrap();
    producer.add("second", "").await.unwrap();
    let reason = stalled(&mut events).await;
    assert!(reason.contains("paused"), "{reason}");
    assert_eq!(count(&log, "second"), 0);
    stream.resume_consumer(&names[0]).await.unwrap();
    receiving(&mut events).await;
    until("it comes", async || count(&log, "second") == 1).await;
}

/// The client has no room for some messages, and drops them (`subscription_capacity`), the last ones as well, while another is held.
#[tokio::test]
async fn the_last_messages_are_lost() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    stored(&producer, keys("key", 200)).await;
    let options = ConnectOptions::new().subscription_capacity(50);
    let client = options.connect(server.url()).await.unwrap();
    let log = Log::default();
    let _replica = logged(client, &config, "a", &log, |delivery| {
        match delivery.key() {
            "key-0" => pending().boxed(),
            _ => ready(DONE).boxed(),
        }
    })
    .await;
    until("all others are handled", async || {
        messages(&server, &config).await == 1
    })
    .await;
}

/// The connection is new, and the server does not reply to what the partition needs.
#[tokio::test]
async fn a_request_that_is_lost_after_the_connection_was() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let client = proxy.client().await;
    let replica = logged(client, &config, "a", &log, |_| ready(DONE)).await;
    producer.add("first", "").await.unwrap();
    until("it comes", async || count(&log, "first") == 1).await;
    let mut events = replica.fleet.events();
    proxy.lose_named(Some("CONSUMER.CREATE.WORK"));
    proxy.break_all();
    producer.add("second", "").await.unwrap();
    let reason = stalled(&mut events).await;
    assert!(reason.contains("creating the consumer"), "{reason}");
    proxy.lose_named(None);
    receiving(&mut events).await;
    until("it comes", async || count(&log, "second") == 1).await;
}

/// The replica cannot renew its lease, and leaves the partition's consumers alone until it has.
#[tokio::test]
async fn the_lease_of_its_own() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    producer.add("first", "").await.unwrap();
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let client = proxy.client().await;
    let replica = logged(client, &config, "a", &log, |_| ready(DONE)).await;
    // Before that the epoch may not be noted, which is told as another stall.
    until("it comes", async || count(&log, "first") == 1).await;
    let mut events = replica.fleet.events();
    proxy.lose_named(Some("$KV."));
    while !matches!(events.next().await, Some(Event::Suspended { .. })) {}
    proxy.break_all();
    let reason = stalled(&mut events).await;
    assert!(reason.contains("waiting for the lease"), "{reason}");
    proxy.lose_named(None);
    receiving(&mut events).await;
}

/// A replica was killed, and the one that takes its partition over has to wait for its lease: also if it is its own former self.
#[tokio::test]
async fn the_lease_of_a_replica_that_was_killed() {
    let config = Config {
        lease: Duration::from_secs(6),
        ..one()
    };
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    let killed = replica(client.clone(), &config, "a", |_| pending()).await;
    killed.owns(1).await;
    killed.running.abort();
    producer.add("key", "").await.unwrap();

    let fleet = Fleet::join(client, config, "a").await.unwrap();
    let mut events = fleet.events();
    let log = Log::default();
    let replica = run(fleet, logging(&log, |_| ready(DONE)));
    let reason = stalled(&mut events).await;
    assert!(
        reason.starts_with("a.") && reason.contains("6s"),
        "{reason}"
    );
    assert_eq!(count(&log, "key"), 0);
    receiving(&mut events).await;
    until("it comes", async || count(&log, "key") == 1).await;
    replica.leave().await;
}
