//! Each failure of docs/failures.md, with processes and a real server: nothing that was stored is lost, and no two
//! calls of an endpoint overlap, but for calls of a process that was stopped or killed while it made them.
//!
//! They run one after the other: each loads the machine.

mod common;

use std::time::Duration;

use anyhow::{Context, Result};
use dispatch::lab::Lab;
use dispatch::receiver::Behaviour;
use keyqueue_nats::{Coalesce, Config};
use servers::Proxy;
use tokio::time::{Instant, sleep};

use common::{LEASE, MACHINE, calls, config, lab, sound, started, stored, with, work, working};

/// Much less than `ack_wait`, after which the server would deliver everything that is stranded.
const SOON: Duration = Duration::from_secs(20);

/// A module with a test for each value of `coalesce`, each of which calls the function of this name. By day only the default runs.
macro_rules! for_each_coalesce {
    ($scenario:ident) => {
        mod $scenario {
            use super::*;

            #[tokio::test]
            async fn server() -> Result<()> {
                super::$scenario(Coalesce::Server).await
            }

            #[tokio::test]
            #[ignore = "the same faults as with the default; the job `nats-long` runs it"]
            async fn client() -> Result<()> {
                super::$scenario(Coalesce::Client).await
            }

            #[tokio::test]
            #[ignore = "the same faults as with the default; the job `nats-long` runs it"]
            async fn never() -> Result<()> {
                super::$scenario(Coalesce::Never).await
            }
        }
    };
}

for_each_coalesce!(kill);

/// N1, N2, N4: a replica is killed every two seconds for 20 seconds, and others join.
async fn kill(coalesce: Coalesce) -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(with(coalesce), work(5), &["r0", "r1", "r2"]).await? else {
        return Ok(());
    };
    let mut producer = lab.produce(33_000, 1000, 20)?;
    let mut joined = 3;
    while producer.try_wait()?.is_none() {
        sleep(Duration::from_secs(2)).await;
        let running = lab.running();
        lab.kill(&running[fastrand::usize(..running.len())]).await?;
        // Two to four run.
        let joins = if running.len() <= 2 {
            2
        } else {
            fastrand::usize(0..=2).min(5 - running.len())
        };
        for _ in 0..joins {
            lab.join(&format!("r{joined}"), None)?;
            joined += 1;
        }
    }
    stored(producer).await?;
    let verdict = lab.check().await?;
    println!(
        "{joined} replicas, {} of them killed",
        joined - lab.running().len()
    );
    assert!(verdict.stored >= 33_000);
    sound("kill", &verdict);
    Ok(())
}

/// Whether another replica has called endpoints of this one, under higher fences.
async fn was_taken_over(lab: &Lab, name: &str) -> Result<bool> {
    let report = lab.report().await?;
    Ok(report.values().any(|calls| {
        let its = calls
            .iter()
            .filter(|call| call.replica == name)
            .map(|call| call.epoch)
            .max();
        its.is_some_and(|its| {
            calls
                .iter()
                .any(|call| call.replica != name && call.epoch > its)
        })
    }))
}

/// N3: a replica is stopped for longer than its lease, and begins nothing when it wakes. Its calls that ran when it was
/// stopped overlap those of the next owner; they carry the lower fence, and the receiver refuses them.
#[tokio::test]
async fn pause_of_long_calls() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(config(), work(6000), &["a", "b"]).await? else {
        return Ok(());
    };
    // Fewer endpoints than tasks: the next owner calls them at once.
    let producer = lab.produce(2000, 24, 10)?;
    working(&lab, "b").await?;
    calls(&lab, 20).await?;
    lab.pause("b", 4 * LEASE).await?;
    stored(producer).await?;
    let verdict = lab.check().await?;
    sound("pause of long calls", &verdict);
    assert!(verdict.excused > 0 && verdict.fenced > 0, "{verdict}");
    Ok(())
}

/// N3: the same under load, with short calls.
#[tokio::test]
async fn pause() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(config(), work(20), &["a", "b"]).await? else {
        return Ok(());
    };
    let producer = lab.produce(10_000, 1000, 10)?;
    working(&lab, "b").await?;
    lab.pause("b", 4 * LEASE).await?;
    assert!(
        was_taken_over(&lab, "b").await?,
        "its partitions have moved"
    );
    stored(producer).await?;
    sound("pause", &lab.check().await?);
    Ok(())
}

/// N5: replicas join under load, and leave by SIGTERM: they hand over, and repeat nothing.
#[tokio::test]
async fn rebalance() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(config(), work(5), &["a"]).await? else {
        return Ok(());
    };
    let producer = lab.produce(10_000, 1000, 10)?;
    for (joins, leaves) in [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d")] {
        lab.join(joins, None)?;
        working(&lab, joins).await?;
        // The other one may have been slow to join.
        working(&lab, leaves).await?;
        assert!(lab.terminate(leaves).await?, "{leaves} succeeds");
    }
    stored(producer).await?;
    let verdict = lab.check().await?;
    sound("rebalance", &verdict);
    assert_eq!((verdict.repeated, verdict.cut), (0, 0));
    Ok(())
}

