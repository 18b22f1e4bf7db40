//! Counts the requests in access logs, by client and minute and by status and minute, in a SQLite
//! database, and follows the logs as they grow.
//!
//! `cargo run --release -p keyqueue-examples --features sqlite --example access_log -- --database FILE LOG... [--once]`
//!
//! The keys of the queue are the two tables, and a value is what has to be added to a table. The
//! reader puts the counts of a block of lines; a worker that gets the table adds its value in one
//! transaction, and meanwhile the counts of further blocks merge. So the slower the database is, the
//! larger are the transactions. A table has one writer at a time. If a transaction fails, its counts
//! go back under those that came meanwhile, and are retried.
//!
//! Each line is counted once in each table, even if the program is killed and started again. For that,
//! the offset up to which a table has a log is stored in the transaction of the counts. If it were
//! stored later, when a receipt has come, a kill between the two would let the counts be added again.
//! A transaction fails unless its counts begin at the stored offset, so a second process that follows
//! the same log does not count it twice either.
//!
//! Receipts acknowledge the blocks to the reader. It is a limited number of blocks ahead of them, so
//! that it needs little memory. It ends when it has them all, and if the counts of a block were given
//! up, it names the offset from which the log is not counted.
//!
//! A log is known by its path, and must only grow. Its last line is counted when it has its newline.
//! SIGTERM or Ctrl-C ends the program when what it has read is counted.
//!
//! Exit code: 0, 1 if a log cannot be read or its counts cannot be written, 2 if the arguments are
//! wrong.

mod line;
mod tables;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError::Timeout};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Job, Workers};
use keyqueue::{Ended, Receipt, WorkQueue};
use rusqlite::Connection;
use shared::{exit, label, written};

use crate::tables::{Counts, TABLES};

type Queue = WorkQueue<usize, Counts>;

/// The most bytes that are read at once. A longer line counts as several.
const BLOCK: u64 = 64 << 10;

/// How many blocks of a log the reader may be ahead of a table.
const AHEAD: usize = 64;

/// How long the reader rests when it has read everything.
const REST: Duration = Duration::from_millis(100);

/// A transaction is retried after 10 ms, 20 ms ..., at most 10 s.
const SOONEST: Duration = Duration::from_millis(10);

/// Counts the requests in access logs, in a SQLite database.
///
/// The logs are in the Common Log Format, or the combined one. The tables `clients` and `statuses`
/// have the number of requests for each minute. Lines that are not of an access log are counted, too,
/// as `?`.
#[derive(Parser)]
#[command(name = "access_log")]
struct Args {
    /// The logs to follow
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// The database; it is created if it does not exist
    #[arg(long, value_name = "FILE")]
    database: PathBuf,
    /// End when everything is counted, instead of waiting for more
    #[arg(long)]
    once: bool,
    /// How often a transaction that fails is retried before its counts are given up: 12 retries take
    /// 30 s
    #[arg(long, value_name = "N", default_value_t = 12)]
    retries: u32,
}

fn main() -> ExitCode {
    exit("access_log", run(&Args::parse()))
}

fn run(args: &Args) -> anyhow::Result<()> {
    let (interrupt, interrupted) = mpsc::channel();
    ctrlc::set_handler(move || interrupt.send(()).unwrap_or_default())
        .context("cannot catch Ctrl-C")?;

    let open = || tables::open(&args.database).with_context(|| cannot("open", &args.database));
    let (database, writers) = (open()?, [open()?, open()?].map(Mutex::new));
    let mut paths = BTreeSet::new(); // Two names of the same file are one log.
    for path in &args.logs {
        paths.insert(fs::canonicalize(path).with_context(|| cannot("open", path))?);
    }
    let mut logs = Vec::new();
    for (path, table) in paths.iter().flat_map(|path| [(path, 0), (path, 1)]) {
        logs.push(Log::open(path, table, &database)?);
    }

    let backoff = ItemExponentialFailure::new(SOONEST, SOONEST * 1000)?;
    let queue = WorkQueue::builder().merge(Counts::append);
    let queue = queue.rate_limiter(backoff).build()?;
    let workers = Workers::new(&queue)
        .concurrency(writers.len())
        .max_retries(args.retries)
        .on_error(|table, failed| eprintln!("access_log: {}: {failed}", TABLES[*table]));
    let writing = workers.spawn(move |table: Job<'_, usize, Counts>| {
        // Not `lock`: a table has one writer at a time. The queue promises that, and this checks it.
        let mut writer = writers[*table].try_lock().expect("a table has one writer");
        tables::add(&mut writer, TABLES[*table], table.value())
    })?;
    follow(&mut logs, &queue, args.once, &interrupted)?;
    queue.shut_down();
    writing.join();

    written(print(&database, &logs))
}

