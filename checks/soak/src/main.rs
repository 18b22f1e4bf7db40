//! Runs a queue for as long as one likes, and checks what it promises meanwhile.
//!
//! `cargo run --release -p keyqueue-soak -- --minutes 60`
//!
//! A soak is a row of *lives*. Each is a new queue with settings, producers, consumers and an end that are
//! chosen at random ([`plan`], [`settings`]): every setting of a queue, and every way to add, get, finish and end.
//!
//! | promise | checked | where |
//! | --- | --- | --- |
//! | C3: a key has one holder | at each delivery | [`Ledger`] |
//! | C5: no add is lost | as each life ends: every key's last delivery saw its last accepted version | [`Ledger`] |
//! | C2, C4, C6: no delivery too many, and none too few but for what was discarded | as each life ends: deliveries against the results of adds | [`Ledger`] |
//! | C8, C9: no key waits while its consumers sleep | in each life that ends at rest, before its shut-down | [`life`] |
//! | C7: an item that is dropped by a panic is done | in each delivery that panics | [`consume`] |
//! | C10, G3: no memory is lost, no key, value or group stays alive, whatever it waited for | after each life | [`report`], [`life`], [`pieces`] |
//! | D1: no delay is early; D3, D6: each ends once, a cancelled one never; T2: none within an interval | at each delivery, and at each step of the delays' owner | [`owner`] |
//! | G6: no key of a held group comes, and each comes after that | at each delivery, and at each step of the group's holder | [`holder`] |
//! | G2: no group exceeds its limit | at each delivery | [`flight`] |
//! | T1, G5: no rate is exceeded | as each life ends: deliveries against the time | [`life`] |
//! | P1, P4, M2: levels and times that make sense | at each delivery of an item | [`consume`] |
//! | B1: adds that respect the bound keep to it | after each add, in lives where nothing else exceeds it | [`produce`] |
//! | B2: no add is refused while there is room, and none waits forever | at each add of a life with room for all; at rest; as each life ends | [`produce`], [`life`] |
//! | V1 to V4: values come in the order of each thread, none is lost, none comes twice | as each delivery finishes, and as each life ends | [`pieces`] |
//! | W11: messages come one by one, in order | as each message is done, or given up | [`pieces`], [`consume`] |
//! | V2: a receipt ends with its delivery | at each receipt that is waited for; as each life ends | [`produce`] |
//! | S12: what is left is left once, to one of two threads | after each life | [`life`], [`pieces`] |
//! | S1 to S5, S7, S8: ends; each reports the same | as each life ends | [`end`] |
//!
//! [`Ledger`]: keyqueue_model::ledger::Ledger
//!
//! A promise that is broken ends the process at once, with the life's plan; the seed is printed first. So does a life that
//! comes to no end.

mod carried;
mod consume;
mod end;
mod flight;
mod holder;
mod life;
mod owner;
mod pieces;
mod plan;
mod produce;
mod report;
mod settings;
#[cfg(test)]
mod stress;

use std::collections::BTreeMap;
use std::io::{Write, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use crate::life::Done;
use crate::plan::Plan;
use crate::report::Report;

/// Runs keyqueue for minutes or days, and checks what it promises meanwhile.
#[derive(Parser)]
struct Options {
    /// How long
    #[arg(long, default_value_t = 1.0, value_name = "N", value_parser = minutes)]
    minutes: f64,
    /// Chooses the plans; what the threads draw, and their timing, is another matter [default: a random one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Seconds between two lines of the report
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if 0.0 < minutes && minutes <= 1e6 => Ok(minutes),
        _ => Err("must be a number above 0, at most 1000000".to_owned()),
    }
}

/// What is told about the lives that run when something fails: tests run several at once.
static NOW: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());
/// Lives that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// Lives that came to an end.
static LIVES: AtomicU64 = AtomicU64::new(0);
/// No life may take as long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(180);

fn fail(why: &str) -> ! {
    // Not by `eprintln`, which a test would keep to itself until it ends.
    _ = writeln!(stderr(), "soak failed: {why}");
    for (nth, plan) in NOW.lock().iter().flat_map(|now| now.iter()) {
        _ = writeln!(stderr(), "in life {nth}: {plan}");
    }
    std::process::exit(1);
}

/// A broken promise is a panic, in whatever thread or task, and ends everything.
fn end_at_first_panic() {
    std::panic::set_hook(Box::new(|info| {
        let trace = std::backtrace::Backtrace::capture();
        fail(&format!("a promise is broken: {info}\n{trace}"));
    }));
}

fn watch_for_hangs() {
    thread::spawn(|| {
        loop {
            // Ordering: Relaxed, here and where it is raised; a count.
            let before = LIVES.load(Ordering::Relaxed);
            thread::sleep(PATIENCE);
            if LIVES.load(Ordering::Relaxed) == before {
                fail("a life came to no end");
            }
        }
    });
}

/// Lives a life; [`fail`] prints its plan if it does not end well.
fn live(plan: Plan, tasks: &Runtime) -> Done {
    // Ordering: Relaxed; counts.
    let nth = BEGUN.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut now) = NOW.lock() {
        now.insert(nth, format!("{plan:#?}"));
    }
    let done = life::run(plan, tasks);
    // Ordering: Relaxed; as above.
    LIVES.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut now) = NOW.lock() {
        now.remove(&nth);
    }
    done
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    end_at_first_panic();
    watch_for_hangs();

    let tasks = Builder::new_multi_thread().worker_threads(2).build()?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut report = Report::new(Duration::from_secs(options.every));
    let begun = Instant::now();
    let end = Duration::from_secs_f64(60.0 * options.minutes);
    while begun.elapsed() < end {
        report.life_ended(&live(Plan::random(&mut rng), &tasks));
    }
    report.end();
    Ok(())
}