/// A replica's connection stalls for twice its lease, without an end.
#[tokio::test]
async fn cut() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = lab(config(), work(10)).await? else {
        return Ok(());
    };
    lab.start().await?;
    let proxy = Proxy::start(lab.servers.addresses()).await?;
    lab.join("a", None)?;
    lab.join("b", Some(&proxy.address().to_string()))?;
    let producer = lab.produce(10_000, 1000, 10)?;
    working(&lab, "b").await?;
    proxy.stall(true);
    sleep(2 * LEASE).await;
    proxy.stall(false);
    assert!(
        was_taken_over(&lab, "b").await?,
        "its partitions have moved"
    );
    stored(producer).await?;
    sound("cut", &lab.check().await?);
    Ok(())
}

for_each_coalesce!(reconnect);

/// A replica's connections break, with messages on their way, and are back within the lease: nobody takes over, and nothing
/// waits for `ack_wait`.
async fn reconnect(coalesce: Coalesce) -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some((mut lab, proxy)) = behind_a_proxy(coalesce).await? else {
        return Ok(());
    };
    let producer = lab.produce(8000, 1000, 8)?;
    working(&lab, "b").await?;
    for _ in 0..5 {
        proxy.stall(true);
        sleep(Duration::from_millis(300)).await;
        proxy.break_all();
        proxy.stall(false);
        sleep(Duration::from_millis(700)).await;
    }
    stored(producer).await?;
    sound("reconnect", &lab.check_within(SOON).await?);
    Ok(())
}

for_each_coalesce!(acknowledgements_lost);

/// N7: what a replica sends gets lost, while it receives messages, and then its connection breaks: the server delivers messages
/// again that were done.
async fn acknowledgements_lost(coalesce: Coalesce) -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some((mut lab, proxy)) = behind_a_proxy(coalesce).await? else {
        return Ok(());
    };
    let producer = lab.produce(8000, 200, 8)?;
    working(&lab, "b").await?;
    for _ in 0..8 {
        proxy.swallow(true);
        sleep(Duration::from_millis(300)).await;
        proxy.break_all();
        proxy.swallow(false);
        sleep(Duration::from_millis(500)).await;
    }
    stored(producer).await?;
    sound("acknowledgements lost", &lab.check_within(SOON).await?);
    Ok(())
}

/// The replica b, which reaches the server through a proxy.
async fn behind_a_proxy(coalesce: Coalesce) -> Result<Option<(Lab, Proxy)>> {
    let Some(mut lab) = started(with(coalesce), work(10), &[]).await? else {
        return Ok(None);
    };
    let proxy = Proxy::start(lab.servers.addresses()).await?;
    lab.join("b", Some(&proxy.address().to_string()))?;
    Ok(Some((lab, proxy)))
}

for_each_coalesce!(server);

/// The server is killed three times, and restarted soon, later, and after a second more than a lease.
async fn server(coalesce: Coalesce) -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(with(coalesce), work(10), &["a", "b"]).await? else {
        return Ok(());
    };
    let producer = lab.produce(10_000, 1000, 10)?;
    calls(&lab, 1000).await?;
    for down in [
        Duration::from_millis(300),
        LEASE / 2,
        LEASE + Duration::from_secs(1),
    ] {
        lab.servers.kill(0);
        sleep(down).await;
        lab.servers.start()?;
        sleep(Duration::from_secs(1)).await;
    }
    stored(producer).await?;
    sound("server", &lab.check_within(SOON).await?);
    Ok(())
}

/// The server is not there when the replicas start.
#[tokio::test]
async fn down() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = lab(config(), work(5)).await? else {
        return Ok(());
    };
    lab.join("a", None)?;
    sleep(Duration::from_secs(1)).await;
    lab.start().await?;
    stored(lab.produce(1000, 100, 1)?).await?;
    sound("down", &lab.check().await?);
    Ok(())
}

/// Three servers; the one that leads the stream is killed.
#[tokio::test]
async fn cluster() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let config = Config {
        replicas: 3,
        partitions: 8,
        lease: 2 * LEASE,
        ..config()
    };
    let Some(mut lab) = started(config, work(10), &["a", "b"]).await? else {
        return Ok(());
    };
    let producer = lab.produce(10_000, 1000, 12)?;
    calls(&lab, 500).await?;
    let client = lab.servers.ready().await?;
    let stream = &lab.streams().await?[0];
    let leader = lab.servers.leader_of(&client, stream).await?;
    lab.servers.kill(leader);
    sleep(Duration::from_secs(5)).await;
    lab.servers.start()?;
    stored(producer).await?;
    sound("cluster", &lab.check().await?);
    Ok(())
}