/// Reads what there is of the logs, over and over.
fn follow(
    logs: &mut [Log],
    queue: &Queue,
    once: bool,
    interrupted: &Receiver<()>,
) -> anyhow::Result<()> {
    loop {
        let mut rest = REST;
        for log in &mut *logs {
            let read = log.read(queue).with_context(|| cannot("read", &log.path))?;
            if read {
                rest = Duration::ZERO;
            }
            log.wait_until_ahead(if read { AHEAD } else { 0 })?;
        }
        if once && rest == REST || interrupted.recv_timeout(rest) != Err(Timeout) {
            return logs.iter_mut().try_for_each(|log| log.wait_until_ahead(0));
        }
    }
}

/// A log, as it is read for one of the tables.
struct Log {
    path: Arc<str>,
    file: File,
    table: usize,
    /// The offset up to which it is read.
    read: u64,
    /// The blocks that are not acknowledged: where each begins, and its receipt.
    ahead: VecDeque<(u64, Receipt)>,
}

impl Log {
    fn open(path: &Path, table: usize, database: &Connection) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| cannot("open", path))?;
        let path = path.to_str().context("the path of a log is not UTF-8")?;
        Ok(Log {
            path: path.into(),
            file,
            table,
            read: tables::offset(database, TABLES[table], path)?,
            ahead: VecDeque::new(),
        })
    }

    /// Reads the next block of lines, and puts its counts. Returns whether there was one.
    fn read(&mut self, queue: &Queue) -> anyhow::Result<bool> {
        ensure!(self.file.metadata()?.len() >= self.read, "it has shrunk");
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut block = Vec::new();
        (&self.file).take(BLOCK).read_to_end(&mut block)?;
        match block.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => block.truncate(end + 1),
            None if block.len() < BLOCK as usize => return Ok(false),
            None => {}
        }
        let mut counts = Counts::default();
        for line in block.split_inclusive(|byte| *byte == b'\n') {
            let unreadable = ("?", "?", String::new());
            let (client, status, minute) = line::parse(line).unwrap_or(unreadable);
            let row = ([client, status][self.table].to_owned(), minute);
            *counts.requests.entry(row).or_default() += 1;
        }
        let part = self.read..self.read + block.len() as u64;
        self.read = part.end;
        counts.parts.insert(Arc::clone(&self.path), part.clone());
        let (entry, receipt) = queue.entry(self.table).tracked();
        entry.put(counts);
        self.ahead.push_back((part.start, receipt));
        Ok(true)
    }

    /// Waits until at most `ahead` blocks are not acknowledged.
    fn wait_until_ahead(&mut self, ahead: usize) -> anyhow::Result<()> {
        let settled = self.ahead.len().saturating_sub(ahead);
        for (begin, receipt) in self.ahead.drain(..settled) {
            let (path, end) = (&self.path, receipt.wait());
            ensure!(end == Ended::Done, "{path:?} is {end} from byte {begin}");
        }
        Ok(())
    }
}

fn print(database: &Connection, logs: &[Log]) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for log in logs {
        let (table, read) = (TABLES[log.table], log.read);
        writeln!(out, "{read:>10} bytes of {:?} in {table}", log.path)?;
    }
    for (client, requests) in tables::busiest(database).map_err(io::Error::other)? {
        let client = label(client.as_bytes());
        writeln!(out, "{requests:>10} requests of {client}")?;
    }
    out.flush()
}

fn cannot(what: &str, path: impl Debug) -> String {
    format!("cannot {what} {path:?}") // This escapes control characters, which a path may have.
}
