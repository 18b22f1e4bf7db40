//! Watches a running pipeline in the terminal: depth, groups, rates, latencies, and the oldest keys.
//!
//! `cargo run --release --features metrics --example top -- [FILE] [--rate BYTES] [--pause MS] [--fail PERCENT]`
//!
//! The load is that of the example `pipeline`: the lines of FILE, over and over, each under its first
//! field. The file is read at a set rate, and the workers pause before each key, so that keys wait;
//! some deliveries fail, and are retried. Names take turns by their first letter, and one line in twenty
//! is also put under the name `urgent`, which is at level 0. The figures come from the queue's series, through an
//! exporter in the same process, and from `snapshot`. `q` ends the program. `--frame` prints a
//! single frame, without a terminal.

mod model;
mod view;

use std::fs::File;
use std::io::{self, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::Workers;
use keyqueue::{Valued, WorkQueue, merge};
use metrics_exporter_prometheus::PrometheusBuilder;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use shared::engine::{Lines, Name, Pipeline, Reader};
use shared::program::{exit, written};

use crate::model::{Letter, Limiter, Model};

/// Watches a running pipeline in the terminal. `q` or Ctrl-C ends it.
#[derive(Parser)]
#[command(name = "top")]
struct Args {
    /// The lines to feed the pipeline with, over and over [default: this crate's README.md]
    file: Option<PathBuf>,
    /// Bytes to read a second
    #[arg(long, value_name = "BYTES", default_value_t = 20_000)]
    rate: u64,
    /// Milliseconds that a worker rests before it digests a key
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pause: u64,
    /// How many of a hundred deliveries fail, and are retried
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(..=100))]
    fail: u8,
    /// Threads that digest lines
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=8192))]
    workers: u16,
    /// Milliseconds from one frame to the next
    #[arg(long, value_name = "MS", default_value_t = 500)]
    refresh: u64,
    /// Print the frame after this many refreshes, of 24 rows, and end
    #[arg(long, value_name = "N")]
    frame: Option<u32>,
    /// The width of a printed frame
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u16).range(60..=1000))]
    columns: u16,
}

fn main() -> ExitCode {
    exit("top", run(Args::parse()))
}

fn run(args: Args) -> anyhow::Result<()> {
    let readme = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let file = args.file.unwrap_or_else(readme);
    let name = file.display();
    let input = File::open(&file).with_context(|| format!("cannot open {name}"))?;
    anyhow::ensure!(input.metadata()?.len() > 0, "{name} is empty");

    let recorder = PrometheusBuilder::new().build_recorder();
    let exported = recorder.handle();
    let backoff = ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(8))?;
    let settings = WorkQueue::builder()
        .name("pipeline")
        .recorder(Arc::new(recorder))
        .levels(2)
        .rate_limiter(backoff)
        .merge(merge::append)
        .group_by(|key: &Valued<Name, Lines>| letter(key.key()));
    let pipeline = Pipeline::over(settings)?;
    let pause = Duration::from_millis(args.pause);
    let work = |name: &Name, lines: &mut Lines| {
        if pipeline.queue.is_shutting_down() {
            return Ok(()); // Nobody waits for the digests.
        }
        thread::sleep(pause);
        if fastrand::u8(..100) < args.fail {
            return Err("not this time"); // The lines go back, before those that came meanwhile.
        }
        pipeline.digest(name, lines);
        Ok(())
    };

    thread::scope(|scope| {
        let _end = pipeline.queue.shut_down_on_drop(); // Also if the display panics.
        let workers = Workers::new(&pipeline.queue).threads(args.workers.into());
        let workers = scope.spawn(|| {
            let ran = workers.values().run(work);
            pipeline.queue.shut_down(); // If they could not be started.
            ran
        });
        let reader = scope.spawn(|| feed(&pipeline, input, args.rate));

        let mut model = Model::new(&pipeline.queue, &exported);
        let refresh = Duration::from_millis(args.refresh);
        let watched = match args.frame {
            Some(count) => print_frame(&mut model, refresh, count, args.columns),
            None => watch(&mut model, refresh),
        };
        pipeline.queue.shut_down();
        let read = reader.join().expect("the reader has not panicked");
        read.with_context(|| format!("cannot read {name}"))?;
        workers
            .join()
            .expect("what a worker panics with is caught")?;
        watched
    })
}

/// The group of a name: its first letter.
fn letter(name: &Name) -> Letter {
    let name = String::from_utf8_lossy(name);
    name.chars().next().unwrap_or_default().to_ascii_lowercase()
}

/// Reads the file over and over, at `rate` bytes a second, until the queue is shut down.
fn feed(pipeline: &Pipeline<Limiter>, mut file: File, rate: u64) -> io::Result<()> {
    let began = Instant::now();
    let due = || (began.elapsed().as_secs_f64() * rate as f64) as usize;
    let (mut reader, mut read) = (Reader::new(pipeline), 0);
    loop {
        let mut input = BufReader::new(&file);
        loop {
            if pipeline.queue.is_shutting_down() {
                return Ok(());
            }
            if read > due() {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            match reader.read(&mut input)? {
                0 => break,
                bytes => read += bytes,
            }
            if fastrand::u8(..20) == 0 {
                pipeline
                    .queue
                    .put_at(0, b"urgent".to_vec(), b"urgent\n".to_vec());
            }
        }
        file.rewind()?;
    }
}

/// Draws until `q` or Ctrl-C is pressed, or the workers have ended.
fn watch(model: &mut Model<'_>, refresh: Duration) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("this needs a terminal (or --frame)")?;
    let mut show = || -> io::Result<()> {
        while !model.queue.is_shutting_down() {
            model.refresh();
            terminal.draw(|frame| view::draw(frame, model))?;
            if event::poll(refresh)?
                && let Event::Key(key) = event::read()?
            {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                if key.code == KeyCode::Char('q') || control && key.code == KeyCode::Char('c') {
                    break;
                }
            }
        }
        Ok(())
    };
    let ended = show();
    ratatui::restore();
    ended.context("the terminal is gone")
}

/// Draws on a virtual terminal, and prints its contents at the end.
fn print_frame(
    model: &mut Model<'_>,
    refresh: Duration,
    count: u32,
    columns: u16,
) -> anyhow::Result<()> {
    let mut terminal = Terminal::new(TestBackend::new(columns, 24))?;
    for _ in 0..count.max(1) {
        thread::sleep(refresh);
        model.refresh();
        terminal.draw(|frame| view::draw(frame, model))?;
    }
    let rows = terminal.backend().buffer().content.chunks(columns.into());
    let rows = rows.map(|row| row.iter().map(Cell::symbol).collect::<String>());
    let frame: String = rows.map(|row| row.trim_end().to_owned() + "\n").collect();
    written(io::stdout().write_all(frame.as_bytes()))
}
