//! Many threads and tasks use the queue at once, and the promises are checked key by key.
//!
//! * C5: every accepted add is followed by a delivery that begins after it. An adder raises the
//!   key's version *before* it adds; a worker reads the version when its delivery begins. At the
//!   end every key's version as last read is at least the one last accepted. All accesses are
//!   relaxed: the queue itself promises the visibility.
//! * C3: a key has one holder, and what it wrote is visible to the next one, so plain loads and
//!   stores count the deliveries of a key.
//! * C6: there are as many deliveries as adds that returned `Queued` or `Deferred`.
//!
//! `KEYQUEUE_STRESS_SECONDS` sets how long all of it takes, by default about 3 s.
//! It takes all cores, so it is a separate program.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{Config, Queue, poll, watchdog};
use keyqueue::{Added, Item, KeyHandle, TryGetError};

type Got<'q> = Item<'q, u64, keyqueue::limiter::NoLimit, common::Hashing>;

// Ordering: Relaxed everywhere here; see the header. What is read at the end is read after the
// threads were joined.
const R: Ordering = Ordering::Relaxed;

#[derive(Default)]
struct Key {
    version: AtomicU64,
    accepted: AtomicU64,
    seen: AtomicU64,
    held: AtomicBool,
    /// Counted with a plain load and store: by one holder at a time.
    deliveries: AtomicU64,
}

struct Stress {
    queue: Queue<u64>,
    keys: Vec<Key>,
    /// Adds that returned `Queued` or `Deferred`.
    owed: AtomicU64,
    /// Adds of bulks that did not become queued: some of these were deferred.
    perhaps_owed: AtomicU64,
    adds: AtomicU64,
    stop: AtomicBool,
}

/// How a producer adds.
#[derive(Clone, Copy)]
enum Adding {
    Add,
    AddRef,
    Handle,
    Bulk,
}

