//! Watches a running pipeline in the terminal: depth, rates, latencies, and the oldest keys.
//!
//! `cargo run --release --features metrics --example top -- FILE [--rate BYTES] [--pause MS] [--workers N]`
//!
//! The load is that of the example `pipeline`: the lines of FILE, over and over, each into the
//! inbox of its first field. The file is read at a set rate, and the workers pause before each key,
//! so that keys wait. The figures come from the queue's series, through an exporter in the same
//! process, and from `snapshot`. `q` ends the program. `--frame` prints a single frame, without a
//! terminal.

mod model;
mod view;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use engine::{Accounts, Pipeline};
use keyqueue::WorkQueue;
use metrics_exporter_prometheus::PrometheusBuilder;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::model::Model;

/// Watches a running pipeline in the terminal.
#[derive(Parser)]
struct Args {
    /// The lines to feed the pipeline with, over and over
    file: PathBuf,
    /// Bytes to read a second
    #[arg(long, value_name = "BYTES", default_value_t = 100_000)]
    rate: u64,
    /// Milliseconds that a worker rests before it digests a key
    #[arg(long, value_name = "MS", default_value_t = 5)]
    pause: u64,
    /// Threads that digest lines
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: usize,
    /// Milliseconds from one frame to the next
    #[arg(long, value_name = "MS", default_value_t = 500)]
    refresh: u64,
    /// Print the frame after this many refreshes, of 80 columns and 24 rows, and end
    #[arg(long, value_name = "N")]
    frame: Option<u32>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {name}"))?;
    anyhow::ensure!(file.metadata()?.len() > 0, "{name} is empty");

    let recorder = PrometheusBuilder::new().build_recorder();
    let exported = recorder.handle();
    let queue = WorkQueue::builder()
        .name("pipeline")
        .recorder(Arc::new(recorder))
        .build()?;
    let pipeline = Pipeline::over(queue);
    let pause = Duration::from_millis(args.pause);

    thread::scope(|scope| {
        for _ in 0..args.workers {
            scope.spawn(|| {
                while let Some(account) = pipeline.queue.get() {
                    thread::sleep(pause);
                    pipeline.digest(&account);
                }
            });
        }
        let reader = scope.spawn(|| feed(&pipeline, file, args.rate));

        let mut model = Model::new(&pipeline.queue, &exported);
        let refresh = Duration::from_millis(args.refresh);
        let watched = match args.frame {
            Some(count) => print_frame(&mut model, refresh, count),
            None => watch(&mut model, refresh),
        };
        pipeline.queue.shut_down();
        let read = reader.join().expect("the reader has not panicked");
        read.with_context(|| format!("cannot read {name}"))?;
        watched
    })
}

/// Reads the file over and over, at `rate` bytes a second, until the queue is shut down.
fn feed(pipeline: &Pipeline, mut file: File, rate: u64) -> io::Result<()> {
    let began = Instant::now();
    let due = || (began.elapsed().as_secs_f64() * rate as f64) as usize;
    let (mut accounts, mut read) = (Accounts::new(), 0);
    while !pipeline.queue.is_shutting_down() {
        for line in BufReader::new(&file).split(b'\n') {
            while read > due() && !pipeline.queue.is_shutting_down() {
                thread::sleep(Duration::from_millis(5));
            }
            if pipeline.queue.is_shutting_down() {
                break;
            }
            let mut line = line?;
            line.push(b'\n');
            read += line.len();
            pipeline.put(&line, &mut accounts);
        }
        file.rewind()?;
    }
    Ok(())
}

/// Draws until `q` or Ctrl-C is pressed.
fn watch(model: &mut Model<'_>, refresh: Duration) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init().context("this needs a terminal (or --frame)")?;
    let mut show = || -> io::Result<()> {
        loop {
            model.refresh();
            terminal.draw(|frame| view::draw(frame, model))?;
            if event::poll(refresh)?
                && let Event::Key(key) = event::read()?
            {
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                if key.code == KeyCode::Char('q') || control && key.code == KeyCode::Char('c') {
                    return Ok(());
                }
            }
        }
    };
    let ended = show();
    ratatui::restore();
    ended.context("the terminal is gone")
}

/// Draws on a virtual terminal, and prints its contents at the end.
fn print_frame(model: &mut Model<'_>, refresh: Duration, count: u32) -> anyhow::Result<()> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24))?;
    for _ in 0..count.max(1) {
        thread::sleep(refresh);
        model.refresh();
        terminal.draw(|frame| view::draw(frame, model))?;
    }
    let buffer = terminal.backend().buffer();
    let width = usize::from(buffer.area.width);
    for row in buffer.content.chunks(width) {
        let row: String = row.iter().map(Cell::symbol).collect();
        println!("{}", row.trim_end());
    }
    Ok(())
}
