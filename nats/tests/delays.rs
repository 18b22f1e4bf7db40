//! A delayed message next to the former one of its key, on a real server.

mod common;

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use keyqueue_nats::{Coalesce, Config};
use servers::until;
use tokio::time::{Instant, sleep_until};

use common::{Log, Replica, created, one, payloads};

/// N6: a message that comes while the server adds those that are due is not removed with the former one of its key.
#[tokio::test]
async fn a_message_that_comes_while_the_former_one_ends_is_not_lost() {
    const KEYS: u32 = 3000;
    let config = Config {
        coalesce: Coalesce::Never,
        ..one()
    };
    let Some((server, _, producer)) = created(&config).await else {
        return;
    };
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    replica.owns(1).await;
    let add = async |key: u32, payload: &'static str, delay| {
        let stored = producer.add_after(&key.to_string(), payload, delay).await;
        stored.unwrap();
    };

    // All of them are due in one second.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let second =
        Duration::from_secs(1) - Duration::from_nanos(since.unwrap().subsec_nanos().into());
    let due = Instant::now() + second + Duration::from_secs(3);
    join_all((0..KEYS).map(async |key| {
        let delay = due - Instant::now() - Duration::from_millis(500);
        add(key, "old", delay).await;
    }))
    .await;
    join_all((0..KEYS).map(async |key| {
        // Those that the server adds last come first here.
        sleep_until(due + (KEYS - key) * Duration::from_micros(300)).await;
        add(key, "new", Duration::from_secs(2)).await;
    }))
    .await;
    until("the later message of each key is delivered", async || {
        let payloads = payloads(&log);
        let last = payloads.values().filter_map(|of| of.last());
        last.filter(|last| *last == "new").count() == KEYS as usize
    })
    .await;
    replica.leave().await;
}

/// N6: a former delay that is about to end does so, and of the calls that wait for that one stands for all.
#[tokio::test]
async fn calls_that_run_at_the_same_time_do_not_wait_for_each_other() {
    let Some((server, _, producer)) = created(&one()).await else {
        return;
    };
    let log = Log::default();
    let replica = Replica::logging(&server, &one(), "a", &log).await;
    let producer = producer.patience(Duration::from_secs(8));
    let second = Duration::from_secs(1);
    producer.add_after("key", "old", second).await.unwrap();
    let adds = (0..20).map(|_| producer.add_after("key", "new", second));
    for stored in join_all(adds).await {
        stored.unwrap();
    }
    let all = || payloads(&log).remove("key").unwrap_or_default();
    until("one of them is delivered", async || {
        all().iter().any(|payload| payload == "new")
    })
    .await;
    assert_eq!(all()[0], "old");
    replica.leave().await;
}
