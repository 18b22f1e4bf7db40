//! `dispatch faults`: one fault after the other on one server or a cluster, and how long a partition with work had no delivery, beside
//! a plain consumer of the same client on the same servers.
//!
//! Before each fault the streams get more messages than are handled while it lasts, so that each partition has work. A replica holds
//! few of them, so that one that receives nothing soon has nothing to deliver. The plain consumer has one stream, which has as many
//! messages, as many tasks as both replicas, and a handler that takes as long. It is in this process, so faults of
//! replicas do not touch it.
//!
//! Before these, on one server, a replica ends that has received as much as it may hold (`held`).

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, stream};
use async_nats::{Client, ConnectOptions};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use keyqueue_nats::{Config, create};
use rustix::process::{Pid, Signal, kill_process};
use servers::Proxy;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::Kind::{Cluster, One};
use crate::clock;
use crate::lab::Lab;
use crate::receiver::Behaviour;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// How many servers: 1, 3 or 5
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// Only the faults whose names have this in them
    #[arg(long, default_value = "")]
    only: String,
}

const LEASE: Duration = Duration::from_secs(3);
const PARTITIONS: u16 = 8;
/// Of each of the two replicas.
const TASKS: usize = 8;
/// In milliseconds: with those of both replicas 800 messages a second are handled.
const WORK: u64 = 20;
const MESSAGES: usize = 14_000;
/// How long a plain consumer waits for a reply, or for a word from the server.
const PLAIN: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
/// After all messages are expected to be handled.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is done to a fleet of two replicas.
struct Fault {
    name: &'static str,
    /// On which servers it is tried.
    on: &'static [Kind],
    make: for<'a> fn(&'a mut Bench) -> BoxFuture<'a, Result<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    One,
    Cluster,
}

macro_rules! fault {
    ($name:literal, $on:expr, $bench:ident => $make:expr) => {
        Fault {
            name: $name,
            on: $on,
            make: |$bench| {
                Box::pin(async move {
                    $make;
                    Ok(())
                })
            },
        }
    };
}

const FAULTS: &[Fault] = &[
    fault!("none", &[One, Cluster], _bench => {}),
    fault!("a replica is killed (SIGKILL)", &[One, Cluster], bench => {
        bench.lab.kill(&bench.victim).await?;
        bench.lab.join(&format!("{}x", bench.victim), None)?;
    }),
    fault!("a replica is told to end (SIGTERM)", &[One, Cluster], bench => {
        ensure!(bench.lab.terminate(&bench.victim).await?, "it succeeds");
        bench.lab.join(&format!("{}x", bench.victim), None)?;
    }),
    fault!("a replica is stopped for 6 s (SIGSTOP)", &[One, Cluster], bench => bench.lab.pause(&bench.victim, 2 * LEASE).await?),
    fault!("a replica is cut off for 6 s", &[One, Cluster], bench => {
        bench.proxy.stall(true);
        sleep(2 * LEASE).await;
        bench.proxy.stall(false);
    }),
    fault!("a replica's connection breaks, five times", &[One, Cluster], bench => {
        for _ in 0..5 {
            bench.proxy.break_all();
            sleep(SECOND / 2).await;
        }
    }),
    fault!("all consumers are deleted", &[One, Cluster], bench => bench.lab.delete_consumers().await?),
    fault!("the buckets are deleted, and made again", &[One, Cluster], bench => {
        let context = jetstream::new(bench.client.clone());
        for bucket in ["owners", "counts"] {
            context.delete_stream(format!("KV_{}-{bucket}", bench.lab.config.stream)).await?;
        }
        create(&bench.client, &bench.lab.config).await?;
    }),
    fault!("the server is killed, back after 1 s", &[One], bench => bench.killed(&[0], SECOND).await?),
    fault!("the server is stopped for 4 s (SIGSTOP)", &[One], bench => bench.stopped(0, 4 * SECOND).await?),
    fault!("a server that leads is killed, back after 3 s", &[Cluster], bench => {
        let leader = bench.leader().await?;
        bench.killed(&[leader], 3 * SECOND).await?;
    }),
    fault!("another server is killed, back after 3 s", &[Cluster], bench => {
        let other = (bench.leader().await? + 1) % bench.servers();
        bench.killed(&[other], 3 * SECOND).await?;
    }),
    fault!("a server that leads is stopped for 12 s (SIGSTOP)", &[Cluster], bench => {
        let leader = bench.leader().await?;
        bench.stopped(leader, 12 * SECOND).await?;
    }),
    fault!("all servers are killed, back after 3 s", &[Cluster], bench => bench.killed(&Vec::from_iter(0..bench.servers()), 3 * SECOND).await?),
    fault!("one server after the other is killed, back after 2 s", &[Cluster], bench => {
        for server in 0..bench.servers() {
            bench.killed(&[server], 2 * SECOND).await?;
            sleep(4 * SECOND).await;
        }
    }),
    fault!("all leaders step down", &[Cluster], bench => {
        bench.lab.streams_step_down().await?;
        bench.lab.consumers_step_down().await?;
    }),
];

