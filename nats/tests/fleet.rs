//! How replicas join, leave, suspend and move partitions, in this process and on a real server.

mod common;

use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use keyqueue_nats::{Coalesce, Config, Delivery, Error, Event, Fleet, Producer, create};
use servers::nats::Server;
use servers::until;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use common::{
    DONE, Log, Replica, Seen, Swallow, config, count, created, drained, gated, keys, logged,
    payloads, replica, run, seen, stored, told,
};

/// N5: a partition that moves between replicas that live repeats nothing.
#[tokio::test]
async fn replicas_that_join_and_leave_repeat_nothing() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..config()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let a = Replica::logging(&server, &config, "a", &log).await;
    let adding = tokio::spawn(async move {
        for round in 0..40 {
            let batch = (0..25).map(|key| (format!("key-{key}"), format!("{key} {round}")));
            stored(&producer, batch).await;
        }
    });
    let b = Replica::logging(&server, &config, "b", &log).await;
    b.owns(2).await;
    a.owns(2).await;
    let c = Replica::logging(&server, &config, "c", &log).await;
    c.owns(1).await;
    a.leave().await;
    until("the others own everything", async || {
        b.fleet.owned().len() + c.fleet.owned().len() == 4
    })
    .await;
    adding.await.unwrap();
    drained(&server, &config).await;
    let rounds = payloads(&log);
    for key in 0..25 {
        let wanted: Vec<String> = (0..40).map(|round| format!("{key} {round}")).collect();
        assert_eq!(
            rounds[&format!("key-{key}")],
            wanted,
            "each once, and in order"
        );
    }
    b.leave().await;
    c.leave().await;
}

/// A replica whose handler has begun with a key, and never ends.
async fn stuck(server: &Server, config: &Config, producer: &Producer) -> Replica {
    let began = Arc::new(Notify::new());
    let stuck = replica(server.client().await, config, "stuck", {
        let began = Arc::clone(&began);
        move |_| {
            began.notify_one();
            pending()
        }
    })
    .await;
    producer.add("key", "payload").await.unwrap();
    began.notified().await;
    stuck
}

#[tokio::test]
async fn leaving_with_a_deadline_cancels_what_runs_and_tells_what_was_abandoned() {
    let config = config();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let stuck = stuck(&server, &config, &producer).await;
    let left = stuck.fleet.leave(Duration::from_secs(1)).await;
    assert_eq!((left.handed_over, left.abandoned.len()), (3, 1), "{left:?}");
    stuck.running.await.unwrap().unwrap();
    assert_eq!(stuck.fleet.owned(), []);
    // A second call returns immediately.
    stuck.fleet.leave(Duration::MAX).await;

    let log = Log::default();
    let next = Replica::logging(&server, &config, "next", &log).await;
    drained(&server, &config).await;
    let delivery = &seen(&log)[0];
    assert!(delivery.fence > left.abandoned[0], "{delivery:?}");
    next.leave().await;
}

/// A replica that has handed over half of what it owned, and the one that has it. What the first one sends can be lost.
async fn halves() -> Option<(Server, Swallow, [Replica; 2])> {
    let config = config();
    let (server, _, _) = created(&config).await?;
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    let first = logged(proxy.client().await, &config, "a", &log, |_| ready(DONE)).await;
    first.owns(4).await;
    let other = Replica::logging(&server, &config, "b", &log).await;
    first.owns(2).await;
    other.owns(2).await;
    Some((server, proxy, [first, other]))
}

/// A partition counts as handed over when that is written. One that was handed over before is not of the call.
#[tokio::test]
async fn leaving_tells_what_could_not_be_released() {
    let Some((_server, proxy, [leaves, other])) = halves().await else {
        return;
    };
    let kept = leaves.fleet.owned()[0];
    let record = format!("KV.WORK-owners.4.p.{}", kept.partition);
    proxy.lose_named(Some(record.leak()));
    let left = leaves.fleet.leave(Duration::from_secs(1)).await;
    assert_eq!((left.handed_over, left.abandoned), (1, vec![kept]));
    other.leave().await;
}

/// Nor does one of a session that another replica ends before.
#[tokio::test]
async fn leaving_tells_what_was_taken_over() {
    let Some((_server, proxy, [leaves, other])) = halves().await else {
        return;
    };
    let kept = leaves.fleet.owned();
    proxy.lose_named(Some("KV.WORK-owners."));
    let left = leaves.fleet.leave(Duration::from_secs(60)).await;
    assert_eq!((left.handed_over, left.abandoned), (0, kept));
    other.leave().await;
}

