//! Measures the core queue beside a one-mutex queue and the bare FIFO.
//!
//! `cargo bench --bench core -- [--quick] [--only ID[,ID]] [--rounds N] [--json FILE]`
//!
//! Method: each workload runs in rounds, and in each round every contender once, one after the
//! other (A B C A B C ...), each with a new queue; a warm-up round is thrown away. The medians of
//! the rounds are compared, the extremes kept. Every round checks what was delivered. These are
//! shared, noisy machines: a ratio within one run means something, a figure from one run beside
//! one from another does not.
//!
//! Without the `--bench` that cargo passes (that is, under `cargo test --all-targets`) it runs
//! every workload once, far too short to measure anything: a test that the workloads work.

mod contenders;
mod keys;
mod memory;
mod race;
mod report;
mod single_lock;
mod work;
mod workloads;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::contenders::Contender;
use crate::report::{Report, Row};
use crate::workloads::{Round, Scale, Workload};

/// Measures the core queue beside a one-mutex queue and the bare FIFO.
#[derive(Parser)]
struct Options {
    /// Three rounds of a fifth of the keys: under a minute
    #[arg(long)]
    quick: bool,
    /// Run these workloads only
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<String>,
    /// Rounds that count, after one that warms up [default: 7, or 3 if quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Write the figures of all rounds to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure; cargo passes it
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let (rounds, divisor) = match (options.bench, options.quick) {
        (false, _) => (1, 500),
        (true, true) => (3, 5),
        (true, false) => (7, 1),
    };
    let rounds = options.rounds.unwrap_or(rounds);
    if !options.bench {
        eprintln!("no --bench: a test run, its figures mean nothing");
    }

    let mut workloads = workloads::all();
    for id in &options.only {
        let known = workloads.iter().any(|workload| workload.id == *id);
        if !known {
            let message = format!("no workload {id:?}; there are: {}", ids(&workloads));
            Options::command()
                .error(ErrorKind::InvalidValue, message)
                .exit();
        }
    }
    workloads.retain(|workload| options.only.is_empty() || options.only.contains(&workload.id));

    let contenders = contenders::all();
    let scale = Scale::divided_by(divisor);
    let mut report = Report::new(rounds, contenders.iter().map(|contender| contender.name()));
    for workload in &workloads {
        eprintln!("{} ...", workload.id);
        report
            .rows
            .extend(measure(workload, &contenders, &scale, rounds));
    }

    print!("{report}");
    if let Some(path) = options.json {
        let json = serde_json::to_string_pretty(&report)?;
        std::fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// All rounds of one workload: a row for each of its metrics.
fn measure(
    workload: &Workload,
    contenders: &[Box<dyn Contender>],
    scale: &Scale,
    rounds: u32,
) -> Vec<Row> {
    let mut rows: Vec<Row> = workload
        .metrics
        .iter()
        .map(|metric| Row::new(&workload.id, metric))
        .collect();
    for round in 0..=rounds {
        let shared = Round::start(scale);
        for contender in contenders {
            let Some(figures) = contender.run(workload.kind, scale, &shared) else {
                continue;
            };
            let warming_up = round == 0;
            if !warming_up {
                for (row, figure) in rows.iter_mut().zip(figures) {
                    row.record(contender.name(), figure);
                }
            }
        }
    }
    rows
}

fn ids(workloads: &[Workload]) -> String {
    let ids: Vec<&str> = workloads.iter().map(|workload| &*workload.id).collect();
    ids.join(", ")
}
