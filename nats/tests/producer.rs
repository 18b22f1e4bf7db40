//! The stream, and what a producer puts into it, on a real server.

mod common;

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use keyqueue_nats::{Coalesce, Config, Error, Fleet, Producer, create};
use servers::nats::Server;
use servers::until;
use tokio::time::Instant;

use common::{Log, Replica, created, drained, one};

async fn stream_of(server: &Server, config: &Config) -> stream::Stream {
    let context = jetstream::new(server.client().await);
    let name = format!("{}-1-0", config.stream);
    context.get_stream(name).await.unwrap()
}

async fn state(server: &Server, config: &Config) -> stream::State {
    stream_of(server, config)
        .await
        .get_info()
        .await
        .unwrap()
        .state
}

/// A producer that has died adds its message again: the server keeps one of each key and id.
#[tokio::test]
async fn a_message_with_an_id_of_its_own_is_stored_once() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let add = async |id: &str, key: &str| {
        let producer = Producer::new(client.clone(), &config).unwrap();
        producer.add_once(id, key, "paid").await
    };
    let first = add("42", "order").await.unwrap();
    assert_eq!(add("42", "order").await.unwrap(), first);
    // Another id, another key, and a key and an id that look alike side by side.
    for (id, key) in [("43", "order"), ("42", "order.42"), ("42.42", "order")] {
        assert!(add(id, key).await.unwrap() > first, "{id} {key}");
    }
    assert_eq!(state(&server, &config).await.messages, 4);
    for id in ["", "a b", "\n", "\u{e9}"] {
        let error = add(id, "order").await.unwrap_err();
        assert!(
            matches!(error, Error::Config { field: "id", .. }),
            "{error:?}"
        );
    }
}

/// With `coalesce = "server"` a later message of the key may have replaced the first one when the repeat comes: the repeat is not
/// stored, and the later message stays. A server that was killed in between has forgotten the id of what was replaced.
#[tokio::test]
async fn a_message_with_an_id_of_its_own_does_not_replace_the_one_that_has_replaced_it() {
    let config = one();
    assert_eq!(config.coalesce, Coalesce::Server);
    let Some((mut server, _, producer)) = created(&config).await else {
        return;
    };
    let first = producer.add_once("1", "order", "old").await.unwrap();
    let second = producer.add("order", "new").await.unwrap();
    let again = producer.add_once("1", "order", "old").await.unwrap();
    assert_eq!(again, first);
    let kept = async |server: &Server| {
        let state = state(server, &config).await;
        assert_eq!(state.messages, 1);
        let stream = stream_of(server, &config).await;
        let kept = stream.get_raw_message(state.last_sequence).await.unwrap();
        (kept.sequence, kept.payload)
    };
    assert_eq!(kept(&server).await, (second, "new".into()));
    // The same after its delivery.
    let replica = Replica::logging(&server, &config, "a", &Log::default()).await;
    drained(&server, &config).await;
    replica.leave().await;
    let again = producer.add_once("1", "order", "old").await.unwrap();
    assert_eq!((again, state(&server, &config).await.messages), (first, 0));

    let third = producer.add_once("2", "order", "old").await.unwrap();
    let fourth = producer.add_once("3", "order", "new").await.unwrap();
    server.kill();
    server.restart().await;
    let again = producer.add_once("3", "order", "new").await.unwrap();
    assert_eq!(again, fourth, "it is in the stream");
    let again = producer.add_once("2", "order", "old").await.unwrap();
    assert!(again > fourth && fourth > third, "its id is forgotten");
    assert_eq!(kept(&server).await, (again, "old".into()));
}

#[tokio::test]
async fn create_can_be_repeated_and_names_what_is_different() {
    let config = Config {
        dead_letters: Some("dead".into()),
        ..Config::default()
    };
    let Some((_server, client, _)) = created(&config).await else {
        return;
    };
    create(&client, &config).await.unwrap();
    let context = jetstream::new(client.clone());
    // It would lose the owners, and begin the epochs again, when the server restarts.
    let bucket = jetstream::kv::Config {
        bucket: "MEMORY-owners".into(),
        storage: stream::StorageType::Memory,
        ..Default::default()
    };
    context.create_key_value(bucket).await.unwrap();
    let named = |name: &str| Config {
        stream: name.to_uppercase(),
        subject: name.into(),
        ..Config::default()
    };
    let with = |change: &dyn Fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        config
    };
    let refused = [
        (
            with(&|config| config.partitions = 64),
            "partitions of the fleet WORK is 16, and the configuration has 64",
        ),
        (
            with(&|config| config.coalesce = Coalesce::Never),
            "coalesce of the stream WORK-16-0 is Server, and the configuration has Never",
        ),
        (
            with(&|config| config.max_bytes = Some(1000)),
            "max_bytes of the stream WORK-16-0 is None, and the configuration has Some(1000)",
        ),
        (
            with(&|config| config.dead_letters = Some("gone".into())),
            r#"subjects (dead_letters) of the stream WORK-dead is ["dead"], and the configuration has ["gone"]"#,
        ),
        (
            named("memory"),
            "storage of the bucket MEMORY-owners is Memory, and the configuration has File",
        ),
    ];
    for (config, said) in refused {
        let error = create(&client, &config).await.unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
        assert_eq!(error.to_string(), said);
    }
    // A stream that somebody else has made.
    context.create_stream("OTHER-16-7").await.unwrap();
    let error = create(&client, &named("other")).await.unwrap_err();
    let said = "subject_transform of the stream OTHER-16-7 is None";
    assert!(error.to_string().starts_with(said), "{error}");
    // What was interrupted is completed, and a second set of streams is never made, whatever is lost.
    context.delete_stream("WORK-16-9").await.unwrap();
    context.delete_key_value("WORK-owners").await.unwrap();
    let wrong = Config {
        partitions: 8,
        ..config.clone()
    };
    let error = create(&client, &wrong).await.unwrap_err();
    let said = "partitions of the fleet WORK is 16, and the configuration has 8";
    assert_eq!(error.to_string(), said);
    create(&client, &config).await.unwrap();
    context.get_stream("WORK-16-9").await.unwrap();
}

