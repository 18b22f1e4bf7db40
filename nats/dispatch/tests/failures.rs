//! Each failure of docs/failures.md, with processes and a real server: nothing that was stored is lost, and no two
//! calls of an endpoint overlap, but for calls of a process that was stopped or killed while it made them.
//!
//! They run one after the other: each loads the machine.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dispatch::check::Verdict;
use dispatch::lab::Lab;
use dispatch::receiver::Behaviour;
use keyqueue_nats::Config;
use servers::Proxy;
use tokio::process::Child;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// Held by the scenario that runs.
static MACHINE: Mutex<()> = Mutex::const_new(());

const LEASE: Duration = Duration::from_secs(2);

fn config() -> Config {
    Config {
        partitions: 16,
        lease: LEASE,
        backoff: Duration::from_millis(20),
        ..Config::default()
    }
}

fn work(milliseconds: u64) -> Behaviour {
    Behaviour {
        work: milliseconds,
        ..Behaviour::default()
    }
}

async fn lab(config: Config, behaviour: Behaviour) -> Result<Option<Lab>> {
    let program = Path::new(env!("CARGO_BIN_EXE_dispatch"));
    Lab::new(program, config, &behaviour).await
}

/// Starts the servers and these replicas.
async fn started(config: Config, behaviour: Behaviour, replicas: &[&str]) -> Result<Option<Lab>> {
    let Some(mut lab) = lab(config, behaviour).await? else {
        return Ok(None);
    };
    lab.start().await?;
    for name in replicas {
        lab.join(name, None)?;
    }
    Ok(Some(lab))
}

async fn stored(mut producer: Child) -> Result<()> {
    ensure!(producer.wait().await?.success(), "the producer failed");
    Ok(())
}

/// Waits until the receiver has seen this many calls.
async fn calls(lab: &Lab, count: usize) -> Result<()> {
    while lab.report().await?.values().map(Vec::len).sum::<usize>() < count {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until a replica has begun deliveries.
async fn working(lab: &Lab, name: &str) -> Result<()> {
    while !lab
        .report()
        .await?
        .values()
        .flatten()
        .any(|call| call.replica == name)
    {
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn sound(name: &str, verdict: &Verdict) {
    println!("{name}:\n{verdict}");
    assert_eq!(verdict.violations, [""; 0], "{verdict}");
}

/// N1, N2, N4: a replica is killed every two seconds for a minute, and others join.
#[tokio::test]
async fn kill() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(config(), work(5), &["r0", "r1", "r2"]).await? else {
        return Ok(());
    };
    let mut producer = lab.produce(100_000, 1000, 60)?;
    let mut joined = 3;
    while producer.try_wait()?.is_none() {
        sleep(Duration::from_secs(2)).await;
        let running = lab.running();
        lab.kill(&running[fastrand::usize(..running.len())]).await?;
        // Two to four run.
        for _ in 0..if running.len() <= 2 {
            2
        } else {
            fastrand::usize(0..=2).min(5 - running.len())
        } {
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
    assert!(verdict.stored >= 100_000);
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

/// N5: a replica that gets SIGTERM hands over, and repeats nothing.
#[tokio::test]
async fn term() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(config(), work(10), &["a", "b"]).await? else {
        return Ok(());
    };
    let producer = lab.produce(8000, 1000, 8)?;
    working(&lab, "b").await?;
    let began = Instant::now();
    assert!(lab.terminate("b").await?, "it succeeds");
    println!("term: the replica has left after {:?}", began.elapsed());
    stored(producer).await?;
    let verdict = lab.check().await?;
    sound("term", &verdict);
    assert_eq!((verdict.repeated, verdict.cut), (0, 0));
    Ok(())
}

/// N5: replicas join and leave under load.
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

/// A replica's connections break, with messages on their way, and are back within the lease: nobody takes over, and nothing
/// waits for `ack_wait`.
#[tokio::test]
async fn reconnect() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = lab(config(), work(10)).await? else {
        return Ok(());
    };
    lab.start().await?;
    let proxy = Proxy::start(lab.servers.addresses()).await?;
    lab.join("b", Some(&proxy.address().to_string()))?;
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
    sound("reconnect", &lab.check().await?);
    Ok(())
}

/// The server is killed, and restarted after a second more than a lease.
#[tokio::test]
async fn server() -> Result<()> {
    let _machine = MACHINE.lock().await;
    let Some(mut lab) = started(config(), work(10), &["a", "b"]).await? else {
        return Ok(());
    };
    let producer = lab.produce(8000, 1000, 8)?;
    calls(&lab, 1000).await?;
    lab.servers.kill(0);
    sleep(LEASE + Duration::from_secs(1)).await;
    lab.servers.start()?;
    stored(producer).await?;
    sound("server", &lab.check().await?);
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
    let leader = lab.servers.leader_of(&client, &lab.config.stream).await?;
    lab.servers.kill(leader);
    sleep(Duration::from_secs(5)).await;
    lab.servers.start()?;
    stored(producer).await?;
    sound("cluster", &lab.check().await?);
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
