//! Lives that are not left to chance, as tests: every kind of producer, consumer and end, over few keys and many,
//! and each of what changes a queue's order, its bound or what it carries, alone and with others.
//!
//! `KEYQUEUE_STRESS_SECONDS` sets how long those that are not ignored take together, by default about 6 s.

use std::sync::Once;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};

use crate::plan::Taking::{
    Async, Batch, Fickle, Get, Owned, Tasks, TasksOfBatches, TasksOfEach, Timeout, Try, Workers,
    WorkersOfBatches, WorkersOfEach,
};
use crate::plan::{Adding, End, Plan};
use crate::settings::{Groups, Merging, Settings, Timing, Values};
use crate::{end_at_first_panic, live, watch_for_hangs};

/// Numbers of keys.
const KEYS: &[u64] = if cfg!(miri) {
    &[3]
} else {
    &[1, 10, 1_000, 100_000, 1_000_000]
};

/// About as many lives have an equal share of the time.
const LIVES: u32 = 100;

fn plan(keys: u64, producers: Vec<Adding>) -> Plan {
    Plan {
        settings: Settings::default(),
        keys,
        delayed: 0,
        owners: 0,
        holders: 0,
        counted: false,
        drivers: 0,
        mixed: false,
        cleared: false,
        retried: false,
        apart: false,
        producers,
        adds: None,
        bout: u32::MAX,
        consumers: vec![Get, Timeout, Batch, Async, Fickle, Try],
        tasks: 2,
        time: Duration::ZERO,
        end: End::AtRest,
    }
}

/// The time of one life.
fn share() -> Duration {
    let seconds = std::env::var("KEYQUEUE_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(6.0, |text| text.parse().expect("a number of seconds"));
    // Tests run two by two, at least.
    Duration::from_secs_f64(2.0 * seconds) / LIVES
}

fn runtime() -> Runtime {
    let tasks = Builder::new_multi_thread().worker_threads(1).build();
    tasks.expect("a runtime of one thread")
}

/// Runs the plan. Returns how often keys were added and delivered.
fn run(plan: Plan, tasks: &Runtime) -> (u64, u64) {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        end_at_first_panic();
        // Miri knows a deadlock, and no thread that outlives the tests.
        if !cfg!(miri) {
            watch_for_hangs();
        }
    });
    let done = live(plan.placed(), tasks);
    (done.adds, done.deliveries)
}

/// Runs the plan, and prints how fast that was.
fn run_and_tell(plan: Plan) -> (u64, u64) {
    // Before the run, so that it stands above what fails.
    let (keys, ring, end) = (plan.keys, plan.settings.ring, plan.end);
    print!("{keys:>8} keys, ring {ring:?}, {end:?}:");
    let begun = Instant::now();
    let (adds, deliveries) = run(plan, &runtime());
    let rate = |count: u64| count as f64 / begun.elapsed().as_secs_f64() / 1e6;
    let rates = (rate(adds), rate(deliveries));
    println!(
        " {:>6.2} M adds/s, {:>6.2} M deliveries/s",
        rates.0, rates.1
    );
    (adds, deliveries)
}

/// Runs every number of keys to every end, in a roomy queue and in a cramped one.
fn run_all(producers: &[Adding]) {
    let mut cramped = false;
    for &keys in KEYS {
        for end in [End::AtRest, End::ShutDown, End::Drain(1)] {
            let life = Plan {
                settings: Settings {
                    shards: cramped.then_some(2),
                    ring: cramped.then_some(1),
                    ..Settings::default()
                },
                time: share(),
                end,
                ..plan(keys, producers.to_vec())
            };
            run_and_tell(life);
            cramped = !cramped;
        }
    }
}

#[test] // C3 C5 C6 C9 S1 S3
fn one_by_one_no_add_is_lost_and_no_key_has_two_holders() {
    run_all(&[Adding::Add, Adding::Ref, Adding::Handle]);
}

#[test] // C3 C5 C12 S1 S3
fn in_bulks_no_add_is_lost_and_no_key_has_two_holders() {
    run_all(&[Adding::Bulk, Adding::Add, Adding::Handle]);
}

