//! N3: no delivery begins after the lease, whatever its worker waits for before that.

mod common;
#[path = "common/swallow.rs"]
mod swallow;

use std::future::{pending, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue_nats::Config;
use servers::nats::Server;
use servers::until;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use common::{DONE, Log, Replica, count, created, drained, logged, one_retry, replica, stored};
use swallow::Swallow;

const KEYS: usize = 40;

/// A replica that has taken over the keys that a killed one had received, and is cut off while it writes down which of them it has in hand.
struct CutOff {
    server: Server,
    config: Config,
    proxy: Swallow,
    replica: Replica,
    /// When three quarters of its lease are over, at the latest.
    end: Instant,
    /// When its handlers have begun.
    began: Arc<Mutex<Vec<Instant>>>,
}

impl CutOff {
    async fn new() -> Option<CutOff> {
        let config = one_retry();
        let (server, client, producer) = created(&config).await?;
        let batch = (0..KEYS).map(|n| (format!("key-{n}"), String::new()));
        stored(&producer, batch).await;
        let log = Log::default();
        let killed = logged(client, &config, "a", &log, |_| pending()).await;
        until("each task has one", async || count(&log, "key-") == 8).await;
        killed.running.abort();

        let proxy = Swallow::start(server.url()).await;
        let began = Arc::<Mutex<Vec<Instant>>>::default();
        let (gate, open) = watch::channel(false);
        let replica = replica(proxy.client().await, &config, "b", {
            let began = Arc::clone(&began);
            move |_| {
                began.lock().unwrap().push(Instant::now());
                let mut open = open.clone();
                async move {
                    let _ = open.wait_for(|open| *open).await;
                    DONE
                }
            }
        })
        .await;
        until("it has taken over", async || {
            began.lock().unwrap().len() == 8
        })
        .await;
        proxy.lose_named(Some(""));
        let end = Instant::now() + config.lease / 4 * 3;
        gate.send_replace(true);
        Some(CutOff {
            server,
            config,
            proxy,
            replica,
            end,
            began,
        })
    }

    fn nothing_is_late(&self) {
        let began = self.began.lock().unwrap();
        let late = began.iter().filter(|at| **at > self.end);
        let late: Vec<Duration> = late.map(|at| *at - self.end).collect();
        assert!(late.is_empty(), "after the lease: {late:?}");
    }
}

#[tokio::test]
async fn a_replica_that_is_cut_off_begins_nothing_when_another_has_taken_over() {
    let Some(cut_off) = CutOff::new().await else {
        return;
    };
    let CutOff { server, config, .. } = &cut_off;
    let next = logged(server.client().await, config, "c", &Log::default(), |_| {
        ready(DONE)
    })
    .await;
    drained(server, config).await;
    cut_off.nothing_is_late();
    cut_off.proxy.lose_named(None);
    until("it notices", async || {
        cut_off.replica.fleet.owned().is_empty()
    })
    .await;
    // It has another lease by then.
    sleep(config.lease).await;
    cut_off.nothing_is_late();
    next.leave().await;
}

#[tokio::test]
async fn a_replica_that_was_cut_off_begins_when_it_has_renewed_its_lease() {
    let Some(cut_off) = CutOff::new().await else {
        return;
    };
    sleep(2 * cut_off.config.lease).await;
    cut_off.nothing_is_late();
    cut_off.proxy.lose_named(None);
    drained(&cut_off.server, &cut_off.config).await;
    cut_off.replica.leave().await;
}

/// N15: a key that was to begin when its partition was handed over does not count as in hand.
#[tokio::test]
async fn a_key_that_is_handed_over_while_it_is_written_down() {
    let config = one_retry();
    let Some((server, client, producer)) = created(&config).await else {
        return;
    };
    producer.add("key", "").await.unwrap();
    // The first death is not counted.
    for name in ["a", "b"] {
        let log = Log::default();
        let killed = logged(client.clone(), &config, name, &log, |_| pending()).await;
        until("it runs", async || count(&log, "key") == 1).await;
        killed.running.abort();
    }
    let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
    proxy.lose_named(Some(".d.0.key"));
    let writes = || {
        let requests = proxy.requests().into_iter();
        requests.filter(|to| to.contains(".d.0.key")).count()
    };
    let replica = logged(proxy.client().await, &config, "c", &log, |_| ready(DONE)).await;
    until("its delivery is written down", async || writes() == 1).await;
    proxy.lose_named(None);
    replica.leave().await;
    assert_eq!((count(&log, "key"), writes()), (0, 2));
}