/// The fleet, the plain consumer, and a proxy before one of the replicas, which is another one for each fault.
struct Bench {
    lab: Lab,
    victim: String,
    client: Client,
    proxy: Proxy,
    plain: Plain,
}

impl Bench {
    fn servers(&self) -> usize {
        self.lab.config.replicas
    }

    /// The server that leads the plain consumer, and some of the fleet's.
    async fn leader(&self) -> Result<usize> {
        let context = jetstream::new(self.client.clone());
        let stream = context.get_stream("PLAIN").await?;
        let cluster = stream.consumer_info("plain").await?.cluster;
        let leader = cluster.and_then(|cluster| cluster.leader);
        Ok(leader
            .context("a leader")?
            .trim_start_matches('s')
            .parse()?)
    }

    async fn killed(&mut self, servers: &[usize], pause: Duration) -> Result<()> {
        for server in servers {
            self.lab.servers.kill(*server);
        }
        sleep(pause).await;
        self.lab.servers.start()
    }

    async fn stopped(&mut self, server: usize, pause: Duration) -> Result<()> {
        let process = self.lab.servers.process(server)?;
        let process = Pid::from_raw(process).context("a process")?;
        kill_process(process, Signal::STOP)?;
        sleep(pause).await;
        Ok(kill_process(process, Signal::CONT)?)
    }

    /// Makes a fault while there is work, and returns the longest times without a delivery: of a partition, and of the plain
    /// consumer.
    async fn measure(&mut self, fault: &Fault) -> Result<[Duration; 2]> {
        self.victim = format!("b{}", self.plain.filled / MESSAGES);
        let proxy = self.proxy.address().to_string();
        self.lab.join(&self.victim, Some(&proxy))?;
        self.plain.fill(&self.client).await?;
        let filled = self.lab.produce(MESSAGES, 1_000_000, 2)?.wait().await?;
        ensure!(filled.success(), "the producer failed");
        let works = async {
            while !self.lab.has_begun(&self.victim) {
                sleep(SECOND / 10).await;
            }
        };
        timeout(PATIENCE, works).await.context("it does not join")?;
        self.plain.start();
        sleep(SECOND).await;
        let began = clock::now();
        sleep(SECOND).await;
        (fault.make)(self).await?;
        let done = async {
            while !matches!(self.lab.left().await, Ok(0)) || self.plain.left() > 0 {
                sleep(SECOND / 4).await;
            }
        };
        timeout(PATIENCE, done).await.context("messages are left")?;
        self.plain.running.abort_all();
        for replica in self.lab.running() {
            if replica != "a" {
                let has_left = self.lab.terminate(&replica).await?;
                ensure!(has_left, "{replica} does not leave");
            }
        }
        let begun = self.lab.beginnings()?;
        let partitions = begun.into_values().map(|times| longest(times, began));
        let plain = longest(self.plain.begun(), began);
        Ok([partitions.max().unwrap_or_default(), plain])
    }
}

