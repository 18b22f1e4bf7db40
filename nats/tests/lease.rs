//! N3: no delivery begins after the lease, whatever its worker waits for before that.

mod common;

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream;
use keyqueue_nats::Config;
use servers::nats::Server;
use servers::until;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use common::{
    DONE, Log, Replica, Swallow, count, created, drained, gated, keys, killed, logged, one_retry,
    replica, stored,
};

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
        let (server, _, producer) = created(&config).await?;
        stored(&producer, keys("key", KEYS)).await;
        killed(&server, &config, 1, 8).await;

        let proxy = Swallow::start(server.url()).await;
        let began = Arc::<Mutex<Vec<Instant>>>::default();
        let gate = watch::Sender::new(false);
        let replica = replica(proxy.client().await, &config, "b", {
            let (began, ends) = (Arc::clone(&began), gated(&gate));
            move |delivery| {
                began.lock().unwrap().push(Instant::now());
                ends(delivery)
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
    cut_off.replica.owns(0).await;
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

/// A replica that has taken over a key which has killed, and gets no reply when it writes its delivery down.
struct WrittenDown {
    proxy: Swallow,
    replica: Replica,
    log: Log,
    server: Server,
}

impl WrittenDown {
    async fn new() -> Option<WrittenDown> {
        let config = one_retry();
        let (server, _, producer) = created(&config).await?;
        producer.add("key", "").await.unwrap();
        // The first death is not counted.
        killed(&server, &config, 2, 1).await;
        let (log, proxy) = (Log::default(), Swallow::start(server.url()).await);
        proxy.hold(Some(".d.0.key"));
        let replica = logged(proxy.client().await, &config, "c", &log, |_| ready(DONE)).await;
        let it = WrittenDown {
            proxy,
            replica,
            log,
            server,
        };
        until("its delivery is written down", async || it.writes() == 1).await;
        Some(it)
    }

    fn writes(&self) -> usize {
        let requests = self.proxy.requests().into_iter();
        requests.filter(|to| to.contains(".d.0.key")).count()
    }

    /// Hands the partition over, and has the reply meanwhile. A request that comes then and has this in its subject is lost.
    async fn leave(&self, lost: Option<&'static str>) {
        let reply = async {
            sleep(Duration::from_secs(1)).await;
            self.proxy.lose_named(lost);
            self.proxy.hold(None);
        };
        tokio::join!(self.replica.fleet.leave(Duration::from_secs(10)), reply);
    }
}

/// N15: a key that was to begin when its partition was handed over does not count as in hand. What was counted before stays.
#[tokio::test]
async fn a_key_that_is_handed_over_while_it_is_written_down() {
    let Some(it) = WrittenDown::new().await else {
        return;
    };
    it.leave(None).await;
    assert_eq!((count(&it.log, "key"), it.writes()), (0, 2));
    let context = jetstream::new(it.server.client().await);
    let counts = context.get_stream("KV_WORK-counts").await.unwrap();
    let subject = "$KV.WORK-counts.1.d.0.key";
    let record = counts.get_last_raw_message_by_subject(subject).await;
    assert_eq!(record.unwrap().payload, "1");
}

/// N15: and the hand-over waits until that is written, so that it is not written over the count of the next owner.
#[tokio::test]
async fn a_hand_over_waits_for_a_count_that_is_taken_back() {
    let Some(it) = WrittenDown::new().await else {
        return;
    };
    let written = async {
        until("it is taken back", async || it.writes() == 2).await;
        // There is no reply for 2 s.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(it.replica.fleet.owned().len(), 1);
    };
    tokio::join!(it.leave(Some(".d.0.key")), written);
}
