//! The number of partitions is changed under load: nothing is lost, and each key's messages stay in order.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream;
use keyqueue_nats::{Coalesce, Config, Error, Fleet, Producer, create, repartition};
use servers::nats::{Server, streams_of};
use servers::until;
use tokio::time::timeout;

use common::{Log, Replica, config, drained, seen};

/// N1, N4, N7: the change is killed again and again. Producers go over from the old number to the new one, and so do replicas.
#[tokio::test]
async fn the_number_of_partitions_is_changed_by_a_command_that_is_killed() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.client().await;
    let old = Config {
        coalesce: Coalesce::Never,
        ..config()
    };
    let new = Config {
        partitions: 7,
        ..old.clone()
    };
    create(&client, &old).await.unwrap();
    let log = Log::default();
    let before = Replica::logging(&server, &old, "before", &log).await;
    let adding = tokio::spawn({
        let of = |config| {
            let producer = Producer::new(client.clone(), config).unwrap();
            producer.patience(Duration::from_secs(3))
        };
        let (old, new) = (of(&old), of(&new));
        async move {
            let mut is_new = false;
            for round in 0..60 {
                for key in 0..20 {
                    let (key, payload) = (format!("key-{key}"), round.to_string());
                    if !is_new && let Err(error) = old.add(&key, payload.clone()).await {
                        let said = error.to_string();
                        assert!(said.contains("is not stored"), "{said}");
                        assert!(said.contains("with 4 partitions"), "{said}");
                        is_new = true;
                    }
                    if is_new {
                        new.add(&key, payload).await.unwrap();
                    }
                }
            }
            assert!(is_new, "it went over");
        }
    });
    until("some are delivered", async || seen(&log).len() > 100).await;
    // A delayed one is handled before the old streams are deleted.
    let producer = Producer::new(client.clone(), &old).unwrap();
    let delay = Duration::from_secs(1);
    producer.add_after("later", "", delay).await.unwrap();

    let early = Fleet::join(client.clone(), new.clone(), "early").await;
    assert!(matches!(early, Err(Error::Mismatch { .. })), "{early:?}");
    let mut kills = 0;
    let step = Duration::from_millis(2);
    while timeout(step + kills * step, repartition(&client, &new))
        .await
        .map(Result::unwrap)
        .is_err()
    {
        kills += 1;
        if kills == 5 {
            let other = Config {
                partitions: 9,
                ..new.clone()
            };
            let refused = repartition(&client, &other).await;
            assert!(
                matches!(refused, Err(Error::Mismatch { .. })),
                "{refused:?}"
            );
        }
    }
    assert!(kills > 5, "{kills}");
    assert!(
        seen(&log).iter().any(|seen| seen.key == "later"),
        "what was in the old streams is handled"
    );
    let highest = seen(&log).iter().map(|seen| seen.fence.epoch).max();
    before.leave().await;
    let context = jetstream::new(client.clone());
    let names = streams_of(&context, &new.stream).await.unwrap();
    assert_eq!(names.len(), 7, "{names:?}");
    create(&client, &new).await.unwrap();
    repartition(&client, &new).await.unwrap();

    let handled = seen(&log).len();
    let after = Replica::logging(&server, &new, "after", &log).await;
    adding.await.unwrap();
    drained(&server, &new).await;
    after.leave().await;
    let seen = seen(&log);
    assert!(
        seen[handled..]
            .iter()
            .all(|seen| Some(seen.fence.epoch) > highest)
    );
    let mut rounds = BTreeMap::<_, Vec<String>>::new();
    for delivery in seen {
        rounds
            .entry(delivery.key)
            .or_default()
            .extend(delivery.payloads);
    }
    let wanted: Vec<String> = (0..60).map(|round| round.to_string()).collect();
    for key in 0..20 {
        assert_eq!(rounds[&format!("key-{key}")], wanted, "each once, in order");
    }
}

#[tokio::test]
async fn a_change_needs_a_fleet() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.client().await;
    let missing = repartition(&client, &config()).await.unwrap_err();
    assert!(matches!(missing, Error::Server { .. }), "{missing:?}");
    let bad = Config {
        partitions: 0,
        ..config()
    };
    let bad = repartition(&client, &bad).await.unwrap_err();
    assert!(matches!(bad, Error::Config { .. }), "{bad:?}");
}
