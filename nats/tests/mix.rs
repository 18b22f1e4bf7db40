//! Everything at once, at random, with an independent check: verdicts of all kinds, replicas that are killed, leave and join, connections
//! that break and lose what is on its way, consumers that are deleted, delayed adds.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream;
use futures_util::TryStreamExt;
use keyqueue_nats::{Coalesce, Config, Fence, Outcome, Producer, Verdict};
use servers::Proxy;
use servers::nats::Server;
use tokio::time::{Instant, sleep};

use common::{Replica, config, created, for_each_coalesce, messages, replica, stored, through};

#[derive(Default)]
struct Witness {
    /// The payloads of each key that were handled.
    done: BTreeMap<String, BTreeSet<u32>>,
    /// The last sequence that was handled under a fence.
    last: BTreeMap<(String, Fence), u64>,
    running: BTreeMap<(String, Fence), usize>,
    faults: Vec<String>,
    deliveries: usize,
}

async fn join(
    server: &Server,
    config: &Config,
    witness: &Arc<Mutex<Witness>>,
    name: usize,
) -> (Replica, Proxy) {
    let proxy = Proxy::start(server.url()).await.unwrap();
    let (client, name) = (through(&proxy).await, format!("r{name}"));
    let replica = replica(client, config, &name, {
        let witness = Arc::clone(witness);
        move |delivery| {
            let witness = Arc::clone(&witness);
            async move {
                let id = (delivery.key().to_owned(), delivery.fence());
                let first = delivery.messages()[0].sequence;
                {
                    let mut witness = witness.lock().unwrap();
                    witness.deliveries += 1;
                    let beside = witness.running.entry(id.clone()).or_default();
                    *beside += 1;
                    if *beside > 1 {
                        witness.faults.push(format!("two at once: {id:?}"));
                    }
                    if let Some(last) = witness.last.get(&id).filter(|last| **last >= first) {
                        let fault = format!("{id:?}: {first} after {last}");
                        witness.faults.push(fault);
                    }
                }
                struct End(Arc<Mutex<Witness>>, (String, Fence));
                impl Drop for End {
                    fn drop(&mut self) {
                        *self.0.lock().unwrap().running.get_mut(&self.1).unwrap() -= 1;
                    }
                }
                let _end = End(Arc::clone(&witness), id.clone());
                sleep(Duration::from_millis(fastrand::u64(0..40))).await;
                let pause = Duration::from_millis(fastrand::u64(1..2500));
                let verdict = match fastrand::u8(0..24) {
                    0 => Verdict::Retry("bad".to_owned()),
                    1 => Verdict::RetryAfter("bad".to_owned(), pause),
                    2 => Verdict::Ok(Outcome::Later(pause)),
                    3 => Verdict::Ok(Outcome::RequeueAfter(pause)),
                    4 => Verdict::Ok(Outcome::RequeueRateLimited),
                    // The lease may be renewed after all, and what is done without it is acknowledged then.
                    _ if !delivery.still_owned() => Verdict::Retry("not owned".to_owned()),
                    _ => Verdict::Ok(Outcome::Done),
                };
                if matches!(verdict, Verdict::Ok(Outcome::Done)) {
                    let mut witness = witness.lock().unwrap();
                    witness.last.insert(id, delivery.latest().sequence);
                    let of_key = witness.done.entry(delivery.key().to_owned()).or_default();
                    of_key.extend(delivery.messages().iter().map(|message| {
                        let text = std::str::from_utf8(&message.payload).unwrap();
                        text.parse::<u32>().unwrap()
                    }));
                }
                verdict
            }
        }
    })
    .await;
    (replica, proxy)
}

async fn mix(coalesce: Coalesce) {
    let config = Config {
        coalesce,
        partitions: 3,
        window: 20,
        lease: Duration::from_secs(1),
        max_handover: Duration::from_millis(300),
        max_held_bytes: 200,
        ..config()
    };
    let Some((server, client, _)) = created(&config).await else {
        return;
    };
    let context = jetstream::new(client.clone());
    let producer = Producer::new(client.clone(), &config).unwrap();
    let witness = Arc::<Mutex<Witness>>::default();
    let mut replicas = Vec::new();
    for name in 0..2 {
        replicas.push(join(&server, &config, &witness, name).await);
    }
    let end = Instant::now() + Duration::from_secs(15);
    let adding = tokio::spawn(async move {
        let mut round = 0;
        while Instant::now() < end {
            let batch = (0..30).map(|key| (format!("k{key}"), round.to_string()));
            stored(&producer, batch).await;
            round += 1;
            for key in 0..3 {
                let delay = Duration::from_secs(1);
                let key = format!("at{key}");
                let stored = producer.add_after(&key, round.to_string(), delay);
                stored.await.unwrap();
            }
            sleep(Duration::from_millis(fastrand::u64(10..150))).await;
        }
        round
    });
    let mut name = 2;
    let mut acts = [0; 6];
    while Instant::now() < end {
        sleep(Duration::from_millis(fastrand::u64(100..900))).await;
        let index = fastrand::usize(..replicas.len());
        let act = fastrand::usize(..6);
        acts[act] += 1;
        match act {
            0 => {
                let (killed, _) = replicas.swap_remove(index);
                killed.running.abort();
            }
            1 => {
                let (leaves, proxy) = replicas.swap_remove(index);
                tokio::spawn(async move {
                    let deadline = Duration::from_millis(fastrand::u64(0..200));
                    leaves.fleet.leave(deadline).await;
                    leaves.running.await.unwrap().unwrap();
                    drop(proxy);
                });
            }
            2 => replicas[index].1.break_all(),
            3 => {
                let proxy = &replicas[index].1;
                proxy.swallow(true);
                sleep(Duration::from_millis(100)).await;
                proxy.break_all();
                proxy.swallow(false);
            }
            4 => {
                let proxy = &replicas[index].1;
                proxy.stall(true);
                sleep(Duration::from_millis(fastrand::u64(100..1500))).await;
                proxy.stall(false);
            }
            _ => {
                let partition = fastrand::usize(..3);
                let stream = context.get_stream(format!("WORK-3-{partition}")).await;
                let stream = stream.unwrap();
                let names: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
                for name in names {
                    let _ = stream.delete_consumer(&name).await;
                }
            }
        }
        while replicas.len() < 2 || replicas.len() < 4 && fastrand::u8(0..3) == 0 {
            replicas.push(join(&server, &config, &witness, name).await);
            name += 1;
        }
    }
    let rounds = adding.await.unwrap();
    let began = Instant::now();
    while messages(&server, &config).await > 0 && began.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(100)).await;
    }
    let left = messages(&server, &config).await;
    let witness = witness.lock().unwrap();
    println!(
        "{coalesce:?}: {rounds} rounds, {name} replicas, {:?}, {} deliveries, drained after {:?}",
        acts,
        witness.deliveries,
        began.elapsed()
    );
    assert_eq!(left, 0, "stuck");
    assert!(witness.faults.is_empty(), "{:?}", witness.faults);
    for key in 0..30 {
        let done = &witness.done[&format!("k{key}")];
        assert_eq!(done.last(), Some(&(rounds - 1)), "{key}");
        if coalesce == Coalesce::Never {
            let missing: Vec<_> = (0..rounds).filter(|round| !done.contains(round)).collect();
            assert!(missing.is_empty(), "{key}: {missing:?}");
        }
    }
    for key in 0..3 {
        assert_eq!(witness.done[&format!("at{key}")].last(), Some(&rounds));
    }
}

for_each_coalesce!(mix);