/// A hand-over does not wait for a handler longer than `max_handover`, and other keys do not wait for it at all.
#[tokio::test]
async fn a_hand_over_has_a_limit_and_other_keys_go_on() {
    let limit = Duration::from_secs(2);
    let config = Config {
        partitions: 2,
        max_handover: limit,
        ..config()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let began = Arc::new(Notify::new());
    let a = replica(server.client().await, &config, "a", {
        let (log, began) = (Arc::clone(&log), Arc::clone(&began));
        move |delivery| {
            let (log, began) = (Arc::clone(&log), Arc::clone(&began));
            async move {
                if delivery.key().starts_with("slow") {
                    began.notify_one();
                    pending::<()>().await;
                }
                log.lock().unwrap().push(Seen::of(&delivery));
                DONE
            }
        }
    })
    .await;
    a.owns(2).await;
    // Both partitions have a slow key.
    for key in ["slow-1", "slow-2", "slow-3", "slow-4", "slow-5", "slow-6"] {
        producer.add(key, "").await.unwrap();
        began.notified().await;
    }
    let b = Replica::logging(&server, &config, "b", &log).await;
    let asked = tokio::time::Instant::now();
    let mut keys = 0;
    while b.fleet.owned().is_empty() {
        let key = keys.to_string();
        producer.add(&key, "").await.unwrap();
        until("another key goes on", async || {
            seen(&log).iter().any(|seen| seen.key == key)
        })
        .await;
        keys += 1;
    }
    let took = asked.elapsed();
    assert!(took >= limit, "{took:?}");
    assert!(keys > 10, "{keys}");
    until("the cancelled ones are delivered again", async || {
        seen(&log).iter().any(|seen| seen.key.starts_with("slow"))
    })
    .await;
    let left = a.fleet.leave(Duration::ZERO).await;
    assert_eq!(left.abandoned.len(), 1, "{left:?}");
    drained(&server, &config).await;
    b.leave().await;
}

/// N9: what a handler has left behind sees that its partition is handed over.
#[tokio::test]
async fn a_task_that_a_handler_has_left_behind_owns_nothing_after_a_hand_over() {
    let config = Config {
        partitions: 2,
        ..config()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    let left = Arc::<Mutex<Vec<Delivery>>>::default();
    let a = replica(client, &config, "a", {
        let left = Arc::clone(&left);
        move |delivery| {
            left.lock().unwrap().push(delivery);
            ready(DONE)
        }
    })
    .await;
    a.owns(2).await;
    stored(&producer, keys("key", 16)).await;
    drained(&server, &config).await;
    let b = Replica::logging(&server, &config, "b", &Log::default()).await;
    b.owns(1).await;
    let moved = b.fleet.owned()[0].partition;
    let mut left = std::mem::take(&mut *left.lock().unwrap());
    left.retain(|delivery| delivery.fence().partition == moved);
    assert!(!left.is_empty());
    for delivery in left {
        assert!(!delivery.still_owned(), "{delivery:?}");
        assert_eq!(delivery.lost().now_or_never(), Some(()));
    }
}

/// N5: a replica that leaves begins nothing in a partition that it has begun to hand over before.
#[tokio::test]
async fn a_replica_that_leaves_during_a_hand_over() {
    let config = Config {
        partitions: 2,
        max_handover: Duration::from_secs(600),
        ..config()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let (of_a, of_b, gate) = (Log::default(), Log::default(), watch::Sender::new(false));
    let a = logged(server.client().await, &config, "a", &of_a, {
        let slow = gated(&gate);
        move |delivery| match delivery.key().starts_with("slow") {
            true => slow(delivery),
            false => ready(DONE).boxed(),
        }
    })
    .await;
    a.owns(2).await;
    // Both partitions have a slow key.
    stored(&producer, keys("slow", 6)).await;
    until("they run", async || count(&of_a, "slow") == 6).await;
    let b = Replica::logging(&server, &config, "b", &of_b).await;
    // By then a has begun to hand over a partition.
    sleep(Duration::from_secs(1)).await;
    let leaves = tokio::spawn({
        let fleet = a.fleet.clone();
        async move { fleet.leave(Duration::from_secs(600)).await }
    });
    sleep(Duration::from_secs(1)).await;
    stored(&producer, keys("quick", 20)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&of_a, "quick"), 0, "{:?}", seen(&of_a));
    gate.send_replace(true);
    let left = leaves.await.unwrap();
    assert_eq!((left.handed_over, left.abandoned.len()), (2, 0));
    drained(&server, &config).await;
    assert_eq!((count(&of_b, "quick"), count(&of_b, "slow")), (20, 0));
    b.leave().await;
}

#[tokio::test]
async fn a_membership_is_run_once_and_settings_are_checked() {
    let Some(server) = Server::start().await else {
        return;
    };
    let config = config();
    let client = server.client().await;
    let missing = Fleet::join(client.clone(), config.clone(), "a").await;
    let missing = missing.unwrap_err();
    assert!(matches!(missing, Error::Server { .. }), "{missing:?}");
    let said = missing.to_string();
    assert!(said.contains("the bucket WORK-owners"), "{said}");
    assert!(said.contains("`create`"), "{said}");
    create(&client, &config).await.unwrap();
    for name in ["", "a.b", "a b", &"a".repeat(65)] {
        let refused = Fleet::join(client.clone(), config.clone(), name).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.starts_with("replica = "), "{name:?}: {refused}");
    }
    let fleet = Fleet::join(client.clone(), config.clone(), "a").await;
    let fleet = fleet.unwrap();
    let none = fleet.run(0, |_| async {}).await;
    assert!(
        matches!(none, Err(Error::Config { field: "tasks", .. })),
        "{none:?}"
    );
    let replica = run(fleet, |_| ready(DONE));
    replica.owns(4).await;
    let second = replica.fleet.run(1, |_| async {}).await;
    assert!(
        matches!(second, Err(Error::Config { field: "run", .. })),
        "{second:?}"
    );
    replica.leave().await;
}

/// N3: a replica whose renewals fail begins nothing, and goes on when they succeed again.
#[tokio::test]
async fn a_replica_suspends_while_the_server_is_down_and_resumes() {
    let config = config();
    let Some((mut server, _, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    let mut events = replica.fleet.events();
    producer.add("before", "").await.unwrap();
    drained(&server, &config).await;
    let owned = replica.fleet.owned();
    server.kill();
    let reason = told(&mut events, |event| match event {
        Event::Suspended { reason } => Some(reason),
        _ => None,
    });
    let reason = reason.await;
    assert_eq!(reason, "the server does not answer in time");
    server.restart().await;
    told(&mut events, |event| (event == Event::Resumed).then_some(())).await;
    assert_eq!(replica.fleet.owned(), owned, "nobody has taken them");
    producer.add("after", "").await.unwrap();
    until("it goes on", async || count(&log, "after") == 1).await;
    drained(&server, &config).await;
    replica.leave().await;
}

/// N13: a replica that may not write its lease says so, though it never had one.
#[tokio::test]
async fn a_replica_that_never_gets_a_lease_says_so() {
    let config = config();
    let Some((server, _, _)) = created(&config).await else {
        return;
    };
    let proxy = Swallow::start(server.url()).await;
    let fleet = Fleet::join(proxy.client().await, config, "a").await;
    let fleet = fleet.unwrap();
    let mut events = fleet.events();
    proxy.lose_named(Some("KV.WORK-owners"));
    let replica = run(fleet, |_| ready(DONE));
    let suspended = |event| matches!(event, Event::Suspended { .. }).then_some(());
    told(&mut events, suspended).await;
    proxy.lose_named(None);
    told(&mut events, |event| (event == Event::Resumed).then_some(())).await;
    replica.owns(4).await;
    replica.leave().await;
}

/// Two replicas of one name, which a copied configuration file gives, are two replicas.
#[tokio::test]
async fn replicas_of_the_same_name_share_the_keys() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..config()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let logs = [Log::default(), Log::default()];
    let first = Replica::logging(&server, &config, "same", &logs[0]).await;
    let second = Replica::logging(&server, &config, "same", &logs[1]).await;
    first.owns(2).await;
    second.owns(2).await;
    stored(&producer, keys("key", 200)).await;
    drained(&server, &config).await;
    let [of_first, of_second] = logs.each_ref().map(seen);
    assert_eq!(of_first.len() + of_second.len(), 200, "each key once");
    let (one, other) = (first.fleet.owned(), second.fleet.owned());
    assert!(one.iter().all(|fence| !other.contains(fence)));
    assert!(of_first.iter().all(|seen| one.contains(&seen.fence)));
    assert!(of_second.iter().all(|seen| other.contains(&seen.fence)));
    // One of them leaves: the other goes on.
    first.leave().await;
    second.owns(4).await;
    second.leave().await;
}

#[tokio::test]
async fn events_begin_with_the_call_and_end_with_the_membership() {
    let config = config();
    let Some((_server, client, _)) = created(&config).await else {
        return;
    };
    let fleet = Fleet::join(client, config, "a").await.unwrap();
    let mut events = fleet.events();
    let replica = run(fleet, |_| ready(DONE));
    let mut acquired = 0;
    while acquired < 4 {
        match events.next().await.unwrap() {
            Event::Acquired(_) => acquired += 1,
            other => panic!("{other:?}"),
        }
    }
    let late = replica.fleet.events();
    replica.leave().await;
    let handed_over = |events: Vec<Event>| {
        assert_eq!(events.len(), 4, "{events:?}");
        let all = |event: &Event| matches!(event, Event::HandedOver(_));
        assert!(events.iter().all(all), "{events:?}");
    };
    handed_over(events.collect().await);
    handed_over(late.collect().await);
}

#[tokio::test]
async fn leaving_before_running_ends_the_run_that_follows() {
    let config = config();
    let Some((_server, client, _)) = created(&config).await else {
        return;
    };
    let fleet = Fleet::join(client, config, "a").await.unwrap();
    fleet.leave(Duration::MAX).await;
    fleet.run(1, |_| async {}).await.unwrap();
}

/// Dropping `run` cancels the handlers; other replicas take the partitions when the lease has run out.
#[tokio::test]
async fn a_run_that_is_dropped_leaves_its_keys_to_others() {
    let config = config();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let stuck = stuck(&server, &config, &producer).await;
    stuck.running.abort();
    let _ = stuck.running.await;
    assert_eq!(stuck.fleet.owned(), []);
    // Nobody is there to leave.
    stuck.fleet.leave(Duration::MAX).await;

    let log = Log::default();
    let next = Replica::logging(&server, &config, "stuck", &log).await;
    drained(&server, &config).await;
    assert_eq!(seen(&log).len(), 1);
    next.leave().await;
}
