//! Counts and digests the lines of a log by their first field, in parallel, and in order for each
//! key.
//!
//! `cargo run --release -p keyqueue-examples --example pipeline -- [FILE|-] [--workers N] [--busiest N]`
//!
//! The reader puts each line into the queue, under its key, where the lines of one key are appended
//! to each other. A worker that gets the key digests what has come together. The queue never delivers
//! a key to two workers at once, so the lines of one key are digested in order, and no worker waits
//! for another. The result is that of a sequential run, whatever the number of workers.
//!
//! With feature `metrics` a Prometheus can watch it with `--listen` while it handles FILE over and over: see `watched`.
//!
//! Exit code: 0, 1 if the file cannot be read, 2 if the arguments are wrong.

mod engine;
#[cfg(feature = "metrics")]
mod watched;

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use keyqueue::{WorkQueue, merge};
use shared::{exit, label, written};

use crate::engine::{Name, Pipeline, Reader, Totals};

/// Counts and digests lines by their first field.
///
/// A line may be of any length. Of its first 64 KiB the first field is its key; of a field longer
/// than 1 KiB, the first 1 KiB. At most 60 characters of a key are printed, with control characters
/// escaped.
#[derive(Parser)]
#[command(name = "pipeline")]
struct Args {
    /// The file to read; `-` is the standard input [default: -, or README.md if it is watched]
    file: Option<PathBuf>,
    /// Threads that digest lines [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8192))]
    workers: Option<u16>,
    /// How many of the busiest keys to print
    #[arg(long, value_name = "N", default_value_t = 10)]
    busiest: usize,
    #[cfg(feature = "metrics")]
    #[command(flatten)]
    watched: watched::Options,
}

fn main() -> ExitCode {
    exit("pipeline", run(&Args::parse()))
}

fn run(args: &Args) -> anyhow::Result<()> {
    #[cfg(feature = "metrics")]
    if args.watched.is_wanted() {
        return watched::run(&args.watched, args.file.as_deref(), args.workers);
    }
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let name = file.display();
    let (input, progress) = open(file).with_context(|| format!("cannot open {name}"))?;
    let workers = match args.workers {
        Some(workers) => workers.into(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let started = Instant::now();

    let pipeline = Pipeline::over(WorkQueue::builder().merge(merge::append))?;
    let digested: anyhow::Result<()> = thread::scope(|scope| {
        // However the reading ends, the workers finish what was read, and end.
        let _end = pipeline.queue.shut_down_on_drop();
        for _ in 0..workers {
            let work = || {
                for item in &pipeline.queue {
                    pipeline.digest(&item, item.value());
                }
            };
            let worker = thread::Builder::new().spawn_scoped(scope, work);
            worker.with_context(|| format!("cannot start {workers} workers"))?;
        }
        let mut input = BufReader::with_capacity(1 << 18, input);
        let mut reader = Reader::new(&pipeline);
        let mut read = || reader.read(&mut input);
        while read().with_context(|| format!("cannot read {name}"))? > 0 {}
        Ok(())
    });

    let elapsed = started.elapsed();
    progress.finish_and_clear();
    digested?;
    // Ordering: Relaxed; the workers have ended.
    let deliveries = pipeline.deliveries.load(Ordering::Relaxed);
    let mut rows: Vec<_> = pipeline.into_totals().into_iter().collect();
    rows.sort_by(|(a, x), (b, y)| (Reverse(x.lines), a).cmp(&(Reverse(y.lines), b)));
    written(print(&rows, args.busiest, deliveries, elapsed))
}

/// The input, and the progress of it: silent where standard error is no terminal.
fn open(file: &Path) -> anyhow::Result<(Box<dyn Read>, ProgressBar)> {
    let progress = ProgressBar::new_spinner();
    let (input, template): (Box<dyn Read>, _) = if file == Path::new("-") {
        (Box::new(io::stdin()), "{spinner} {bytes} {bytes_per_sec}")
    } else {
        let file = File::open(file)?;
        progress.set_length(file.metadata()?.len());
        let template = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        (Box::new(file), template)
    };
    progress.set_style(ProgressStyle::with_template(template)?);
    Ok((Box::new(progress.wrap_read(input)), progress))
}

fn print(
    rows: &[(Name, Totals)],
    top: usize,
    deliveries: u64,
    elapsed: Duration,
) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{:>10} {:>12} {:>8} key", "lines", "bytes", "digest")?;
    for (name, totals) in rows.iter().take(top) {
        let (lines, bytes, digest) = (totals.lines, totals.bytes, totals.digest);
        let name = label(name);
        writeln!(out, "{lines:>10} {bytes:>12} {digest:08x} {name}")?;
    }
    let lines: u64 = rows.iter().map(|(_, totals)| totals.lines).sum();
    let bytes: u64 = rows.iter().map(|(_, totals)| totals.bytes).sum();
    let keys = rows.len();
    writeln!(
        out,
        "{lines} lines, {bytes} bytes, {keys} keys, {deliveries} deliveries"
    )?;
    let seconds = elapsed.as_secs_f64();
    let rate = lines as f64 / seconds.max(f64::MIN_POSITIVE);
    writeln!(out, "{seconds:.3} seconds, {rate:.0} lines a second")?;
    out.flush()
}
