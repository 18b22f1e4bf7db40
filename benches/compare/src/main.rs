//! Measures keyqueue beside what one would use instead.
//!
//! `cargo run --release -p compare -- [--quick] [--only ID[,ID]] [--rounds N] [--log FILE]`
//!
//! Method: each workload runs in rounds, and in each round every contender once, one after the
//! other, and in the next the other way round (A B C C B A ...), each with a new queue; a warm-up
//! round is thrown away. The medians of the rounds are compared, the extremes kept. Every round
//! checks what was delivered. These are shared, noisy machines: a ratio within one run means
//! something, a figure from one run beside one from another does not.
//!
//! A full run writes BENCHMARKS.md and what it shows. `--smoke` runs every workload once, far too
//! short to measure anything: a test that the workloads work.

mod contenders;
mod keys;
mod measure;
mod memory;
mod model;
mod race;
mod report;
mod work;
mod workloads;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::contenders::Field;
use crate::report::Report;
use crate::workloads::{Log, Scale, Workload};

/// Measures keyqueue beside what one would use instead.
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
    /// The events of `replay`: the first word of each line [default: a made-up log]
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
    /// Compute the model of more processors after other runs than full ones, too; takes valgrind
    #[arg(long)]
    model: bool,
    /// Go through the operations that the model traces, and nothing else
    #[arg(long, hide = true, value_name = "CONTENDER")]
    traced: Option<String>,
    /// Fail if a contender cannot take part
    #[arg(long)]
    everybody: bool,
    /// One round of next to nothing, to see that everything works
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
        None => Log::made(passes),
    };
    let workloads = chosen(&options.only);

    let mut report = Report::new(options.quick, rounds);
    let field = Field::gather();
    for (name, why) in &field.not_run {
        eprintln!("{name}: not run; {why}");
    }
    ensure!(
        field.not_run.is_empty() || !options.everybody,
        "not everybody can take part"
    );
    let mut scale = Scale::divided_by(divisor, log);
    scale.common_interval = measure::common_interval(&field, &scale);
    report.enter(&field);
    let start = Instant::now();
    report.rows = measure::all(&workloads, &field, &scale, rounds);
    report.took(start.elapsed().as_secs());

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

/// Writes the page and its plots to their places in the repository, and the figures of the README.
fn publish(report: &Report) -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    report.publish(&here.join("../.."), &here.join("results"))
}

/// Those asked for, or all.
fn chosen(only: &[String]) -> Vec<Workload> {
    let mut workloads = workloads::all();
    for id in only {
        if !workloads.iter().any(|workload| workload.id == *id) {
            let ids: Vec<&str> = workloads.iter().map(|workload| &*workload.id).collect();
            let message = format!("no workload {id:?}; there are: {}", ids.join(", "));
            Options::command()
                .error(ErrorKind::InvalidValue, message)
                .exit();
        }
    }
    workloads.retain(|workload| only.is_empty() || only.contains(&workload.id));
    workloads
}