/// Lives of 64 keys with these settings, one after the other: each to another end, and every other one cramped.
/// `change` makes of them what they are to be beside that.
fn crowds(all: Vec<Settings>, producers: &[Adding], change: impl Fn(&mut Plan)) {
    let tasks = runtime();
    let ends = [
        End::AtRest,
        End::Now(1),
        End::Drain(2),
        End::AtRest,
        End::ShutDown,
        End::Now(2),
        End::DrainTimeout,
    ];
    for (nth, settings) in all.into_iter().enumerate() {
        let mut life = Plan {
            settings,
            counted: true,
            adds: cfg!(miri).then_some(20),
            bout: [1000, 10][nth % 2],
            time: if cfg!(miri) { Duration::ZERO } else { share() },
            end: ends[nth % ends.len()],
            ..plan(64, producers.to_vec())
        };
        if nth % 2 == 1 {
            (life.settings.shards, life.settings.ring) = (Some(2), Some(1));
        }
        change(&mut life);
        run(life, &tasks);
    }
}

fn leveled(levels: usize) -> Settings {
    Settings {
        levels,
        level: levels / 2,
        ..Settings::default()
    }
}

fn grouped(levels: usize, set: impl FnOnce(&mut Groups)) -> Settings {
    let mut groups = Groups {
        count: 8,
        apart: u64::MAX,
        limit: None,
        weights: false,
        rate: None,
    };
    set(&mut groups);
    Settings {
        groups: Some(groups),
        ..leveled(levels)
    }
}

fn timed(settings: Settings) -> Settings {
    Settings {
        timing: Timing::Named,
        ..settings
    }
}

fn bounded(capacity: usize, settings: Settings) -> Settings {
    Settings {
        capacity: Some(capacity),
        ..settings
    }
}

#[test] // C2 C3 C5 P1 P3
fn keys_that_are_raised_are_neither_lost_nor_doubled() {
    let all = vec![leveled(4), timed(leveled(2)), timed(leveled(4)), leveled(8)];
    let producers = [Adding::At, Adding::At, Adding::Handle, Adding::Add];
    // New nodes, because idle keys are dropped meanwhile.
    crowds(all.clone(), &producers, |life| {
        (life.keys, life.mixed) = (3, !cfg!(miri));
    });
    crowds(all, &producers, |_| {});
}

#[test] // C2 C3 C5 G1 G2 G3 G4
fn groups_neither_lose_nor_double_a_key_and_keep_their_limits() {
    let all = vec![
        grouped(1, |_| {}),
        grouped(3, |_| {}),
        grouped(1, |groups| groups.limit = Some(1)),
        grouped(2, |groups| groups.limit = Some(2)),
        grouped(1, |groups| groups.weights = true),
        // One for each key.
        grouped(1, |groups| groups.count = 64),
    ];
    let producers = [Adding::At, Adding::Handle, Adding::Add, Adding::Bulk];
    crowds(all, &producers, |life| {
        life.cleared = life.end == End::AtRest;
    });
}

#[test] // C9 G5 G6 T1 T2
fn rates_holds_and_intervals_neither_lose_keys_nor_wake_ups() {
    let with = |rate, interval, settings| Settings {
        rate,
        interval,
        ..settings
    };
    let interval = Some(Duration::from_micros(200));
    let limited = |levels| grouped(levels, |groups| groups.limit = Some(2));
    let all = vec![
        grouped(1, |groups| groups.rate = Some((1e6, 10))),
        // What is discarded waits for a token, or for an interval.
        with(Some((5e3, 20)), None, Settings::default()),
        with(Some((5e4, 50)), None, limited(2)),
        with(None, interval, Settings::default()),
        grouped(1, |_| {}),
        with(None, Some(Duration::from_millis(5)), limited(3)),
        with(Some((1e6, 100)), interval, grouped(1, |_| {})),
        grouped(1, |groups| groups.rate = Some((2000.0, 20))),
        grouped(2, |_| {}),
    ];
    crowds(all, &[Adding::At, Adding::Add, Adding::Handle], |life| {
        life.holders = u64::from(life.settings.groups.is_some());
        (life.owners, life.delayed) = (1, 16);
        (life.mixed, life.retried) = (true, true);
    });
}

#[test] // B1 B2 B3
fn no_add_waits_forever_and_none_is_refused_while_all_fit() {
    let limited = || grouped(2, |groups| groups.limit = Some(1));
    let all = vec![
        bounded(1, Settings::default()),
        bounded(16, Settings::default()),
        bounded(2, leveled(3)),
        bounded(16, limited()),
        // Room for all. What two threads do to one key takes longer if its times are noted.
        bounded(100, Settings::default()),
        bounded(100, timed(leveled(3))),
        bounded(100, timed(leveled(3))),
        bounded(100, limited()),
    ];
    let some = [Adding::Try, Adding::Async, Adding::At, Adding::At];
    crowds(all.clone(), &some, |life| {
        // Fewer, so that they run out.
        life.keys = if life.settings.capacity == Some(100) {
            3
        } else {
            64
        };
    });
    let own = [
        Adding::Try,
        Adding::Wait,
        Adding::Timeout,
        Adding::Cancelled,
    ];
    crowds(all, &own, |life| life.apart = true);
}