/// How a replica ends that holds as many messages as it may.
const HOLDERS: [(&str, bool); 2] = [
    ("30 000 messages are held, SIGTERM", false),
    ("30 000 messages are held, SIGKILL", true),
];
const HELD: usize = 30_000;

/// A replica, which has received all messages and calls one endpoint at a time, ends, and another one takes its partitions, with limited tries.
/// Returns how long there is none of the next owner, the longest time without one of a partition, and that from the first to the last.
async fn held(program: &Path, is_killed: bool) -> Result<[Duration; 3]> {
    let config = Config {
        lease: LEASE,
        max_retries: Some(3),
        dead_letters: Some("dead".into()),
        ..Config::default()
    };
    let behaviour = Behaviour {
        work: 1,
        ..Behaviour::default()
    };
    let lab = Lab::new(program, config, &behaviour).await?;
    let mut lab = lab.context("there is no nats-server")?;
    lab.start().await?;
    let filled = lab.produce(HELD, 1_000_000, 2)?.wait().await?;
    ensure!(filled.success(), "the producer failed");
    lab.replica_options = vec!["--tasks", "1"];
    lab.join("holder", None)?;
    while !lab.has_begun("holder") {
        sleep(SECOND / 10).await;
    }
    // So that it has received all.
    sleep(3 * SECOND).await;
    let began = clock::now();
    match is_killed {
        true => lab.kill("holder").await?,
        false => ensure!(lab.terminate("holder").await?, "it succeeds"),
    }
    let ended = clock::now();
    lab.replica_options = vec!["--tasks", "64"];
    lab.join("next", None)?;
    let verdict = lab.check().await?;
    ensure!(verdict.violations.is_empty(), "{verdict}");
    let begun = lab.beginnings()?;
    let next = begun.values().flatten().filter(|at| **at > ended);
    let (first, last) = next.fold((u64::MAX, 0), |(first, last), at| {
        (first.min(*at), last.max(*at))
    });
    let longest = begun.into_values().map(|times| longest(times, began));
    let (first, rest) = (first.saturating_sub(began), last.saturating_sub(first));
    Ok([
        Duration::from_nanos(first),
        longest.max().unwrap_or_default(),
        Duration::from_nanos(rest),
    ])
}

/// The longest time between two of these, from a time on, in nanoseconds.
fn longest(mut times: Vec<u64>, from: u64) -> Duration {
    times.retain(|at| *at > from);
    times.push(from);
    times.sort_unstable();
    let gaps = times.windows(2).map(|two| two[1] - two[0]);
    Duration::from_nanos(gaps.max().unwrap_or(0))
}

/// A plain consumer.
struct Plain {
    client: Client,
    begun: Arc<Mutex<Vec<u64>>>,
    filled: usize,
    replicas: usize,
    running: JoinSet<()>,
}

impl Plain {
    async fn new(servers: &str, replicas: usize) -> Result<Plain> {
        let options = ConnectOptions::new().request_timeout(Some(PLAIN));
        let servers: Vec<_> = servers.split(',').collect();
        Ok(Plain {
            client: options.connect(servers).await?,
            begun: Arc::default(),
            filled: 0,
            replicas,
            running: JoinSet::new(),
        })
    }

    /// Receives what there is.
    fn start(&mut self) {
        let (client, replicas) = (self.client.clone(), self.replicas);
        let log = Arc::clone(&self.begun);
        self.running.spawn(async move {
            loop {
                // An error ends it: the consumer is looked up, or made, again.
                let _ = receive(&client, replicas, &log).await;
                sleep(SECOND / 5).await;
            }
        });
    }

    /// Publishes messages.
    async fn fill(&mut self, client: &Client) -> Result<()> {
        let context = jetstream::new(client.clone());
        context
            .get_or_create_stream(stream_config(self.replicas))
            .await?;
        let mut confirmed = Vec::new();
        for n in 0..MESSAGES {
            confirmed.push(context.publish("plain", n.to_string().into()).await?);
            if confirmed.len() == 500 || n + 1 == MESSAGES {
                for confirmed in confirmed.drain(..) {
                    confirmed.await?;
                }
            }
        }
        self.filled += MESSAGES;
        Ok(())
    }

