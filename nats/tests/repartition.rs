//! The number of partitions is changed under load: nothing is lost, and each key's messages stay in order.

mod common;

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{self, Context};
use keyqueue_nats::{Coalesce, Config, Error, Fleet, Producer, create, repartition};
use servers::Proxy;
use servers::nats::{Server, streams_of};
use servers::until;
use tokio::time::{sleep, timeout};

use common::{
    Log, Replica, Swallow, config, created, drained, keys, messages, one, payloads, seen, stored,
    through,
};

/// The old streams that are there take no new messages.
async fn none_is_open(context: &Context, old: &Config, many: usize) {
    let mut found = 0;
    for name in streams_of(context, &old.stream).await.unwrap() {
        if name.starts_with("WORK-4-") {
            let stream = context.get_stream(&name).await.unwrap();
            assert_eq!(stream.cached_info().config.subjects.len(), 1, "{name}");
            found += 1;
        }
    }
    assert_eq!(found, many);
}

/// N1: what `create` makes while the number is changed takes no messages that nobody would handle.
#[tokio::test]
async fn streams_are_created_while_the_number_is_changed() {
    let old = config();
    let new = with(7);
    let Some((server, client, producer)) = created(&old).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    // It is in the way of the change.
    producer.add("key", "").await.unwrap();
    let changing = tokio::spawn({
        let (client, new) = (client.clone(), new.clone());
        async move { repartition(&client, &new).await }
    });
    until("the streams are closed", async || {
        producer.add("key", "").await.is_err()
    })
    .await;
    for name in streams_of(&context, &old.stream).await.unwrap() {
        let stream = context.get_stream(&name).await.unwrap();
        if name.starts_with("WORK-4-") && stream.cached_info().state.messages == 0 {
            context.delete_stream(&name).await.unwrap();
        }
    }
    create(&client, &old).await.unwrap();
    none_is_open(&context, &old, 4).await;

    let log = Log::default();
    let replica = Replica::logging(&server, &old, "a", &log).await;
    changing.await.unwrap().unwrap();
    none_is_open(&context, &old, 0).await;
    replica.running.abort();
}

/// N1: the same of a `create` that has read the old number, and goes on after the change.
#[tokio::test]
async fn streams_are_created_after_the_number_was_changed() {
    let old = config();
    let Some((server, client, _)) = created(&old).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let proxy = Swallow::start(server.url()).await;
    // On a busy machine the change may take longer than a request has.
    let late = loop {
        proxy.hold(Some("STREAM.INFO.WORK-4-"));
        let before = proxy.requests().len();
        let late = tokio::spawn({
            let (client, old) = (proxy.client().await, old.clone());
            async move { create(&client, &old).await }
        });
        until("it looks for the streams", async || {
            let requests = proxy.requests().into_iter().skip(before);
            requests.filter(|to| to.contains("WORK-4-")).count() > 0
        })
        .await;
        repartition(&client, &with(7)).await.unwrap();
        proxy.hold(None);
        match late.await.unwrap() {
            Err(Error::Server { .. }) => repartition(&client, &old).await.unwrap(),
            late => break late,
        }
    };
    assert!(matches!(late, Err(Error::Mismatch { .. })), "{late:?}");
    none_is_open(&context, &old, 4).await;
}

/// N1: the same of a `repartition`, which goes on after another has ended the change, and the number was changed back.
#[tokio::test]
async fn a_late_change_closes_no_streams_that_take_messages() {
    let (old, new) = (config(), with(7));
    let Some((server, client, producer)) = created(&old).await else {
        return;
    };
    let proxy = Swallow::start(server.url()).await;
    // On a busy machine the changes may take longer than a request has.
    let late = loop {
        let (begins, looks) = ("$KV.WORK-owners.layout", "STREAM.INFO.WORK-7-");
        proxy.hold(Some(begins));
        let mut before = proxy.requests().len();
        let late = tokio::spawn({
            let (client, new) = (proxy.client().await, new.clone());
            async move { repartition(&client, &new).await }
        });
        for next in [begins, looks] {
            until(
                "the change begins, and it looks for the new streams",
                async || {
                    let requests = proxy.requests();
                    requests[before..].iter().any(|to| to.contains(next))
                },
            )
            .await;
            before = proxy.requests().len();
            proxy.hold(Some(looks));
        }
        repartition(&client, &new).await.unwrap();
        repartition(&client, &old).await.unwrap();
        proxy.hold(None);
        match late.await.unwrap() {
            Err(Error::Server { .. }) => {}
            late => break late,
        }
    };
    assert!(matches!(late, Err(Error::Mismatch { .. })), "{late:?}");
    stored(&producer, keys("key", 20)).await;
    let added = Producer::new(client, &new).unwrap();
    let added = added.patience(Duration::from_secs(3)).add("key", "").await;
    assert!(added.is_err(), "nobody would handle it");
    // The number is read from the leader of the bucket: a follower may have the one of before.
    let requests = proxy.requests();
    let direct = |to: &&String| to.contains("DIRECT.GET.KV_WORK-owners");
    assert_eq!(requests.iter().find(direct), None);
}

