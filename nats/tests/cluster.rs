//! What several processes do at the same time, on three servers.

mod common;

use std::path::Path;
use std::time::Duration;

use async_nats::{Client, jetstream};
use futures_util::future::join_all;
use keyqueue_nats::{Coalesce, Config, Producer, create};
use servers::nats::{Servers, messages_of};
use servers::until;

use common::config;

fn of(name: &str) -> Config {
    Config {
        stream: name.to_owned(),
        subject: name.to_owned(),
        coalesce: Coalesce::Never,
        partitions: 2,
        replicas: 3,
        ..config()
    }
}

/// Three servers that have elected.
async fn three(directory: &Path) -> Option<(Servers, Client)> {
    let mut servers = Servers::prepare(directory, 3).unwrap()?;
    servers.start().unwrap();
    let client = servers.ready().await.unwrap();
    until("the servers have elected", async || {
        create(&client, &of("first")).await.is_ok()
    })
    .await;
    Some((servers, client))
}

/// While the servers store one record, they refuse another with an error of its own.
#[tokio::test]
async fn several_processes_create_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_servers, client)) = three(directory.path()).await else {
        return;
    };
    let config = of("second");
    for round in 0..10 {
        let created = join_all((0..8).map(|_| create(&client, &config))).await;
        for created in created {
            created.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        // Then only the number of partitions is missing.
        let context = jetstream::new(client.clone());
        let bucket = context.get_stream("KV_second-owners").await.unwrap();
        bucket.purge().await.unwrap();
    }
}

/// N6: so it is with delayed messages of one key.
#[tokio::test]
async fn several_processes_delay_a_key_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let Some((_servers, client)) = three(directory.path()).await else {
        return;
    };
    let producer = Producer::new(client.clone(), &of("first")).unwrap();
    for round in 0..10 {
        let hour = Duration::from_secs(3600);
        let delayed = join_all((0..8).map(|_| producer.add_after("key", "", hour))).await;
        for delayed in delayed {
            delayed.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        let context = jetstream::new(client.clone());
        assert_eq!(messages_of(&context, "first").await.unwrap(), 1);
    }
}