    fn begun(&self) -> Vec<u64> {
        self.begun.lock().expect("no panic").clone()
    }

    /// Some are delivered twice.
    fn left(&self) -> usize {
        self.filled.saturating_sub(self.begun().len())
    }
}

fn stream_config(replicas: usize) -> stream::Config {
    stream::Config {
        name: "PLAIN".into(),
        subjects: vec!["plain".into()],
        retention: stream::RetentionPolicy::WorkQueue,
        num_replicas: replicas,
        ..Default::default()
    }
}

async fn receive(client: &Client, replicas: usize, begun: &Mutex<Vec<u64>>) -> Result<()> {
    let context = jetstream::new(client.clone());
    let stream = context.get_stream("PLAIN").await?;
    let config = pull::Config {
        durable_name: Some("plain".into()),
        ack_policy: AckPolicy::Explicit,
        max_ack_pending: 10_000,
        num_replicas: replicas,
        memory_storage: true,
        ..Default::default()
    };
    let consumer = stream.get_or_create_consumer("plain", config).await?;
    let messages = consumer
        .stream()
        .max_messages_per_batch(50)
        .heartbeat(PLAIN);
    let mut messages = messages.messages().await?;
    let mut running = JoinSet::new();
    while let Some(message) = messages.next().await {
        let message = message?;
        if running.len() == 2 * TASKS {
            running.join_next().await;
        }
        begun.lock().expect("no panic").push(clock::now());
        running.spawn(async move {
            sleep(Duration::from_millis(WORK)).await;
            let _ = message.ack().await;
        });
    }
    Ok(())
}

/// Prints a row for each fault, and fails if the check of all of them does.
pub async fn run(options: Options) -> Result<()> {
    let config = Config {
        lease: LEASE,
        partitions: PARTITIONS,
        replicas: options.servers,
        window: 20,
        ..Config::default()
    };
    let program = std::env::current_exe()?;
    for (name, is_killed) in HOLDERS {
        if options.servers == 1 && name.contains(&options.only) {
            let [first, longest, rest] = held(&program, is_killed).await.context(name)?;
            println!(
                "{name}: the first after {first:.1?}, a partition {longest:.1?}, all within {rest:.1?} then"
            );
        }
    }
    let kind = if options.servers == 1 { One } else { Cluster };
    let is_wanted = |fault: &&Fault| fault.on.contains(&kind) && fault.name.contains(&options.only);
    if FAULTS.iter().filter(is_wanted).count() == 0 {
        return Ok(());
    }
    let behaviour = Behaviour {
        work: WORK,
        ..Behaviour::default()
    };
    let Some(mut lab) = Lab::new(&program, config, &behaviour).await? else {
        return Ok(());
    };
    lab.replica_options = vec!["--tasks", "8"];
    lab.start().await?;
    let client = lab.servers.ready().await?;
    let addresses = lab.servers.addresses();
    let first = addresses.split(',').next().unwrap_or_default();
    let proxy = Proxy::start(first.to_owned()).await?;
    lab.join("a", None)?;
    let plain = Plain::new(&addresses, options.servers).await?;
    let mut bench = Bench {
        lab,
        victim: String::new(),
        client,
        proxy,
        plain,
    };
    let mut rows = String::new();
    for fault in FAULTS.iter().filter(is_wanted) {
        let [fleet, plain] = bench.measure(fault).await.context(fault.name)?;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default();
        let row = format!("| {} | {fleet:.1?} | {plain:.1?} | {load} |", fault.name);
        println!("{row}");
        writeln!(rows, "{row}")?;
    }
    let verdict = bench.lab.check().await?;
    println!(
        "\n| fault | a partition | plain consumer | load |\n| --- | --- | --- | --- |\n{rows}\n{verdict}"
    );
    ensure!(verdict.violations.is_empty(), "there are violations");
    Ok(())
}
