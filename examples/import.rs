//! Imports a log into a SQLite table, many rows in a transaction. Each good line becomes one row, and each bad line goes into a
//! table of dead letters, also if the program is killed and started again.
//!
//! `cargo run --release -p keyqueue-examples --features sqlite --example import -- --database FILE LOG`
//!
//! A line is `ACCOUNT AMOUNT`, and is known by its offset in the log, which is its key in the queue and in the table.
//!
//! ```text
//!     log --> tracker.begin, put --> batches of up to 500 lines --> a transaction --> tracker.finish
//!                                      bad lines, by themselves --> dead letters  --> tracker.finish
//!     database <-- from time to time: which lines are finished (tracker.progress) <----'
//! ```
//!
//! A transaction that meets a bad line is rolled back, and the function marks the line. The other lines are tried again
//! without it, and the bad one alone. If the database itself fails, each line of the batch is retried.
//!
//! The program stores what is finished after the commit. So after a kill it reads some lines again; their rows are there, and
//! stay as they are. The queue and the tracker hold a limited number of lines.
//!
//! The log must only grow. Its last line is imported when it has its newline. At SIGTERM or Ctrl-C the program imports what it
//! has read, and ends. Exit code: 0, 1 if something cannot be read or written, 2 if the arguments are wrong.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::track::{Begun, Progress, Tracker};
use keyqueue::worker::{GivenUp, Job, Outcome, Reason, Verdict, Workers};
use keyqueue::{UpTo, WorkQueue, merge};
use rusqlite::{Connection, ErrorCode, Row, params};
use shared::{exit, written};

/// The most lines that wait for their transaction.
const WAITING: usize = 20_000;

/// How often what is finished is stored.
const STORED_EVERY: Duration = Duration::from_millis(200);

/// A line whose transaction fails for another reason than the line is retried after 10 ms, 20 ms ..., at most 10 s.
const SOONEST: Duration = Duration::from_millis(10);

const TABLES: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS payments (
        at INTEGER PRIMARY KEY, account TEXT NOT NULL, amount INTEGER NOT NULL CHECK (amount > 0));
    CREATE TABLE IF NOT EXISTS dead (at INTEGER PRIMARY KEY, line BLOB NOT NULL, error TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS progress (
        id INTEGER PRIMARY KEY CHECK (id = 0), first_unfinished INTEGER NOT NULL, beyond BLOB NOT NULL);
    INSERT OR IGNORE INTO progress VALUES (0, 0, x'');";

// A row that is there already was committed before a kill.
const INSERT: &str = "INSERT INTO payments VALUES (?1, ?2, ?3) ON CONFLICT (at) DO NOTHING";

const BURY: &str = "INSERT OR IGNORE INTO dead VALUES (?1, ?2, ?3)";

/// Imports a log into a SQLite database.
///
/// A line is `ACCOUNT AMOUNT`. Lines that are not, or whose amount is not positive, go into the table `dead`.
#[derive(Parser)]
#[command(name = "import")]
struct Args {
    /// The log to import
    log: PathBuf,
    /// The database; it is created if it does not exist
    #[arg(long, value_name = "FILE")]
    database: PathBuf,
    /// The most rows in a transaction
    #[arg(long, value_name = "N", default_value_t = 500)]
    rows: usize,
}

fn main() -> ExitCode {
    exit("import", run(&Args::parse()))
}

fn run(args: &Args) -> anyhow::Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = Arc::clone(&interrupted);
    ctrlc::set_handler(move || interrupt.store(true, Ordering::Relaxed))
        .context("cannot catch Ctrl-C")?;
    let open = || open(args).with_context(|| format!("cannot open {:?}", args.database));
    let (writer, store) = (Mutex::new(open()?), open()?);
    let lock = || writer.lock().unwrap_or_else(PoisonError::into_inner);

    let stored = progress(&store).context("cannot read what is finished")?;
    let tracker = Tracker::new(stored.clone());
    let backoff = ItemExponentialFailure::new(SOONEST, SOONEST * 1000)?;
    let builder = WorkQueue::builder().merge(merge::latest).capacity(WAITING);
    let queue = builder.rate_limiter(backoff).drain_delays(true).build()?;

    let commit = |lines: Vec<Job<'_, u64, Vec<u8>>>| {
        if let Err(failed) = insert(&mut lock(), &lines)? {
            // No line is to blame: each is retried.
            return Ok(vec![Verdict::Retry(failed.to_string()); lines.len()]);
        }
        lines.iter().for_each(|line| _ = tracker.finish(**line));
        Ok(vec![Verdict::Ok(Outcome::Done); lines.len()])
    };
    let bury = |at: &u64, given_up: GivenUp<String, Vec<u8>>| {
        if matches!(given_up.reason, Reason::ShutDown | Reason::Dropped) {
            return; // It did not have all its tries: the next start reads it again.
        }
        let (line, error) = (&given_up.value, given_up.failure.to_string());
        match lock().execute(BURY, params![*at as i64, line, error]) {
            Ok(_) => _ = tracker.finish(*at),
            Err(error) => {
                eprintln!("import: the line at {at} is not kept, and stays unfinished: {error}");
            }
        }
    };
    // SQLite has one writer at a time.
    let workers = Workers::new(&queue).concurrency(1).on_give_up(bury);
    let up_to = UpTo::new(args.rows).linger(Duration::from_millis(20));
    let read = thread::scope(|scope| {
        let _end = queue.shut_down_on_drop();
        let working = scope.spawn(|| workers.run_batches(up_to, commit));
        let mut last = Instant::now();
        let read = read(&args.log, stored.first_unfinished(), |at, line| {
            if tracker.begin(at) == Begun::New {
                queue.entry(at).wait().put(line);
            }
            if last.elapsed() >= STORED_EVERY {
                last = Instant::now();
                keep(&store, &tracker.progress())?;
            }
            Ok(!interrupted.load(Ordering::Relaxed))
        });
        queue.shut_down_with_drain();
        working.join().expect("workers do not panic")?;
        read
    });
    keep(&store, &tracker.progress()).context("cannot store what is finished")?;
    let lines = read.with_context(|| format!("cannot read {:?}", args.log))?;
    let count = |table| {
        store.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
            row.get::<_, u64>(0)
        })
    };
    let (rows, dead) = (count("payments")?, count("dead")?);
    let unfinished = tracker.unfinished();
    written(writeln!(
        io::stdout(),
        "read {lines} lines; {rows} rows, {dead} dead letters, {unfinished} lines unfinished"
    ))?;
    ensure!(
        unfinished == 0,
        "{unfinished} lines are not finished: start it again"
    );
    Ok(())
}

