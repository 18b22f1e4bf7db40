//! What it costs a queue to be watched: without a name, timed only, and named.
//!
//! `cargo bench -p keyqueue-benches --features metrics --bench watched -- [ROUNDS]`
//!
//! There are many short rounds, and in each every variant runs once, one after the other (A B C A B
//! C ...). The medians are printed, and the minima, which a round costs that nobody disturbed.
//! Every round checks what was delivered. The metrics go to a recorder that keeps nothing, as with
//! no exporter installed; what an exporter costs is paid by the reporting thread.
//!
//! Without the `--bench` that cargo passes it runs every workload once: a test that they work.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use keyqueue::WorkQueue;

const KEYS: u64 = 1024;
const PASSES: u64 = 40;
const UNIQUE: u64 = 50_000;

type Queue = WorkQueue<u64>;
type Workload = (&'static str, fn(&Queue) -> f64);

const VARIANTS: [&str; 3] = ["off", "timed", "named"];

const WORKLOADS: [Workload; 4] = [
    ("cycle-u64, ns/key", cycle),
    ("duplicate-1, ns/add", duplicate),
    ("deferred, ns/key", deferred),
    ("unique-1x1, ns/key", unique),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = if arguments.iter().any(|argument| argument == "--bench") {
        arguments.iter().find_map(|n| n.parse().ok()).unwrap_or(200)
    } else {
        eprintln!("no --bench: a test run, its figures mean nothing");
        1
    };
    println!("| workload | {} |", VARIANTS.join(" | "));
    println!("| --- |{}", " --- |".repeat(VARIANTS.len()));
    for (name, run) in WORKLOADS {
        let mut figures = [const { Vec::new() }; VARIANTS.len()];
        for round in 0..=rounds {
            for (variant, figures) in VARIANTS.iter().zip(&mut figures) {
                let figure = run(&queue(variant));
                // The first warms up.
                if round > 0 {
                    figures.push(figure);
                }
            }
        }
        let cells = figures.map(|mut figures| {
            figures.sort_by(f64::total_cmp);
            format!("{:.1} ({:.1})", figures[figures.len() / 2], figures[0])
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!("\nMedians of {rounds} rounds (minima).");
}

fn queue(variant: &str) -> Queue {
    let mut builder = Queue::builder().timing(variant != "off");
    if variant == "named" {
        builder = builder.name("bench");
    }
    builder.build().expect("the settings are in range")
}

fn per(operations: u64, run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn recurring() -> impl Iterator<Item = u64> {
    (0..PASSES).flat_map(|_| 0..KEYS)
}

/// Recurring keys, one after the other: add, get, done.
fn cycle(queue: &Queue) -> f64 {
    per(KEYS * PASSES, || {
        for key in recurring() {
            queue.add(key);
            let item = queue.get().expect("a key was added");
            assert_eq!(*black_box(item), key);
        }
    })
}

/// Adds of keys that are queued.
fn duplicate(queue: &Queue) -> f64 {
    queue.add_all(0..KEYS);
    let nanos = per(KEYS * PASSES, || {
        for key in recurring() {
            queue.add(black_box(key));
        }
    });
    assert_eq!(queue.len() as u64, KEYS);
    nanos
}

/// One key that is added again whenever it is processed: add, done, get.
fn deferred(queue: &Queue) -> f64 {
    queue.add(0);
    let mut held = queue.get();
    per(KEYS * PASSES, || {
        for _ in 0..KEYS * PASSES {
            queue.add(0);
            drop(held.take());
            held = queue.get();
        }
        assert_eq!(held.as_deref(), Some(&0));
    })
}

/// Distinct keys, one producer and one consumer.
fn unique(queue: &Queue) -> f64 {
    per(UNIQUE, || {
        let delivered = thread::scope(|scope| {
            scope.spawn(|| {
                for key in 0..UNIQUE {
                    queue.add(key);
                }
                queue.shut_down();
            });
            std::iter::from_fn(|| queue.get()).count()
        });
        assert_eq!(delivered as u64, UNIQUE);
    })
}
