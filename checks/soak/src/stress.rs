//! Lives that are not left to chance, as tests: every kind of producer, consumer and end, over few keys and many.
//!
//! `KEYQUEUE_STRESS_SECONDS` sets how long those that are not ignored take together, by default about 3 s.

use std::sync::Once;
use std::time::{Duration, Instant};

use keyqueue::DelayPolicy;
use tokio::runtime::Builder;

use crate::plan::Taking::{Async, Batch, Fickle, Get, Timeout, Try};
use crate::plan::{Adding, End, Plan};
use crate::{live, watch_for_hangs};

/// Numbers of keys.
const KEYS: &[u64] = if cfg!(miri) {
    &[3]
} else {
    &[1, 10, 1_000, 100_000, 1_000_000]
};

fn plan(keys: u64, producers: Vec<Adding>) -> Plan {
    Plan {
        shards: None,
        ring: None,
        tick: Duration::from_millis(1),
        policy: DelayPolicy::Earliest,
        supersede: false,
        drain_delays: false,
        keys,
        delayed: 0,
        owners: 0,
        counted: false,
        drivers: 0,
        mixed: false,
        producers,
        adds: None,
        bout: u32::MAX,
        consumers: vec![Get, Timeout, Batch, Async, Fickle, Try],
        tasks: 2,
        time: Duration::ZERO,
        end: End::AtRest,
    }
}

/// Runs the plan. Returns how often keys were added and delivered.
fn run(plan: Plan) -> (u64, u64) {
    // Miri knows a deadlock, and no thread that outlives the tests.
    static WATCH: Once = Once::new();
    if !cfg!(miri) {
        WATCH.call_once(watch_for_hangs);
    }
    // Before the run, so that it stands above what fails.
    let Plan {
        keys, ring, end, ..
    } = &plan;
    print!("{keys:>8} keys, ring {ring:?}, {end:?}:");
    let begun = Instant::now();
    let tasks = Builder::new_multi_thread().worker_threads(1).build();
    let done = live(plan, &tasks.expect("a runtime of one thread"));
    let rate = |count: u64| count as f64 / begun.elapsed().as_secs_f64() / 1e6;
    let (adds, deliveries) = (rate(done.adds), rate(done.deliveries));
    println!(" {adds:>6.2} M adds/s, {deliveries:>6.2} M deliveries/s");
    (done.adds, done.deliveries)
}

/// Runs every number of keys to every end, in a roomy queue and in a cramped one.
fn run_all(producers: &[Adding]) {
    let seconds = std::env::var("KEYQUEUE_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(3.0, |text| text.parse().expect("a number of seconds"));
    let mut cramped = false;
    for &keys in KEYS {
        for end in [End::AtRest, End::ShutDown, End::Drain(1)] {
            let life = Plan {
                shards: cramped.then_some(2),
                ring: cramped.then_some(1),
                time: Duration::from_secs_f64(seconds) / 30,
                end,
                ..plan(keys, producers.to_vec())
            };
            run(life);
            cramped = !cramped;
        }
    }
}

#[test] // C3 C5 C6 C9 S1 S3
fn one_by_one_no_add_is_lost_and_no_key_has_two_holders() {
    run_all(&[Adding::Add, Adding::AddRef, Adding::Handle]);
}

#[test] // C3 C5 C12 S1 S3
fn in_bulks_no_add_is_lost_and_no_key_has_two_holders() {
    run_all(&[Adding::Bulk, Adding::Add, Adding::Handle]);
}

#[test] // C3 C5 C6 C9
#[ignore = "10 million adds at once take the whole machine; `.ci/run ignored` runs it"]
fn eight_producers_and_eight_consumers_lose_none_of_ten_million_adds() {
    for &keys in KEYS {
        let adding = [Adding::Add, Adding::AddRef, Adding::Add, Adding::Handle];
        let life = Plan {
            adds: Some(1_250_000),
            // And one more that each life has.
            consumers: vec![Get, Get, Timeout, Batch, Async, Async, Fickle],
            tasks: 0,
            ..plan(keys, adding.repeat(2))
        };
        let (adds, _) = run(life);
        assert_eq!(adds, 10_000_000);
    }
}