#[test] // B2 B3 B4 D6
fn delays_and_retries_neither_lose_nor_double_room() {
    let supersedes = Settings {
        supersede: true,
        ..bounded(4, leveled(3))
    };
    let all = vec![
        bounded(1, Settings::default()),
        bounded(16, leveled(2)),
        supersedes.clone(),
        supersedes,
    ];
    let producers = [Adding::Try, Adding::Wait, Adding::Cancelled, Adding::Add];
    crowds(all, &producers, |life| {
        (life.mixed, life.retried) = (true, true);
    });
}

fn valued(merging: Merging, weight: Option<usize>, settings: Settings) -> Settings {
    Settings {
        values: Some(Values { merging, weight }),
        ..settings
    }
}

#[test] // V1 V2
fn values_come_in_the_order_of_each_thread_and_none_is_lost() {
    use Merging::{Append, Latest, Panicking};
    let limited = || grouped(2, |groups| groups.limit = Some(1));
    let all = vec![
        valued(Append, None, Settings::default()),
        valued(Append, None, Settings::default()),
        valued(Latest, None, leveled(3)),
        valued(Append, None, limited()),
        valued(Panicking, None, Settings::default()),
        valued(Append, None, bounded(1, Settings::default())),
        valued(Append, Some(3), bounded(10, leveled(2))),
        valued(Append, Some(3), bounded(1, Settings::default())),
    ];
    let producers = [Adding::Add, Adding::Tracked, Adding::Update, Adding::Wait];
    crowds(all, &producers, |life| life.consumers.push(Owned));
}

#[test] // V2 V3 V4 B2 W2 W10 W11
fn values_that_are_retried_keep_their_order_and_none_is_lost() {
    use Merging::{Append, Panicking};
    let all = vec![
        valued(Append, None, Settings::default()),
        valued(Append, None, leveled(3)),
        valued(Append, Some(3), bounded(10, Settings::default())),
        valued(Append, None, grouped(2, |groups| groups.limit = Some(2))),
        valued(Append, None, bounded(4, Settings::default())),
        valued(Panicking, None, Settings::default()),
    ];
    let producers = [Adding::Ref, Adding::Tracked, Adding::Handle, Adding::Wait];
    crowds(all, &producers, |life| {
        life.consumers = vec![
            Workers,
            Tasks,
            WorkersOfBatches,
            TasksOfBatches,
            WorkersOfEach,
            TasksOfEach,
            Batch,
            Owned,
        ];
        life.retried = true;
        // Nothing may be lost until then.
        life.end = End::AtRest;
        (life.owners, life.delayed) = (1, 16);
    });
}

#[test] // C9 B2 G1 G6 T1 T2
fn nobody_oversleeps_in_a_short_life() {
    let (tasks, begun) = (runtime(), Instant::now());
    // What is random here is not what makes a life fail: that is chance anyway.
    let mut rng = Rng::with_seed(1);
    while begun.elapsed() < 15 * share() {
        let mut life = Plan::random(&mut rng);
        // All keys have to come, and no later add or shut-down makes up for a lost wake-up.
        (life.adds, life.time, life.end) = (Some(40), Duration::ZERO, End::AtRest);
        life.keys = life.keys.min(50).max(life.producers.len() as u64);
        (life.delayed, life.owners) = (0, 0);
        if let Some(groups) = &mut life.settings.groups {
            groups.count = groups.count.min(life.keys);
        }
        run(life, &tasks);
    }
}

#[test] // C3 C5 C6 C9
#[ignore = "10 million adds at once take the whole machine; `.ci/run ignored` runs it"]
fn eight_producers_and_eight_consumers_lose_none_of_ten_million_adds() {
    for &keys in KEYS {
        let adding = [Adding::Add, Adding::Ref, Adding::Add, Adding::Handle];
        let life = Plan {
            adds: Some(1_250_000),
            // And one more that each life has.
            consumers: vec![Get, Get, Timeout, Batch, Async, Async, Fickle],
            tasks: 0,
            ..plan(keys, adding.repeat(2))
        };
        let (adds, _) = run_and_tell(life);
        assert_eq!(adds, 10_000_000);
    }
}