/// Three servers, whose leaders of consumers and of streams step down under load. No key waits for `ack_wait`, which is an
/// hour.
#[tokio::test]
async fn step_down() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let config = Config {
        replicas: 3,
        partitions: 8,
        lease: 2 * LEASE,
        ..config()
    };
    let Some(mut lab) = started(config, work(5), &["a", "b"]).await? else {
        return Ok(());
    };
    let mut producer = lab.produce(20_000, 1000, 12)?;
    calls(&lab, 500).await?;
    let (mut consumers, mut streams) = (0, 0);
    let mut round = 0;
    while producer.try_wait()?.is_none() {
        consumers += lab.consumers_step_down().await?;
        round += 1;
        if round % 4 == 2 {
            streams += lab.streams_step_down().await?;
        }
        sleep(Duration::from_millis(300)).await;
    }
    stored(producer).await?;
    let verdict = lab.check_within(Duration::from_secs(10)).await?;
    println!("step down: leaders of consumers {consumers} times, of streams {streams} times");
    sound("step down", &verdict);
    // Each partition, at least once.
    assert!(consumers >= 8 && streams > 0, "{consumers}, {streams}");
    Ok(())
}

/// Calls that take longer than the lease.
#[tokio::test]
async fn slow() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(config(), work(3000), &["a", "b"]).await? else {
        return Ok(());
    };
    stored(lab.produce(300, 40, 3)?).await?;
    let verdict = lab.check().await?;
    sound("slow", &verdict);
    assert_eq!(verdict.repeated, 0);
    Ok(())
}

/// N6: an endpoint that fails always becomes a dead letter; others, which fail now and then, are retried.
#[tokio::test]
async fn poison() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let config = Config {
        max_retries: Some(8),
        dead_letters: Some("dead".into()),
        max_backoff: Duration::from_millis(200),
        ..config()
    };
    let behaviour = Behaviour {
        work: 2,
        fail: 4,
        poison: "endpoint-7".into(),
        ..Behaviour::default()
    };
    let Some(mut lab) = started(config, behaviour, &["a"]).await? else {
        return Ok(());
    };
    stored(lab.produce(3000, 100, 3)?).await?;
    let verdict = lab.check().await?;
    sound("poison", &verdict);
    assert!(verdict.failed > 100, "{verdict}");
    let report = lab.report().await?;
    let poisoned = report.get("endpoint-7").context("it was called")?;
    assert!(poisoned.len() >= 9, "{}", poisoned.len());
    Ok(())
}

/// A key whose handler kills the process: it is tried `max_retries` times again, by whatever replica, and is then a dead letter.
/// Keys that were processed when it killed the process are not given up with it.
#[tokio::test]
async fn a_killing_key() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let config = Config {
        max_retries: Some(3),
        dead_letters: Some("dead".into()),
        ..config()
    };
    let Some(mut lab) = started(config, work(20), &[]).await? else {
        return Ok(());
    };
    lab.replica_options = vec!["--abort", "endpoint-7"];
    stored(lab.produce(2000, 100, 1)?).await?;
    lab.join("a", None)?;
    lab.join("b", None)?;
    let mut deaths = 0;
    let end = Instant::now() + Duration::from_secs(40);
    while lab.left().await? > 0 && Instant::now() < end {
        deaths += lab.revive()?;
        sleep(Duration::from_millis(200)).await;
    }
    let verdict = lab.check_within(Duration::ZERO).await?;
    println!("a killing key: {deaths} replicas have ended");
    sound("a killing key", &verdict);
    let dead: Vec<_> = lab.dead_letters().await?.into_keys().collect();
    assert_eq!(dead, ["endpoint-7"]);
    // The first one is not counted: nobody knows what it was. Six are, so that a key is not blamed for what else kills its process (N15).
    assert!((1..=9).contains(&deaths), "{deaths}");
    Ok(())
}

/// N11: a replica holds a bounded number of bytes, whatever waits: here 375 MiB.
#[tokio::test]
async fn memory() -> Result<()> {
    /// Everything else in the process.
    const REST: u64 = 64 << 20;
    let _machine = MACHINE.lock().await;
    let config = Config {
        max_held_bytes: 64 << 20,
        ..config()
    };
    // What is on its way: two requests of `max_payload` for each partition.
    let most = config.max_held_bytes + 2 * u64::from(config.partitions) * (1 << 20) + REST;
    // It receives much faster than it calls.
    let Some(mut lab) = started(config, work(40), &[]).await? else {
        return Ok(());
    };
    lab.producer_options = vec!["--size", "262144"];
    lab.replica_options = vec!["--tasks", "4"];
    // Each message has an endpoint of its own.
    stored(lab.produce(1500, 1_000_000, 2)?).await?;
    lab.join("a", None)?;
    let verdict = lab.check_within(Duration::from_secs(60)).await?;
    let peak = lab.peak_memory("a")?;
    println!("memory: {} MiB at most", peak >> 20);
    sound("memory", &verdict);
    assert!(peak <= most, "{peak} bytes, {most} at most");
    Ok(())
}