/// N1: a change whose new streams cannot be made leaves the old ones open, and so does `create`.
#[tokio::test]
async fn create_closes_no_streams_that_it_has_not_made() {
    let old = config();
    let Some((_server, client, producer)) = created(&old).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let store = context.get_key_value("WORK-owners").await.unwrap();
    store.put("layout", "4 7".into()).await.unwrap();
    create(&client, &old).await.unwrap();
    for key in 0..20 {
        producer.add(&format!("key-{key}"), "").await.unwrap();
    }
}

/// N1, N4, N7: the change is killed again and again. Producers go over from the old number to the new one, and so do replicas.
#[tokio::test]
async fn the_number_of_partitions_is_changed_by_a_command_that_is_killed() {
    let old = Config {
        coalesce: Coalesce::Never,
        ..config()
    };
    let new = Config {
        partitions: 7,
        ..old.clone()
    };
    let Some((server, client, producer)) = created(&old).await else {
        return;
    };
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
    let delay = Duration::from_secs(1);
    producer.add_after("later", "", delay).await.unwrap();

    let early = Fleet::join(client.clone(), new.clone(), "early").await;
    assert!(matches!(early, Err(Error::Mismatch { .. })), "{early:?}");
    let context = jetstream::new(client.clone());
    let (mut kills, mut refused) = (0, None);
    let mut step = Duration::from_millis(2);
    while timeout(step, repartition(&client, &new))
        .await
        .map(Result::unwrap)
        .is_err()
    {
        kills += 1;
        step = step.mul_f64(1.2);
        // The number is noted before the first stream is made.
        let names = streams_of(&context, &new.stream).await.unwrap();
        let has_begun = names.iter().any(|name| name.contains("-7-"));
        if has_begun && refused.is_none() {
            let other = Config {
                partitions: 9,
                ..new.clone()
            };
            refused = Some(repartition(&client, &other).await);
        }
    }
    assert!(
        matches!(refused, Some(Err(Error::Mismatch { .. }))),
        "{refused:?}"
    );
    assert!(kills > 5, "{kills}");
    assert!(
        seen(&log).iter().any(|seen| seen.key == "later"),
        "what was in the old streams is handled"
    );
    let highest = seen(&log).iter().map(|seen| seen.fence.epoch).max();
    before.leave().await;
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
    let rounds = payloads(&log);
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

/// A change of the number of partitions with another `coalesce` deletes nothing.
#[tokio::test]
async fn a_change_with_another_coalesce_is_refused() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    for n in 0..10 {
        producer.add("key", n.to_string()).await.unwrap();
    }
    let new = Config {
        partitions: 3,
        coalesce: Coalesce::Server,
        ..config.clone()
    };
    let changed = timeout(Duration::from_secs(2), repartition(&client, &new)).await;
    let left = messages(&server, &config).await;
    assert_eq!(left, 10, "{changed:?}");
    assert!(
        matches!(changed, Ok(Err(Error::Mismatch { .. }))),
        "{changed:?}"
    );
}

fn with(partitions: u16) -> Config {
    Config {
        partitions,
        ..config()
    }
}

/// A change that was killed before it deleted can be followed by one back.
#[tokio::test]
async fn a_change_that_was_killed_at_its_end_and_one_back() {
    let Some((server, client, producer)) = created(&with(2)).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    producer.add("key", "").await.unwrap();
    let change = tokio::spawn({
        let client = client.clone();
        async move { repartition(&client, &with(3)).await }
    });
    let mut closed = None;
    until("it drains", async || {
        let stream = context.get_stream("WORK-2-1").await.unwrap();
        closed = Some(stream.cached_info().config.clone());
        closed.as_ref().unwrap().subjects.len() == 1
    })
    .await;
    let log = Log::default();
    let replica = Replica::logging(&server, &with(2), "a", &log).await;
    change.await.unwrap().unwrap();
    replica.running.abort();
    // As if it had been killed before it has deleted this one.
    context.create_stream(closed.unwrap()).await.unwrap();
    repartition(&client, &with(2)).await.unwrap();
    let producer = Producer::new(client.clone(), &with(2)).unwrap();
    let producer = producer.patience(Duration::from_secs(3));
    stored(&producer, keys("key", 50)).await;
    let log = Log::default();
    let replica = Replica::logging(&server, &with(2), "a", &log).await;
    drained(&server, &with(2)).await;
    replica.leave().await;
}

