//! Counts and digests the lines of a log by their first field, in parallel, and in order for each
//! key.
//!
//! `cargo run --release --example pipeline -- [FILE|-] [--workers N] [--top N]`
//!
//! The reader puts a line into the inbox of its key and adds the key. A worker that gets the key
//! takes the lines from the inbox and digests them. The queue never delivers a key to two workers
//! at once, so the lines of one key are digested in order, and no worker waits for another. It
//! delivers a key again that was added while it was processing, so no line is left in an inbox. The
//! result is that of a sequential run, whatever the number of workers.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use engine::{Accounts, Pipeline, Totals};
use indicatif::{ProgressBar, ProgressStyle};

/// Counts and digests lines by their first field.
#[derive(Parser)]
struct Args {
    /// The file to read; `-` is the standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Threads that digest lines [default: one for each core]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// How many of the busiest keys to print
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let name = args.file.display();
    let (input, progress) = open(&args.file).with_context(|| format!("cannot open {name}"))?;
    let cores = || thread::available_parallelism().ok();
    let workers = args.workers.or_else(cores).map_or(1, usize::from);
    let started = Instant::now();

    let pipeline = Pipeline::default();
    let accounts = thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(account) = pipeline.queue.get() {
                    pipeline.digest(&account);
                }
            });
        }
        let accounts = read(&pipeline, BufReader::with_capacity(1 << 18, input));
        // However the reading ended, the workers finish what was read, and end.
        pipeline.queue.shut_down_with_drain();
        accounts
    });

    let elapsed = started.elapsed();
    progress.finish_and_clear();
    let accounts = accounts.with_context(|| format!("cannot read {name}"))?;
    let mut rows: Vec<_> = accounts
        .iter()
        .map(|(name, handle)| (*handle.key().totals.lock().unwrap(), name))
        .collect();
    rows.sort_by_key(|(totals, name)| (Reverse(totals.lines), *name));
    match print(&rows, args.top, pipeline.deliveries.into_inner(), elapsed) {
        // The reader of the output has closed it.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("cannot write the result"),
    }
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

/// Reads to the end.
fn read(pipeline: &Pipeline, mut input: impl BufRead) -> io::Result<Accounts> {
    let mut accounts = Accounts::new();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        if line.last() != Some(&b'\n') {
            line.push(b'\n'); // The last line of a file may have none.
        }
        pipeline.put(&line, &mut accounts);
        line.clear();
    }
    Ok(accounts)
}

fn print(
    rows: &[(Totals, &Vec<u8>)],
    top: usize,
    deliveries: u64,
    elapsed: Duration,
) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{:>10} {:>12} {:>8} key", "lines", "bytes", "digest")?;
    for (totals, name) in rows.iter().take(top) {
        let (lines, bytes, digest) = (totals.lines, totals.bytes, totals.digest);
        let name = String::from_utf8_lossy(name);
        writeln!(out, "{lines:>10} {bytes:>12} {digest:08x} {name}")?;
    }
    let lines: u64 = rows.iter().map(|(totals, _)| totals.lines).sum();
    let bytes: u64 = rows.iter().map(|(totals, _)| totals.bytes).sum();
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
