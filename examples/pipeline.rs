//! Counts and digests the lines of a log by their first field, in parallel and yet in order for each key.
//!
//! `cargo run --release --example pipeline -- [FILE|-] [--workers N] [--top N]`
//!
//! The reader puts a line into the inbox of its key and adds the key. A worker that is handed the key
//! takes what is in the inbox and digests it. The queue never hands a key to two workers at once, so
//! the lines of one key are digested in their order, and no worker waits for another; and it hands a
//! key out again that was added while it was processed, so no line is left in an inbox. The result is
//! that of a sequential run, whatever the number of workers.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use keyqueue::{KeyHandle, WorkQueue};

/// How many bytes may wait in all inboxes before the reader lends the workers a hand.
const MOST_WAITING: usize = 64 << 20;

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

/// A key of the queue, with what belongs to it: it is moved into the queue once and lent to the worker
/// that gets it. For the queue it is its name alone.
struct Account {
    name: Vec<u8>,
    /// Lines read and not yet digested, each with a newline.
    inbox: Mutex<Vec<u8>>,
    totals: Mutex<Totals>,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    lines: u64,
    bytes: u64,
    /// CRC-32 of all lines: it tells when one is missing, doubled or out of order.
    digest: u32,
}

impl PartialEq for Account {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Account {}

impl Hash for Account {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Account {
    /// Digests what is in the inbox, and returns how many bytes that was.
    fn digest(&self) -> usize {
        let lines = std::mem::take(&mut *self.inbox.lock().unwrap());
        // Not `lock`: nobody else can be here. That is the queue's promise, checked at every delivery.
        let mut totals = self
            .totals
            .try_lock()
            .expect("a key is with one worker at a time");
        let mut hasher = crc32fast::Hasher::new_with_initial(totals.digest);
        hasher.update(&lines);
        totals.digest = hasher.finalize();
        totals.bytes += lines.len() as u64;
        totals.lines += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        lines.len()
    }
}

/// What the reader and the workers share.
#[derive(Default)]
struct Pipeline {
    queue: WorkQueue<Account>,
    /// Bytes in all inboxes.
    waiting: AtomicUsize,
    /// How often a key was handed out.
    deliveries: AtomicU64,
}

impl Pipeline {
    /// A worker: digests until the queue is shut down and empty.
    fn work(&self) {
        while let Some(account) = self.queue.get() {
            self.digest(&account);
        }
    }

    fn digest(&self, account: &Account) {
        // Ordering: Relaxed; an estimate for the reader, nothing is read on the strength of it.
        self.waiting.fetch_sub(account.digest(), Ordering::Relaxed);
        // Ordering: Relaxed; read after the threads are joined.
        self.deliveries.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads to the end, and returns the accounts by name.
    fn read(&self, mut input: impl BufRead) -> io::Result<HashMap<Vec<u8>, KeyHandle<Account>>> {
        let mut accounts: HashMap<Vec<u8>, KeyHandle<Account>> = HashMap::new();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            if line.last() != Some(&b'\n') {
                line.push(b'\n'); // The last line of a file may have none.
            }
            // A blank line has no field, and no key.
            if let Some(name) = line
                .split(u8::is_ascii_whitespace)
                .find(|field| !field.is_empty())
            {
                let handle = match accounts.get(name) {
                    Some(handle) => handle,
                    None => accounts
                        .entry(name.to_owned())
                        .or_insert_with(|| self.open(name)),
                };
                // Ordering: Relaxed; before the line is there to be subtracted, so never below zero.
                let waiting = self.waiting.fetch_add(line.len(), Ordering::Relaxed);
                handle.key().inbox.lock().unwrap().extend_from_slice(&line);
                // First the line, then the add: the delivery that follows finds it.
                handle.add();
                if waiting > MOST_WAITING {
                    self.help();
                }
            }
            line.clear();
        }
        Ok(accounts)
    }

    fn open(&self, name: &[u8]) -> KeyHandle<Account> {
        self.queue.handle(Account {
            name: name.to_owned(),
            inbox: Mutex::default(),
            totals: Mutex::default(),
        })
    }

    /// The reader is far ahead: it does a worker's job for once, or lets a worker have the core.
    #[cold]
    fn help(&self) {
        match self.queue.try_get() {
            Ok(account) => self.digest(&account),
            Err(_) => thread::yield_now(),
        }
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pipeline: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let name = args.file.display();
    let (input, progress) = open(&args.file).with_context(|| format!("cannot open {name}"))?;
    let workers = args
        .workers
        .or_else(|| thread::available_parallelism().ok());
    let started = Instant::now();

    let pipeline = Pipeline::default();
    let accounts = thread::scope(|scope| {
        for _ in 0..workers.map_or(1, usize::from) {
            scope.spawn(|| pipeline.work());
        }
        let accounts = pipeline.read(BufReader::with_capacity(1 << 18, input));
        // However the reading ended, the workers finish what was read, and go.
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
    rows.sort_by(|(a, a_name), (b, b_name)| b.lines.cmp(&a.lines).then(a_name.cmp(b_name)));
    match print(&rows, args.top, pipeline.deliveries.into_inner(), elapsed) {
        // Whoever reads the output has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("cannot write the result"),
    }
}

/// The input, and the progress of it: silent where standard error is no terminal.
fn open(file: &Path) -> anyhow::Result<(Box<dyn Read>, ProgressBar)> {
    if file == Path::new("-") {
        let progress = ProgressBar::new_spinner().with_style(ProgressStyle::with_template(
            "{spinner} {bytes} {bytes_per_sec}",
        )?);
        return Ok((Box::new(progress.wrap_read(io::stdin())), progress));
    }
    let file = File::open(file)?;
    let progress = ProgressBar::new(file.metadata()?.len()).with_style(
        ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")?,
    );
    Ok((Box::new(progress.wrap_read(file)), progress))
}

fn print(
    rows: &[(Totals, &Vec<u8>)],
    top: usize,
    deliveries: u64,
    elapsed: Duration,
) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{:>10} {:>12} {:>8} key", "lines", "bytes", "digest")?;
    for (
        Totals {
            lines,
            bytes,
            digest,
        },
        name,
    ) in rows.iter().take(top)
    {
        let name = String::from_utf8_lossy(name);
        writeln!(out, "{lines:>10} {bytes:>12} {digest:08x} {name}")?;
    }
    let lines: u64 = rows.iter().map(|(totals, _)| totals.lines).sum();
    let bytes: u64 = rows.iter().map(|(totals, _)| totals.bytes).sum();
    let seconds = elapsed.as_secs_f64();
    let rate = lines as f64 / seconds.max(f64::MIN_POSITIVE);
    writeln!(
        out,
        "{lines} lines, {bytes} bytes, {} keys, {deliveries} deliveries",
        rows.len()
    )?;
    writeln!(out, "{seconds:.3} seconds, {rate:.0} lines a second")?;
    out.flush()
}