/// N1: what a server has taken before a stream was closed, and stores after it was found empty, is handled before the change ends.
#[tokio::test]
async fn a_message_is_stored_while_the_old_streams_are_drained() {
    let Some((server, client, _)) = created(&with(2)).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let late = async |subject| {
        let stored = context.publish(subject, "".into()).await.unwrap();
        stored.await.unwrap();
    };
    // It keeps the change from ending.
    late("work.2.1.key.first").await;
    let proxy = Swallow::start(server.url()).await;
    let change = tokio::spawn({
        let client = proxy.client().await;
        async move { repartition(&client, &with(3)).await }
    });
    let looks = |stream: &str| {
        let requests = proxy.requests().into_iter();
        requests.filter(|to| to.ends_with(stream)).count()
    };
    until("the first one is found empty", async || {
        looks("STREAM.INFO.WORK-2-1") > 5
    })
    .await;
    late("work.2.0.key.late").await;
    let other = context.get_stream("WORK-2-1").await.unwrap();
    let before = looks("STREAM.INFO.WORK-2-0");
    other.purge().await.unwrap();
    until("it is looked at again", async || {
        change.is_finished() || looks("STREAM.INFO.WORK-2-0") > before + 2
    })
    .await;
    assert!(!change.is_finished(), "it is not handled");
    let replica = Replica::logging(&server, &with(2), "a", &Log::default()).await;
    change.await.unwrap().unwrap();
    replica.running.abort();
    let names = streams_of(&context, "WORK").await.unwrap();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// N6: streams of others, whose names look like those of partitions, are left as they are.
#[tokio::test]
async fn the_streams_of_others_are_left_alone() {
    let (old, new) = (with(2), with(3));
    let Some((server, client, producer)) = created(&old).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let others = ["WORK-2026-10", "WORK-9-0", "WORK-9-1", "WORK-3-1"];
    for name in others {
        context.create_stream(name).await.unwrap();
    }
    let there = context.publish("WORK-9-1", "".into()).await;
    there.unwrap().await.unwrap();
    repartition(&client, &old).await.unwrap();
    let refused = repartition(&client, &new).await.unwrap_err().to_string();
    let said = "subject_transform of the stream WORK-3-1 is None";
    assert!(refused.starts_with(said), "{refused}");
    // No change has begun.
    let made = context.get_stream("WORK-3-0").await;
    assert!(made.is_err(), "{made:?}");
    repartition(&client, &old).await.unwrap();
    producer.add("key", "").await.unwrap();
    let log = Log::default();
    let replica = Replica::logging(&server, &old, "a", &log).await;
    until("it is handled", async || seen(&log).len() == 1).await;
    replica.leave().await;
    for name in others {
        let stream = context.get_stream(name).await.unwrap();
        assert_eq!(stream.cached_info().config.subjects, [name]);
    }
    context.delete_stream("WORK-3-1").await.unwrap();
    repartition(&client, &new).await.unwrap();
    for name in &others[..3] {
        context.get_stream(name).await.unwrap();
    }
}

/// N6, N1: a message that a server stores even later is told, and is handled after a change back.
#[tokio::test]
async fn a_message_is_stored_after_the_change() {
    let (old, new) = (with(2), with(3));
    let Some((server, client, producer)) = created(&old).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let stream = context.get_stream("WORK-2-0").await.unwrap();
    let mut closed = stream.cached_info().config.clone();
    closed.subjects.truncate(1);
    repartition(&client, &new).await.unwrap();
    context.create_stream(closed).await.unwrap();
    let stored_late = context.publish("work.2.0.key.late", "".into()).await;
    stored_late.unwrap().await.unwrap();
    let left = repartition(&client, &new).await.unwrap_err().to_string();
    assert!(left.contains("WORK-2-0"), "{left}");
    let left = context.get_stream("WORK-2-0").await.unwrap();
    // Of a replica that was not ended.
    left.create_consumer(pull::Config::default()).await.unwrap();
    repartition(&client, &old).await.unwrap();
    let consumers = left.get_info().await.unwrap().state.consumer_count;
    assert_eq!(consumers, 0, "it would receive too early");
    assert_eq!(messages(&server, &old).await, 1);
    create(&client, &old).await.unwrap();
    stored(&producer, keys("key", 20)).await;
    let replica = Replica::logging(&server, &old, "a", &Log::default()).await;
    drained(&server, &old).await;
    replica.leave().await;
}

/// N1: two run the same change; one of them is stopped for a while, in which the other ends and the number is changed once more.
#[tokio::test]
async fn a_change_that_wakes_late_deletes_nothing() {
    let Some((server, client, producer)) = created(&with(2)).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    // It keeps the change from ending.
    producer.add("key", "").await.unwrap();
    let proxy = Proxy::start(server.url()).await.unwrap();
    let late = tokio::spawn({
        let (client, new) = (through(&proxy).await, with(3));
        async move { repartition(&client, &new).await }
    });
    until("it drains", async || {
        let names = streams_of(&context, "WORK").await.unwrap();
        names.contains(&"WORK-3-2".to_owned())
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    proxy.stall(true);
    let log = Log::default();
    let replica = Replica::logging(&server, &with(2), "a", &log).await;
    repartition(&client, &with(3)).await.unwrap();
    replica.running.abort();
    repartition(&client, &with(5)).await.unwrap();
    let producer = Producer::new(client.clone(), &with(5)).unwrap();
    stored(&producer, keys("key", 50)).await;
    proxy.stall(false);
    let late = late.await.unwrap();
    assert_eq!(messages(&server, &with(5)).await, 50, "{late:?}");
    assert!(matches!(late, Err(Error::Mismatch { .. })), "{late:?}");
}
