//! Keeps one directory identical to another.
//!
//! `cargo run --release --example mirror -- SRC DST [--watch] [--workers N]`
//!
//! A key is a path, relative to both directories. Everything that may have changed a path adds it:
//! the scan of the two trees, a notification of the file system, a retry. A worker gets a path,
//! compares both sides as they are *now*, and makes the target equal. So it does not matter why or
//! how often a path was added. The queue promises that no two workers process a path at once, and
//! that a path that is added meanwhile is delivered again. The threads coordinate only through it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `roots` | resolves SRC and DST and refuses what cannot be mirrored |
//! | `scan` | lists paths, of both trees or of one directory |
//! | `watch` | turns notifications into paths |
//! | `worker` | processes a path: synchronise, retry, give up |
//! | `sync` | makes one path of the target equal to the source |
//! | `tally` | counts, records which paths failed, and prints the summary |
//! | `verify` | compares the two trees at the end |
//!
//! Kept: directories, contents, permissions and modification times of files, symbolic links as
//! links. Not kept: owners, hard links, extended attributes, permissions of directories. Special
//! files (sockets, pipes, devices) are reported and left out.
//!
//! Exit code: 0 if the target is complete, 1 if it is not (each failed path is named), 2 if the
//! arguments are wrong.

mod roots;
mod scan;
mod sync;
mod tally;
mod verify;
mod watch;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::roots::Roots;
use crate::watch::Watch;
use crate::worker::Mirror;

/// How often the progress line is renewed.
const TICK: Duration = Duration::from_millis(100);

/// How often a single run checks whether it is complete.
const POLL: Duration = Duration::from_millis(5);

/// Makes DST identical to SRC, and with --watch keeps it so.
///
/// What is in DST and not in SRC is deleted. Without SRC and DST, this crate's `src` is mirrored to
/// `target/mirror`.
#[derive(Parser)]
struct Args {
    /// The directory to read
    #[arg(requires = "target", value_name = "SRC")]
    source: Option<PathBuf>,
    /// The directory to make identical; created if it is not there
    #[arg(value_name = "DST")]
    target: Option<PathBuf>,
    /// Go on until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Threads that compare and copy [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mirror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs to the end, and returns whether the target is complete.
fn run(args: &Args) -> anyhow::Result<bool> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = examples.parent().expect("they are in the repository");
    let source = args.source.clone().unwrap_or_else(|| here.join("src"));
    let target = args
        .target
        .clone()
        .unwrap_or_else(|| here.join("target/mirror"));
    let roots = Roots::resolve(&source, &target).unwrap_or_else(|wrong| {
        Args::command()
            .error(ErrorKind::ValueValidation, format!("{wrong:#}"))
            .exit()
    });
    roots.create_target()?;

    let started = Instant::now();
    let mut mirror = Mirror::new(roots)?;
    if args.watch {
        let (watch, events) = Watch::start()?;
        mirror.watch = Some(watch);
        let stop = interrupts()?;
        work(args, &mirror, || follow(&mirror, events, &stop))?;
    } else {
        work(args, &mirror, || once(&mirror))?;
    }
    let elapsed = started.elapsed();

    mirror.progress.set_message("comparing both trees");
    let report = verify::compare(&mirror.roots);
    mirror.progress.finish_and_clear();

    let counts = mirror.tally.with(|counts| counts.clone());
    let mut complete = report.differences.is_empty();
    for (path, why) in &counts.failures {
        if let Some(why) = why {
            eprintln!("failed: {}: {why}", path.display());
            complete = false;
        }
    }
    for difference in &report.differences {
        eprintln!("differs: {difference}");
    }
    counts.print(elapsed)?;
    report.print()?;
    Ok(complete)
}

/// Runs the workers while `feed` adds paths; returns when all that was added is settled.
fn work(args: &Args, mirror: &Mirror, feed: impl FnOnce()) -> anyhow::Result<()> {
    let threads = args.workers.map_or_else(cores, usize::from);
    thread::scope(|scope| {
        let workers = scope.spawn(|| mirror.work(threads));
        feed();
        mirror.queue.shut_down_with_drain();
        workers.join().expect("what a worker panics with is caught")
    })
}

/// One pass over both trees, until nothing is queued and no failed path waits for its next attempt.
fn once(mirror: &Mirror) {
    scan::trees(mirror);
    while !mirror.queue.is_empty() || mirror.tally.with(|counts| counts.failing()) > 0 {
        mirror.show_progress();
        thread::sleep(POLL);
    }
    // A path that is still with a worker here, and fails, is retried by that worker.
}

/// Follows the source until the first interrupt.
fn follow(mirror: &Mirror, events: Receiver<watch::Event>, stop: &Receiver<()>) {
    eprintln!("watching {}, Ctrl-C ends", mirror.roots.source.display());
    thread::scope(|scope| {
        scope.spawn(move || watch::listen(mirror, events));
        mirror.add(PathBuf::new()); // The root: a delivered directory adds its entries.
        while stop.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout)
            && !mirror.queue.is_shutting_down()
        {
            mirror.show_progress();
        }
        // Ends `listen`, after the notifications that have come.
        mirror.close_watch();
    });
    // Ordering: Relaxed; as where it is read.
    mirror.interrupted.store(true, Ordering::Relaxed);
    // One last scan, for changes that were no longer notified.
    scan::trees(mirror);
}

/// Receives one message for the first Ctrl-C. The second ends the process at once.
fn interrupts() -> anyhow::Result<Receiver<()>> {
    let (sender, receiver) = mpsc::channel();
    let mut first = Some(sender);
    ctrlc::set_handler(move || match first.take() {
        Some(sender) => drop(sender.send(())),
        None => std::process::exit(130),
    })
    .context("cannot catch Ctrl-C")?;
    Ok(receiver)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
