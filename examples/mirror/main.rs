//! Keeps one directory identical to another.
//!
//! `cargo run --release -p keyqueue-examples --example mirror -- SRC DST [--watch] [--workers N]`
//!
//! A key is a path, relative to both directories. Everything that may have changed a path adds it:
//! the scan of the two trees, a notification of the file system, a retry. A worker gets a path,
//! compares both sides as they are *now*, and makes the target equal. So it does not matter why or
//! how often a path was added. The queue promises that no two workers process a path at once, and
//! that a path that is added meanwhile is delivered again. The threads coordinate only through it.
//!
//! Kept: directories, contents, permissions and modification times of files, symbolic links as
//! links. Not kept: owners, hard links, extended attributes, permissions of directories. Special
//! files (sockets, pipes, devices) are reported and left out.
//!
//! The first Ctrl-C ends the program: with `--watch` after one last look at everything, otherwise
//! after the files that are being copied have been abandoned, and their temporary files removed.
//! What a killed run leaves behind, the next one deletes.
//!
//! Exit code: 0 if the target is complete, 1 if it is not (each failed path is named), 2 if the
//! arguments are wrong, 130 if a run without `--watch` was interrupted.

mod interrupt;
mod roots;
mod scan;
mod sync;
mod tally;
mod verify;
mod watch;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use shared::{exit, written};

use crate::roots::Roots;
use crate::sync::At;
use crate::worker::Mirror;

/// Makes DST identical to SRC, and with --watch keeps it so.
///
/// What is in DST and not in SRC is deleted. Without SRC and DST, this crate's `src` is mirrored to
/// `target/mirror`.
#[derive(Parser)]
#[command(name = "mirror")]
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8192))]
    workers: Option<u16>,
}

fn main() -> ExitCode {
    exit("mirror", run(Args::parse()))
}

fn run(args: Args) -> anyhow::Result<ExitCode> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = examples.parent().expect("they are in the repository");
    let source = args.source.unwrap_or_else(|| here.join("src"));
    let target = args.target.unwrap_or_else(|| here.join("target/mirror"));
    let roots = Roots::resolve(&source, &target).unwrap_or_else(|wrong| {
        Args::command()
            .error(ErrorKind::ValueValidation, format!("{wrong:#}"))
            .exit()
    });
    fs::create_dir_all(&roots.target).at("cannot create DST", &roots.target)?;

    let started = Instant::now();
    interrupt::catch(args.watch)?;
    let mirror = Mirror::new(roots)?;
    let workers = mirror.start(args.workers)?;
    if args.watch {
        follow(&mirror)?;
    } else {
        once(&mirror);
    }
    mirror.queue.shut_down_with_drain();
    workers.join();
    let elapsed = started.elapsed();
    if interrupt::abandons() {
        mirror.progress.finish_and_clear();
        eprintln!("mirror: interrupted; DST is not complete");
        return Ok(ExitCode::from(interrupt::CODE));
    }

    mirror.progress.set_message("comparing both trees");
    let report = verify::compare(&mirror.roots);
    mirror.progress.finish_and_clear();

    let tally = mirror.tally();
    written(tally.print(elapsed).and_then(|()| report.print()))?;
    let complete = tally.failed() == 0 && report.differences.is_empty();
    Ok(ExitCode::from(u8::from(!complete)))
}

/// One pass over both trees, until no path is queued, processing, or waiting for its next attempt,
/// or until it is interrupted.
fn once(mirror: &Mirror) {
    scan::trees(mirror);
    // In this order: a path that fails is failing before it is no longer processing, and then until
    // it is settled.
    show_while(mirror, || {
        let at_work = !mirror.queue.is_empty()
            || !mirror.queue.snapshot().is_empty()
            || mirror.tally().failing() > 0;
        at_work && !interrupt::abandons()
    });
}

/// Follows the source until the first interrupt. After it no failing path is waited for.
fn follow(mirror: &Arc<Mirror>) -> anyhow::Result<()> {
    let source = &mirror.roots.source;
    watch::open(mirror)?;
    eprintln!("watching {}, Ctrl-C ends", source.display());
    mirror.add(PathBuf::new()); // The root: a delivered directory adds its entries.
    let mut gone = false;
    show_while(mirror, || {
        if gone == source.is_dir() {
            gone = !gone;
            let src = source.display();
            if gone {
                mirror.say(&format!("mirror: SRC {src} is gone; DST stays as it is"));
            } else {
                mirror.say(&format!("mirror: SRC {src} is back"));
                mirror.add(PathBuf::new());
            }
        }
        !interrupt::happened()
    });
    mirror.watcher.lock().unwrap().take();
    // One last scan, for changes that were no longer notified.
    scan::trees(mirror);
    Ok(())
}

/// Shows the progress while `goes_on` returns true.
fn show_while(mirror: &Mirror, mut goes_on: impl FnMut() -> bool) {
    while goes_on() {
        mirror.show_progress();
        thread::sleep(Duration::from_millis(10));
    }
}
