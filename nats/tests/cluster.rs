//! What several processes do at the same time, on three servers.

mod common;

use async_nats::jetstream;
use futures_util::future::join_all;
use keyqueue_nats::{Config, create};
use servers::nats::Servers;
use servers::until;

use common::config;

/// While the servers store one record, they refuse another with an error of its own.
#[tokio::test]
async fn several_processes_create_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut servers) = Servers::prepare(directory.path(), 3).unwrap() else {
        return;
    };
    servers.start().unwrap();
    let client = servers.ready().await.unwrap();
    let of = |name: &str| Config {
        stream: name.to_owned(),
        subject: name.to_owned(),
        partitions: 2,
        replicas: 3,
        ..config()
    };
    until("the servers have elected", async || {
        create(&client, &of("first")).await.is_ok()
    })
    .await;
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