/// Inserts the lines in one transaction. The outer error is that of a line, which is bad.
fn insert(
    database: &mut Connection,
    lines: &[Job<'_, u64, Vec<u8>>],
) -> Result<rusqlite::Result<()>, String> {
    let transaction = match database.transaction() {
        Ok(transaction) => transaction,
        Err(failed) => return Ok(Err(failed)),
    };
    for line in lines {
        let Some((account, amount)) = parse(line.value()) else {
            return line.give_up("it is not ACCOUNT AMOUNT".to_owned());
        };
        let statement = transaction.prepare_cached(INSERT);
        let inserted = statement
            .and_then(|mut insert| insert.execute(params![**line as i64, account, amount]));
        match inserted {
            Ok(_) => {}
            Err(bad) if bad.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return line.give_up(bad.to_string());
            }
            Err(failed) => return Ok(Err(failed)),
        }
    }
    Ok(transaction.commit())
}

fn parse(line: &[u8]) -> Option<(&str, i64)> {
    let (account, amount) = str::from_utf8(line).ok()?.trim_end().split_once(' ')?;
    Some((account, amount.parse().ok()?))
}

/// Reads the log from an offset on, and calls `each` with the offset of each line and the line, until it returns false. Returns
/// the number of lines. An offset within a line stands for the next one: it is behind a line that is finished.
fn read(
    log: &Path,
    from: u64,
    mut each: impl FnMut(u64, Vec<u8>) -> anyhow::Result<bool>,
) -> anyhow::Result<u64> {
    let mut log = File::open(log)?;
    ensure!(log.metadata()?.len() >= from, "it has shrunk");
    let mut at = from.saturating_sub(1);
    log.seek(SeekFrom::Start(at))?;
    let (mut log, mut lines) = (BufReader::new(log), 0);
    if from > 0 {
        at += log.read_until(b'\n', &mut Vec::new())? as u64;
    }
    loop {
        let mut line = Vec::new();
        let len = log.read_until(b'\n', &mut line)? as u64;
        if !line.ends_with(b"\n") {
            return Ok(lines);
        }
        lines += 1;
        if !each(at, line)? {
            return Ok(lines);
        }
        at += len;
    }
}

fn open(args: &Args) -> rusqlite::Result<Connection> {
    let database = Connection::open(&args.database)?;
    database.busy_timeout(Duration::from_secs(10))?;
    database.execute_batch(TABLES)?;
    Ok(database)
}

fn progress(database: &Connection) -> anyhow::Result<Progress> {
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Vec<u8>>(1)?));
    let (first, beyond) =
        database.query_row("SELECT first_unfinished, beyond FROM progress", [], row)?;
    Ok(Progress::from_bytes(first, &beyond)?)
}

fn keep(database: &Connection, progress: &Progress) -> rusqlite::Result<()> {
    let update = "UPDATE progress SET first_unfinished = ?1, beyond = ?2";
    let (first, beyond) = (
        progress.first_unfinished() as i64,
        progress.to_bytes(usize::MAX),
    );
    database.execute(update, params![first, beyond]).map(drop)
}