impl Stress {
    fn new(config: &Config, keys: usize) -> Arc<Self> {
        Arc::new(Stress {
            queue: config.queue(),
            keys: (0..keys).map(|_| Key::default()).collect(),
            owed: AtomicU64::new(0),
            perhaps_owed: AtomicU64::new(0),
            adds: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn key(&self, key: u64) -> &Key {
        &self.keys[key as usize]
    }

    fn delivered(&self, item: Got<'_>) {
        let key = self.key(*item);
        assert!(!key.held.swap(true, R), "two holders of {}", *item);
        key.seen.store(key.version.load(R), R);
        key.deliveries.store(key.deliveries.load(R) + 1, R);
        if fastrand::u8(..) == 0 {
            thread::yield_now();
        }
        key.held.store(false, R);
        item.done();
    }

    // ---- producers --------------------------------------------------------------------------

    /// Adds random keys until stopped or refused, or `most` times.
    fn produce(&self, adding: Adding, most: u64) {
        let handles: Vec<KeyHandle<u64>> = match adding {
            Adding::Handle => (0..self.keys.len().min(1000) as u64)
                .map(|key| self.queue.handle(key))
                .collect(),
            _ => Vec::new(),
        };
        let (mut owed, mut adds) = (0, 0);
        while adds < most && !self.stop.load(R) {
            let open = match adding {
                Adding::Bulk => {
                    adds += 16;
                    self.add_bulk(16, &mut owed)
                }
                _ => {
                    adds += 1;
                    self.add_one(adding, &handles, &mut owed)
                }
            };
            if !open {
                break;
            }
        }
        self.owed.fetch_add(owed, R);
        self.adds.fetch_add(adds, R);
    }

    fn add_one(&self, adding: Adding, handles: &[KeyHandle<u64>], owed: &mut u64) -> bool {
        let known = match adding {
            Adding::Handle => handles.len(),
            _ => self.keys.len(),
        };
        let key = fastrand::u64(..known as u64);
        let version = self.key(key).version.fetch_add(1, R) + 1;
        let added = match adding {
            Adding::AddRef => self.queue.add_ref(&key),
            Adding::Handle => handles[key as usize].add(),
            Adding::Add | Adding::Bulk => self.queue.add(key),
        };
        match added {
            Added::Queued | Added::Deferred => *owed += 1,
            Added::Merged => {}
            Added::ShutDown => return false,
            other => panic!("{other:?}"),
        }
        self.key(key).accepted.fetch_max(version, R);
        true
    }

    fn add_bulk(&self, size: usize, owed: &mut u64) -> bool {
        let keys: Vec<_> = (0..size)
            .map(|_| fastrand::u64(..self.keys.len() as u64))
            .collect();
        let raise = |&key: &u64| (key, self.key(key).version.fetch_add(1, R) + 1);
        let raised: Vec<_> = keys.iter().map(raise).collect();
        let queued = self.queue.add_all(keys);
        // If the queue was shut down under the bulk, it does not say which keys were refused.
        if self.queue.is_shutting_down() {
            *owed += queued as u64;
            self.perhaps_owed.fetch_add((size - queued) as u64, R);
            return false;
        }
        for (key, version) in raised {
            self.key(key).accepted.fetch_max(version, R);
        }
        *owed += queued as u64;
        self.perhaps_owed.fetch_add((size - queued) as u64, R);
        true
    }

    // ---- consumers --------------------------------------------------------------------------

    /// Consumes in the `kind`th way until the queue is at its end.
    fn consume(&self, kind: usize) {
        let queue = &self.queue;
        match kind % 6 {
            0 => {
                while let Some(item) = queue.get() {
                    self.delivered(item);
                }
            }
            1 => loop {
                let limit = Duration::from_micros(fastrand::u64(0..100));
                match queue.get_timeout(limit) {
                    Ok(item) => self.delivered(item),
                    Err(keyqueue::GetTimeoutError::Timeout) => {}
                    Err(keyqueue::GetTimeoutError::ShutDown) => break,
                }
            },
            2 => {
                while let Some(batch) = queue.get_batch(fastrand::usize(1..64)) {
                    batch.into_iter().for_each(|item| self.delivered(item));
                }
            }
            3 => pollster::block_on(self.consume_async()),
            // Waits, but more often than not changes its mind.
            4 => loop {
                let mut task = queue.get_async();
                match poll(&mut task, Waker::noop()) {
                    Poll::Ready(Some(item)) => self.delivered(item),
                    Poll::Ready(None) => break,
                    Poll::Pending => {
                        for _ in 0..fastrand::u32(0..2000) {
                            std::hint::spin_loop();
                        }
                        drop(task);
                        thread::yield_now();
                    }
                }
            },
            _ => loop {
                match queue.try_get() {
                    Ok(item) => self.delivered(item),
                    Err(TryGetError::Empty) => thread::yield_now(),
                    Err(TryGetError::ShutDown) => break,
                }
            },
        }
    }

    async fn consume_async(&self) {
        while let Some(item) = self.queue.get_async().await {
            self.delivered(item);
        }
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Checks the promises, once all threads and tasks have ended. Returns the deliveries.
    fn check(&self) -> u64 {
        assert!(self.queue.is_empty());
        assert!(self.queue.shut_down().is_nothing());
        let mut deliveries = 0;
        for (number, key) in self.keys.iter().enumerate() {
            let (accepted, seen) = (key.accepted.load(R), key.seen.load(R));
            assert!(
                seen >= accepted,
                "key {number}: add {accepted} was accepted, the last delivery saw {seen}"
            );
            deliveries += key.deliveries.load(R);
        }
        let (owed, perhaps) = (self.owed.load(R), self.perhaps_owed.load(R));
        assert!(
            (owed..=owed + perhaps).contains(&deliveries),
            "{deliveries} deliveries, owed {owed}, and up to {perhaps} of bulks"
        );
        deliveries
    }
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The producers stop, then the queue is shut down.
    Quiet,
    /// The queue is shut down while all are at work.
    ShutDown,
    /// The same, and a thread waits for the end.
    Drain,
}

fn run(config: &Config, keys: usize, adding: &[Adding], end: End, time: Duration) {
    let ring = config.ring;
    // Before the run, so that it stands above what fails.
    print!("{keys:>8} keys, ring {ring:?}, {end:?}:");
    let stress = Stress::new(config, keys);
    let begun = Instant::now();
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let stress = Arc::clone(&stress);
            tokio.spawn(async move { stress.consume_async().await })
        })
        .collect();
    thread::scope(|scope| {
        let stress = &*stress;
        for kind in 0..6 {
            scope.spawn(move || stress.consume(kind));
        }
        let producers: Vec<_> = adding
            .iter()
            .map(|&adding| scope.spawn(move || stress.produce(adding, u64::MAX)))
            .collect();
        // This one has to sleep: it sets how long the others run.
        thread::sleep(time);
        if end == End::Quiet {
            stress.stop.store(true, R);
            producers.into_iter().for_each(|p| p.join().unwrap());
        }
        match end {
            End::Drain => _ = stress.queue.shut_down_with_drain(),
            End::Quiet | End::ShutDown => _ = stress.queue.shut_down(),
        }
    });
    tokio.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    let deliveries = stress.check();
    let seconds = begun.elapsed().as_secs_f64();
    let adds = stress.adds.load(R);
    println!(
        " {:>6.2} M adds/s, {:>6.2} M deliveries/s",
        adds as f64 / seconds / 1e6,
        deliveries as f64 / seconds / 1e6,
    );
}

/// The time for everything, in portions of which there are `parts`.
fn portion(parts: u32) -> Duration {
    let seconds = std::env::var("KEYQUEUE_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(3.0, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds) / parts
}

/// Key sets of every size and every end, split over two tests.
const KEYS: &[usize] = if cfg!(miri) {
    &[3]
} else {
    &[1, 10, 1_000, 100_000, 1_000_000]
};
const ENDS: [End; 3] = [End::Quiet, End::ShutDown, End::Drain];

fn run_all(adding: &[Adding], time: Duration) {
    let mut configs = Config::races().into_iter().cycle();
    for &keys in KEYS {
        for end in ENDS {
            let config = configs.next().expect("a cycle has no end");
            run(&config, keys, adding, end, time);
        }
    }
}

#[test] // C3 C5 C6 C9 S1 S3
fn one_by_one_no_add_is_lost_and_no_key_has_two_holders() {
    let portion = portion(30);
    let _watchdog = watchdog(60 + 60 * portion.as_secs());
    run_all(&[Adding::Add, Adding::AddRef, Adding::Handle], portion);
}

#[test] // C3 C5 C12 S1 S3
fn in_bulks_no_add_is_lost_and_no_key_has_two_holders() {
    let portion = portion(30);
    let _watchdog = watchdog(60 + 60 * portion.as_secs());
    run_all(&[Adding::Bulk, Adding::Add, Adding::Handle], portion);
}

#[test] // C3 C5 C6 C9
#[ignore = "10 million adds at once take the whole machine; `.ci/run ignored` runs it"]
fn eight_producers_and_eight_consumers_lose_none_of_ten_million_adds() {
    let _watchdog = watchdog(600);
    for &keys in KEYS {
        let stress = Stress::new(&Config::usual(), keys);
        let begun = Instant::now();
        thread::scope(|scope| {
            let stress = &*stress;
            for kind in [0, 0, 0, 1, 2, 3, 3, 4] {
                scope.spawn(move || stress.consume(kind));
            }
            let ways = [Adding::Add, Adding::AddRef, Adding::Add, Adding::Handle];
            let producers: Vec<_> = (0..8)
                .map(|n| scope.spawn(move || stress.produce(ways[n % 4], 1_250_000)))
                .collect();
            producers.into_iter().for_each(|p| p.join().unwrap());
            stress.queue.shut_down_with_drain();
        });
        let deliveries = stress.check();
        assert_eq!(deliveries, stress.owed.load(R));
        println!(
            "{keys:>8} keys: {deliveries} deliveries, {:.2} M adds/s",
            10.0 / begun.elapsed().as_secs_f64()
        );
    }
}