/// A key is in the partition that the server's `partition` would give it.
#[tokio::test]
async fn keys_are_hashed_as_the_server_does() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..Config::default()
    };
    let Some((_server, client, producer)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client);
    let by_server = stream::Config {
        name: "HASH".into(),
        subjects: vec!["hash.*".into()],
        subject_transform: Some(stream::SubjectTransform {
            source: "hash.*".into(),
            destination: "hashed.{{partition(16,1)}}.{{wildcard(1)}}".into(),
        }),
        ..Default::default()
    };
    let by_server = context.create_stream(by_server).await.unwrap();
    for n in 0..200 {
        let key = format!("key-{n}-ü");
        producer.add(&key, "").await.unwrap();
        let ack = context.publish(format!("hash.{key}"), "".into()).await;
        let sequence = ack.unwrap().await.unwrap().sequence;
        let subject = by_server.get_raw_message(sequence).await.unwrap().subject;
        let partition = subject.split('.').nth(1).unwrap();
        let stream = context.get_stream(format!("WORK-16-{partition}")).await;
        let wanted = format!("work.16.{partition}.key.{key}");
        let stored = stream
            .unwrap()
            .get_last_raw_message_by_subject(&wanted)
            .await;
        stored.unwrap_or_else(|error| panic!("{wanted}: {error}"));
    }
}

/// The last message of a key replaces the others, and keys keep their partitions.
#[tokio::test]
async fn the_server_keeps_the_last_message_of_each_key() {
    let config = one();
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let batch = (0..3000).map(|n| (format!("key/{}", n % 100), n.to_string()));
    let stored = producer.add_batch(batch).await;
    let last = stored.into_iter().map(Result::unwrap).max().unwrap();
    assert_eq!(last, 3000);
    let stream = stream_of(&server, &config).await;
    assert_eq!(stream.get_info().await.unwrap().state.messages, 100);
    for sequence in 2901..=3000 {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let token = format!("key%2F{}", (sequence - 1) % 100);
        let tokens: Vec<_> = message.subject.split('.').collect();
        assert_eq!(tokens, ["work", "1", "0", "key", &*token]);
    }
}

/// N6: a stream that is full refuses new keys, and drops no other key's message. A key that is there
/// can still be replaced.
#[tokio::test]
async fn a_full_stream_refuses_and_drops_nothing() {
    let config = Config {
        max_messages: Some(10),
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    for key in 0..10 {
        producer.add(&key.to_string(), "first").await.unwrap();
    }
    let began = Instant::now();
    let error = producer.add("one more", "first").await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { key, .. } if key == "one more"),
        "{error:?}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "a refusal is not tried again"
    );
    producer.add("3", "second").await.unwrap();
    assert_eq!(state(&server, &config).await.messages, 10);
    let stream = stream_of(&server, &config).await;
    let replaced = stream.get_raw_message(11).await.unwrap();
    assert_eq!(
        (&*replaced.payload, replaced.subject.ends_with(".3")),
        (&b"second"[..], true)
    );
    let delayed = producer.add_after("3", "", Duration::from_secs(1)).await;
    assert!(
        matches!(delayed, Err(Error::Config { field: "delay", .. })),
        "{delayed:?}"
    );
    let large = producer.add("0", vec![0; 2 << 20]).await.unwrap_err();
    assert!(matches!(large, Error::Refused { .. }), "{large:?}");
}

/// N6: the same when the server has no room left.
#[tokio::test]
async fn a_full_disk_refuses() {
    let Some(server) = Server::start_with("max_file_store: 1000000").await else {
        return;
    };
    let config = one();
    create(&server.client().await, &config).await.unwrap();
    let producer = Producer::new(server.client().await, &config).unwrap();
    let mut stored = 0;
    let error = loop {
        match producer.add(&stored.to_string(), vec![0; 100_000]).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 20, "there is room for ten");
    };
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert_eq!(state(&server, &config).await.messages, stored);
}

