//! Measures keyqueue next to the queues that one would use instead.
//!
//! `cargo run --release -p compare -- [--quick] [--only ID[,ID]] [--rounds N] [--log FILE]`
//!
//! Method: each workload runs in rounds; in each round every contender runs once, with a new queue,
//! and the next round reverses the order (A B C C B A ...). A warm-up round does not count. The
//! report compares the medians of the rounds and keeps their extremes. Every round checks what was
//! delivered. On a shared, noisy machine only ratios within one run mean anything.
//!
//! A full run writes BENCHMARKS.md and its plots. `--smoke` runs every workload once, far too short
//! to measure anything: a test that the workloads work.
//!
//! | file | what |
//! | --- | --- |
//! | `spec` | what a round runs, and how much of it |
//! | `catalogue` | every workload by id, with its figures and targets |
//! | `queue` | the traits through which the workloads see a queue |
//! | `workloads/` | what a round of each does, for any queue |
//! | `contenders/` | the queues, and which workloads each of them runs |
//! | `measure` | the rounds |
//! | `report/`, `model` | tables, plots, pages; a model of more processors |
//! | `keys`, `work`, `log`, `race`, `memory` | keys, work, events, threads, bytes |

mod catalogue;
mod contenders;
mod keys;
mod log;
mod measure;
mod memory;
mod model;
mod queue;
mod race;
mod report;
mod spec;
mod work;
mod workloads;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::catalogue::Workload;
use crate::contenders::Field;
use crate::log::Log;
use crate::report::Report;
use crate::spec::Scale;

/// Measures keyqueue next to the queues that one would use instead.
#[derive(Parser)]
struct Options {
    /// Three rounds of a fifth of the keys: within two minutes
    #[arg(long)]
    quick: bool,
    /// Run these workloads only
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<String>,
    /// Rounds that count, after one that warms up [default: 7, or 3 if quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The events of `replay`: the first word of each line [default: a generated log]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write the figures of all rounds to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the page and its plots from the JSON of an earlier run, and run nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "only", "rounds", "smoke"])]
    from: Option<PathBuf>,
    /// Write no page after a full run
    #[arg(long)]
    no_page: bool,
    /// Compute the model of more processors after a partial run, too; needs valgrind
    #[arg(long)]
    model: bool,
    /// Run the operations that the model traces, and nothing else
    #[arg(long, hide = true, value_name = "CONTENDER")]
    traced: Option<String>,
    /// Fail if a contender cannot take part
    #[arg(long)]
    everybody: bool,
    /// One tiny round, to see that everything works
    #[arg(long)]
    smoke: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(contender) = &options.traced {
        return model::traced(contender);
    }
    if let Some(path) = &options.from {
        return publish(&Report::read(path)?);
    }
    let (rounds, divisor) = match (options.smoke, options.quick) {
        (true, _) => (1, 500),
        (false, true) => (3, 5),
        (false, false) => (7, 1),
    };
    let rounds = options.rounds.unwrap_or(rounds);
    let passes = (100 / divisor).max(1);
    let log = match &options.log {
        Some(path) => Log::read(path, passes)?,
        None => Log::generated(passes),
    };
    let workloads = chosen(&options.only);

    let field = Field::gather();
    for (name, why) in &field.not_run {
        eprintln!("{name}: not run; {why}");
    }
    ensure!(
        field.not_run.is_empty() || !options.everybody,
        "a contender cannot take part"
    );
    let mut report = Report::new(options.quick, rounds, &field);
    let mut scale = Scale::divided_by(divisor, log);
    scale.common_interval = measure::common_interval(&field, &scale);
    let start = Instant::now();
    report.rows = measure::all(&workloads, &field, &scale, rounds);
    report.seconds = start.elapsed().as_secs();

    if options.smoke {
        println!("{} rows, each checked", report.rows.len());
        return Ok(());
    }
    let full = !options.quick && options.only.is_empty();
    if (full || options.model)
        && let Err(error) = report.add_model()
    {
        eprintln!("no model of more processors: {error:#}");
    }
    report.print();
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    if full && !options.no_page {
        publish(&report)?;
    }
    Ok(())
}

/// Writes the page, its plots, and the figures of README.md.
fn publish(report: &Report) -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    report.publish(&here.join("../.."), &here.join("results"))
}

/// The workloads with these ids, or all.
fn chosen(only: &[String]) -> Vec<&'static Workload> {
    let ids: Vec<&str> = catalogue::all().map(|workload| workload.0).collect();
    if let Some(id) = only.iter().find(|id| !ids.contains(&id.as_str())) {
        let message = format!("no workload {id:?}; there are: {}", ids.join(", "));
        Options::command()
            .error(ErrorKind::InvalidValue, message)
            .exit();
    }
    let is_chosen = |id: &str| only.is_empty() || only.iter().any(|only| only == id);
    catalogue::all()
        .filter(|Workload(id, ..)| is_chosen(id))
        .collect()
}
