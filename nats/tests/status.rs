//! What a fleet is doing, and its dead letters, as a process sees them that is no replica.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use keyqueue_nats::status::{Partition, SessionState, Status};
use keyqueue_nats::{Coalesce, Config, Error, Outcome, Verdict, dead_letter, repartition, status};
use servers::nats::Server;
use servers::until;

use common::{Replica, config, created, drained, stored};

fn with_letters() -> Config {
    Config {
        dead_letters: Some("work-dead".into()),
        max_retries: Some(1),
        ..config()
    }
}

/// A replica whose handler gives up keys with `bad`, fails those with `fail`, and keeps those with `slow`.
async fn replica(server: &Server, config: &Config, name: &str) -> Replica {
    common::replica(server.client().await, config, name, |delivery| async move {
        match delivery.key() {
            key if key.contains("bad") => Verdict::GiveUp(format!("no such thing: {key}")),
            key if key.contains("fail") => {
                Verdict::RetryAfter("not now".into(), Duration::from_secs(60))
            }
            key if key.contains("slow") => {
                tokio::time::sleep(Duration::from_secs(600)).await;
                Verdict::Ok(Outcome::Done)
            }
            _ => Verdict::Ok(Outcome::Done),
        }
    })
    .await
}

fn sum(status: &Status, of: impl Fn(&Partition) -> u64) -> u64 {
    status.partitions.iter().map(of).sum()
}

#[tokio::test]
async fn a_status_has_owners_lag_failures_and_dead_letters() {
    let config = with_letters();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let empty = status(&client, &config).await.unwrap();
    assert_eq!((empty.partitions.len(), empty.unowned()), (4, 4));
    assert_eq!((empty.changes_to, empty.dead_letters), (None, Some(0)));
    let of = |partition: &Partition| (partition.owner.is_none(), partition.messages);
    let mut partitions = empty.partitions.iter();
    assert!(partitions.all(|partition| of(partition) == (true, Some(0))));

    for key in ["bad-1", "fail-1", "fail-2", "slow-1", "slow-2", "good"] {
        producer.add(key, "x").await.unwrap();
    }
    let first = replica(&server, &config, "first").await;
    let mut now = empty;
    until("all is seen", async || {
        now = status(&client, &config).await.unwrap();
        let held = |of: &Partition| of.consumer.as_ref().map_or(0, |it| it.unacknowledged);
        now.unowned() == 0
            && now.dead_letters == Some(1)
            && sum(&now, |of| of.failed_keys) == 2
            && sum(&now, held) == 4
            && sum(&now, |of| of.messages.unwrap()) == 4
    })
    .await;
    for partition in &now.partitions {
        let owner = partition.owner.as_ref().unwrap();
        assert_eq!(owner.replica, "first");
        assert_eq!(owner.session_state, SessionState::Live);
        assert!(owner.session.starts_with("first.") && owner.renewed_ago < Some(config.lease));
        let consumer = &partition.consumer.as_ref().unwrap().name;
        let epoch = partition.epoch.unwrap();
        assert!(consumer.contains(&format!("-e{epoch}-")), "{consumer}");
    }
    let json = serde_json::to_value(&now).unwrap();
    assert_eq!(json["partitions"][3]["owner"]["session_state"], "live");
    assert!(json["partitions"][3]["owner"]["renewed_ago"].is_f64());

    // A replica that dies is silent after a lease: there is no other that would end its session.
    first.running.abort();
    drop(first);
    until("nobody owns a partition", async || {
        now = status(&client, &config).await.unwrap();
        now.unowned() == 4
    })
    .await;
    let silent = |partition: &Partition| {
        let owner = partition.owner.as_ref();
        owner.is_some_and(|owner| owner.session_state == SessionState::Silent)
    };
    assert!(now.partitions.iter().all(silent), "{now:?}");
}

