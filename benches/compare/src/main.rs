//! Measures keyqueue next to the queues that one would use instead.
//!
//! `cargo run --release -p compare -- [--quick] [--only ID[,ID]] [--rounds N] [--log FILE]`
//!
//! BENCHMARKS.md says how the figures are made; a full run writes its tables and the plots.
//! `workload` has every workload by id, `workloads/` what a round of each does with any `queue`,
//! and `contenders/` the queues.

mod contenders;
mod keys;
mod log;
mod measure;
mod queue;
mod race;
mod report;
mod work;
mod workload;
mod workloads;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use rig::heap::CountingHeap;

use crate::measure::Run;
use crate::report::Report;
use crate::workload::WORKLOADS;

/// Counts for the workloads that measure memory.
#[global_allocator]
static HEAP: CountingHeap<false> = CountingHeap;

/// Measures keyqueue next to the queues that one would use instead.
#[derive(Parser)]
struct Options {
    /// Three rounds of a fifth of the keys: within two minutes
    #[arg(long)]
    quick: bool,
    /// Run these workloads only
    #[arg(long, value_delimiter = ',', value_name = "ID", value_parser = ids(), hide_possible_values = true)]
    only: Vec<String>,
    /// Rounds that count, after one that warms up [default: 7, or 3 if quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The events of `replay`: the first word of each line [default: a generated log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Fail if a contender cannot take part
    #[arg(long)]
    everybody: bool,
    /// One round, far too short to measure anything, to see that everything works
    #[arg(long)]
    smoke: bool,
}

fn ids() -> PossibleValuesParser {
    PossibleValuesParser::new(WORKLOADS.iter().map(|workload| workload.0))
}

fn main() -> Result<()> {
    let options = Options::parse();
    let (rounds, divisor) = match (options.smoke, options.quick) {
        (true, _) => (1, 500),
        (false, true) => (3, 5),
        (false, false) => (7, 1),
    };
    let rounds = options.rounds.unwrap_or(rounds);
    let events = match &options.log {
        Some(path) => log::read(path)?,
        None => log::generated(),
    };

    let contenders = contenders::all();
    for contender in &contenders {
        if let Some(why) = &contender.not_run {
            eprintln!("{}: not run; {why}", contender.name);
            ensure!(!options.everybody, "a contender cannot take part");
        }
    }
    let mut report = Report::new(rounds, &contenders);
    let start = Instant::now();
    let mut run = Run::new(contenders, rounds, divisor, events);
    for workload in WORKLOADS {
        if options.only.is_empty() || options.only.iter().any(|id| id == workload.0) {
            report.rows.extend(run.rows(workload));
        }
    }
    report.seconds = start.elapsed().as_secs();

    if options.smoke {
        println!("{} rows, each checked", report.rows.len());
        return Ok(());
    }
    report.print();
    if !options.quick && options.only.is_empty() {
        report.publish(Path::new(env!("CARGO_MANIFEST_DIR")))?;
    }
    Ok(())
}
