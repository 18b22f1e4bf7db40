//! A disk that is full, and is freed: what was confirmed is handled, what was refused is not, and no key ends with an older state.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use keyqueue_nats::{Coalesce, Config, Error, Producer, create};
use servers::nats::Server;
use tokio::time::{Instant, sleep};

use common::{Log, Replica, config, messages, seen};

const BALLAST: &str = "BALLAST";
const KEYS: usize = 50;

/// What became of the adds, by key. The payload is the number of the add.
#[derive(Default)]
struct Adds {
    confirmed: BTreeMap<String, BTreeSet<usize>>,
    /// Those that are not stored, as the error says.
    refused: BTreeSet<(String, usize)>,
    open: usize,
}

/// Adds the keys in turn until it is told to stop.
async fn add(producer: Producer, stop: Arc<AtomicBool>) -> Adds {
    let mut adds = Adds::default();
    let mut round = 0;
    while !stop.load(Relaxed) {
        let batch = (0..KEYS).map(|key| (key.to_string(), format!("{round:02000}")));
        for (key, stored) in producer.add_batch(batch).await.into_iter().enumerate() {
            let key = key.to_string();
            match stored {
                Ok(_) => drop(adds.confirmed.entry(key).or_default().insert(round)),
                Err(error) if error.to_string().contains("may be stored or not") => adds.open += 1,
                Err(Error::Refused { .. } | Error::Server { .. }) => {
                    adds.refused.insert((key, round));
                }
                Err(error) => panic!("{error}"),
            }
        }
        round += 1;
        sleep(Duration::from_millis(20)).await;
    }
    adds
}

async fn full_and_freed(coalesce: Coalesce) {
    let Some(server) = Server::start_with("max_file_store: 4000000").await else {
        return;
    };
    let config = Config {
        coalesce,
        ..config()
    };
    let client = server.client().await;
    create(&client, &config).await.unwrap();
    let context = jetstream::new(client.clone());
    let ballast = stream::Config {
        name: BALLAST.into(),
        subjects: vec![BALLAST.into()],
        ..Default::default()
    };
    let ballast = context.create_stream(ballast).await.unwrap();
    let log = Log::default();
    let replica = Replica::logging(&server, &config, "a", &log).await;
    let stop = Arc::new(AtomicBool::new(false));
    let producer = Producer::new(client, &config).unwrap();
    let adding = tokio::spawn(add(
        producer.patience(Duration::from_secs(2)),
        Arc::clone(&stop),
    ));

    sleep(Duration::from_secs(1)).await;
    let full = Instant::now() + config.lease + Duration::from_secs(1);
    while Instant::now() < full {
        // Fills what acknowledgements free.
        let publishing = context.publish(BALLAST, vec![0; 20_000].into()).await;
        if publishing.unwrap().await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    }
    ballast.purge().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    stop.store(true, Relaxed);
    let adds = adding.await.unwrap();

    let end = Instant::now() + Duration::from_secs(20);
    while messages(&server, &config).await > 0 && Instant::now() < end {
        sleep(Duration::from_millis(20)).await;
    }
    let mut handled: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for seen in seen(&log) {
        let rounds = seen.payloads.iter().map(|payload| payload.parse::<usize>());
        let of_key = handled.entry(seen.key).or_default();
        of_key.extend(rounds.map(Result::unwrap));
    }
    let confirmed: usize = adds.confirmed.values().map(BTreeSet::len).sum();
    println!(
        "{coalesce:?}: {confirmed} confirmed, {} refused, {} open",
        adds.refused.len(),
        adds.open
    );
    let left = messages(&server, &config).await;
    assert_eq!(left, 0, "messages are left");
    assert!(!adds.refused.is_empty(), "the disk was full");
    for (key, rounds) in &adds.confirmed {
        let handled = &handled[key];
        let last = *rounds.last().unwrap();
        let newest = handled.iter().max().copied();
        assert!(newest >= Some(last), "{key}: {last} is lost");
        assert_eq!(handled.last().copied(), newest, "{key}: finally old");
        assert!(handled.is_sorted(), "{key}: {handled:?}");
        if coalesce == Coalesce::Never {
            let lost: Vec<_> = rounds
                .iter()
                .filter(|round| !handled.contains(round))
                .collect();
            assert_eq!(lost, [&0; 0], "{key}: lost");
        }
    }
    for (key, round) in &adds.refused {
        let handled = handled.get(key).is_some_and(|all| all.contains(round));
        assert!(!handled, "{key}: {round} was refused, and handled");
    }
    replica.leave().await;
}

#[tokio::test]
async fn full_and_freed_server() {
    full_and_freed(Coalesce::Server).await;
}

#[tokio::test]
async fn full_and_freed_client() {
    full_and_freed(Coalesce::Client).await;
}

#[tokio::test]
async fn full_and_freed_never() {
    full_and_freed(Coalesce::Never).await;
}