#[tokio::test]
async fn a_status_follows_a_change_of_the_number_of_partitions() {
    let config = config();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    producer.add("key", "x").await.unwrap();
    let new = Config {
        partitions: 7,
        ..config.clone()
    };
    let changing = tokio::spawn({
        let (client, new) = (client.clone(), new.clone());
        async move { repartition(&client, &new).await }
    });
    until("the change is seen", async || {
        status(&client, &config).await.unwrap().changes_to == Some(7)
    })
    .await;
    let replica = replica(&server, &config, "first").await;
    changing.await.unwrap().unwrap();
    for config in [&config, &new] {
        let now = status(&client, config).await.unwrap();
        assert_eq!((now.partitions.len(), now.changes_to), (7, None));
    }
    replica.leave().await;
}

#[tokio::test]
async fn a_status_needs_a_fleet() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.client().await;
    let missing = status(&client, &config()).await.unwrap_err();
    let said = missing.to_string();
    assert!(said.contains("which `create` makes"), "{said}");
    let missing = dead_letter::list(&client, &config(), 0, 1).await;
    let missing = missing.unwrap_err();
    assert!(matches!(missing, Error::Server { .. }), "{missing}");
}

#[tokio::test]
async fn letters_are_listed_put_back_and_dropped() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..with_letters()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let first = replica(&server, &config, "first").await;
    let batch = (0..12).map(|number| (format!("bad/{number}"), format!("payload {number}")));
    stored(&producer, batch).await;
    drained(&server, &config).await;
    first.leave().await;
    let count = async || dead_letter::count(&client, &config).await.unwrap();
    assert_eq!(count().await, Some(12));

    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = dead_letter::list(&client, &config, after, 5).await.unwrap();
        assert!(page.len() <= 5);
        let Some(last) = page.last() else { break };
        after = last.sequence;
        seen.extend(page);
    }
    assert_eq!(seen.len(), 12);
    let keys: BTreeSet<_> = seen.iter().map(|letter| &letter.key).collect();
    assert_eq!(keys.len(), 12);
    let one = &seen[3];
    let key = one.key.as_deref().unwrap();
    assert_eq!(one.error, format!("no such thing: {key}"));
    assert_eq!(one.attempts, 1);
    assert_eq!(one.payload, format!("payload {}", &key[4..]));
    assert!(one.time.elapsed().unwrap() < Duration::from_secs(600));
    let get = async |of: u64| dead_letter::get(&client, &config, of).await.unwrap();
    assert_eq!(get(one.sequence).await.as_ref(), Some(one));

    // The number of partitions is that of the fleet, whatever the caller's configuration has.
    let other = Config {
        partitions: 9,
        ..config.clone()
    };
    for was_there in [true, false] {
        let put_back = dead_letter::put_back(&client, &other, one.sequence).await;
        assert_eq!(put_back.unwrap(), was_there);
    }
    let now = status(&client, &config).await.unwrap();
    assert_eq!(sum(&now, |of| of.messages.unwrap()), 1);
    for was_there in [true, false] {
        let dropped = dead_letter::drop_letter(&client, &config, seen[4].sequence).await;
        assert_eq!(dropped.unwrap(), was_there);
    }
    assert_eq!(get(seen[4].sequence).await, None);
    assert_eq!(count().await, Some(10));

    // Two calls at the same time add the message once.
    let sequence = seen[5].sequence;
    let (one, other) = tokio::join!(
        dead_letter::put_back(&client, &config, sequence),
        dead_letter::put_back(&client, &config, sequence),
    );
    let now = status(&client, &config).await.unwrap();
    let added = sum(&now, |of| of.messages.unwrap()) - 1;
    assert_eq!((one.unwrap() || other.unwrap(), added), (true, 1));

    // A message that no replica has sent has no key.
    let published = client.publish("work-dead", "stranger".into()).await;
    published.unwrap();
    client.flush().await.unwrap();
    let mut strangers = Vec::new();
    until("it is stored", async || {
        strangers = dead_letter::list(&client, &config, after, 5).await.unwrap();
        !strangers.is_empty()
    })
    .await;
    assert_eq!((&strangers[0].key, strangers[0].attempts), (&None, 0));
    let refused = dead_letter::put_back(&client, &config, strangers[0].sequence).await;
    assert!(matches!(refused, Err(Error::Key { .. })), "{refused:?}");
}