#[tokio::test]
async fn bad_keys_are_refused_before_anything_is_sent() {
    let Some(server) = Server::start().await else {
        return;
    };
    // There is no stream: a message that is sent would not be stored.
    let producer = Producer::new(server.client().await, &Config::default()).unwrap();
    for key in [String::new(), "x".repeat(201)] {
        assert!(matches!(
            producer.add(&key, "").await,
            Err(Error::Key { .. })
        ));
        let delayed = producer.add_after(&key, "", Duration::from_secs(1)).await;
        assert!(matches!(delayed, Err(Error::Key { .. })));
    }
    let far = producer.add_after("key", "", Duration::MAX).await;
    assert!(
        matches!(far, Err(Error::Config { field: "delay", .. })),
        "{far:?}"
    );
}

#[tokio::test]
async fn an_add_without_a_stream_names_it_and_does_not_wait_long() {
    let Some(server) = Server::start().await else {
        return;
    };
    let client = server.client().await;
    let config = one();
    let producer = Producer::new(client.clone(), &config).unwrap();
    let impatient = producer.clone().patience(Duration::from_millis(300));
    let error = impatient.add("a/b", "").await.unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        r#"adding "a/b", which is not stored: no stream of WORK with 1 partitions replies, or `create` has not made them, or the server has no JetStream"#
    );
    let began = Instant::now();
    let error = producer.add("a/b", "").await.unwrap_err();
    assert!(matches!(error, Error::Server { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        r#"adding "a/b", which is not stored: no stream takes the subject work.1.0.in.a%2Fb: `create` makes those of WORK with 1 partitions"#
    );
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    // A producer that begins a moment before `create` does not fail.
    let (stored, created) = tokio::join!(producer.add("a/b", ""), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        create(&client, &config).await
    });
    created.unwrap();
    assert_eq!(stored.unwrap(), 1);
}

#[tokio::test]
async fn a_server_without_jetstream_is_named() {
    let Some(server) = Server::start_without_jetstream().await else {
        return;
    };
    let client = server.client().await;
    let config = Config::default();
    let created = create(&client, &config).await.unwrap_err();
    let joined = Fleet::join(client, config, "a").await.unwrap_err();
    for (error, what) in [
        (created, "stream KV_WORK-owners"),
        (joined, "bucket WORK-owners"),
    ] {
        assert!(matches!(error, Error::Server { .. }), "{error:?}");
        let said = error.to_string();
        let wanted =
            format!("looking for the {what} on a server that may have no JetStream (`-js`)");
        assert!(said.starts_with(&wanted), "{said}");
    }
}

/// N1: an add that the server has stored, and whose confirmation was lost, is not stored twice; one that was lost is
/// published again.
#[tokio::test]
async fn adds_go_through_a_restart_of_the_server() {
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let Some((mut server, _, producer)) = created(&config).await else {
        return;
    };
    let adding = tokio::spawn(async move {
        let batch = (0..20_000).map(|n| (format!("key-{}", n % 10), n.to_string()));
        producer.add_batch(batch).await
    });
    until("some are stored", async || {
        state(&server, &config).await.messages > 1000
    })
    .await;
    server.kill();
    server.restart().await;
    let stored = adding.await.unwrap();
    let sequences: std::collections::BTreeSet<u64> =
        stored.into_iter().map(Result::unwrap).collect();
    assert_eq!(sequences.len(), 20_000, "each has a sequence of its own");
    assert_eq!(
        state(&server, &config).await.messages,
        20_000,
        "each is stored once"
    );
}

#[tokio::test]
async fn a_delayed_message_comes_into_its_partition_and_the_last_one_wins() {
    let Some(server) = Server::start().await else {
        return;
    };
    for coalesce in [Coalesce::Server, Coalesce::Never] {
        let config = Config {
            stream: format!("{coalesce:?}"),
            subject: format!("{coalesce:?}"),
            coalesce,
            ..one()
        };
        create(&server.client().await, &config).await.unwrap();
        let producer = Producer::new(server.client().await, &config).unwrap();
        let direct = producer.add("a.b", "now").await.unwrap();
        let stream = stream_of(&server, &config).await;
        let partition = stream.get_raw_message(direct).await.unwrap().subject;

        let began = Instant::now();
        producer
            .add_after("a.b", "replaced", Duration::from_secs(3600))
            .await
            .unwrap();
        let delay = Duration::from_millis(1200);
        let scheduled = producer.add_after("a.b", "later", delay).await.unwrap();
        until("the message is due", async || {
            stream.get_info().await.unwrap().state.last_sequence > scheduled
        })
        .await;
        assert!(began.elapsed() >= delay);
        let due = stream.get_raw_message(scheduled + 1).await.unwrap();
        assert_eq!((due.subject, &*due.payload), (partition, &b"later"[..]));
        let immediately = producer.add_after("c", "", Duration::ZERO).await.unwrap();
        let message = stream.get_raw_message(immediately).await.unwrap();
        assert!(message.subject.contains(".key."), "{}", message.subject);
    }
}
