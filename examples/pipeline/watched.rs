//! A running pipeline, watched by its series: served at `http://ADDRESS/metrics` with `--listen`, or printed at the end of
//! `--seconds` without.
//!
//! ```text
//! cargo run --release -p keyqueue-examples --features metrics --example pipeline -- --listen 127.0.0.1:9187
//! ```
//!
//! The file is read at a set rate, and the workers pause before each key, so that keys wait; some deliveries fail, and are
//! retried, and at last given up. Names take turns by their first letter, and one line in twenty is also put under the name
//! `urgent`, which is at level 0. `prometheus.yml`, `alerts.yml` and `dashboard.json` in this folder are made for the series.

use std::fs::File;
use std::io::{self, BufReader, Seek, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Job, Workers};
use keyqueue::{WorkQueue, merge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use shared::written;

use crate::engine::{Lines, Name, Pipeline, Reader};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Handle the file over and over, and serve the series to Prometheus. Ctrl-C or SIGTERM ends it
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// End after this many; without `--listen` the series are printed then
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Bytes to read a second while it is watched
    #[arg(long, value_name = "BYTES", default_value_t = 20_000)]
    rate: u64,
    /// Milliseconds that a worker rests before it digests a key
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pause: u64,
    /// How many of a hundred deliveries fail, and are retried
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(..=100))]
    fail: u8,
}

impl Options {
    pub(crate) fn is_wanted(&self) -> bool {
        self.listen.is_some() || self.seconds.is_some()
    }
}

/// Reads the file, README.md by default, over and over, until it is ended. There are four workers by default.
pub(crate) fn run(args: &Options, file: Option<&Path>, workers: Option<u16>) -> anyhow::Result<()> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let file = file.unwrap_or(&readme);
    let name = file.display();
    let input = File::open(file).with_context(|| format!("cannot open {name}"))?;
    anyhow::ensure!(input.metadata()?.len() > 0, "{name} is empty");

    // With these buckets the exporter makes what client-go has, histograms; without any, summaries.
    let exporter = PrometheusBuilder::new().set_buckets_for_metric(
        Matcher::Suffix("_duration_seconds".into()),
        &keyqueue::metrics::BUCKETS,
    )?;
    // A program installs its exporter, for all queues; `Builder::recorder` is for a queue that reports elsewhere.
    let exported = match args.listen {
        Some(address) => {
            let served = exporter.with_http_listener(address).install();
            served.with_context(|| format!("cannot serve http://{address}/metrics"))?;
            None
        }
        None => Some(exporter.install_recorder()?),
    };
    let backoff = ItemExponentialFailure::new(Duration::from_millis(250), Duration::from_secs(8))?;
    let settings = WorkQueue::builder()
        .name("pipeline") // This enables the metrics.
        .levels(2)
        .rate_limiter(backoff)
        .merge(merge::append)
        .group_by(|name: &Name| letter(name));
    let pipeline = Pipeline::over(settings)?;
    let pause = Duration::from_millis(args.pause);
    let work = |job: Job<'_, Name, Lines>| {
        if pipeline.queue.is_shutting_down() {
            return Ok(()); // Nobody waits for the digests.
        }
        thread::sleep(pause);
        if fastrand::u8(..100) < args.fail {
            return Err("not this time"); // The lines go back, before those that came meanwhile.
        }
        pipeline.digest(&job, job.value());
        Ok(())
    };

    thread::scope(|scope| {
        let _end = pipeline.queue.shut_down_on_drop(); // Also if this thread panics.
        let workers = Workers::new(&pipeline.queue)
            .concurrency(workers.unwrap_or(4).into())
            .max_retries(3);
        let workers = scope.spawn(|| {
            let ran = workers.run(work);
            pipeline.queue.shut_down(); // If they could not be started.
            ran
        });
        let reader = scope.spawn(|| feed(&pipeline, input, args.rate));
        let watched = wait(&pipeline, args).and_then(|()| {
            pipeline.queue.report();
            let series = exported.map_or(String::new(), |exported| exported.render());
            written(io::stdout().write_all(series.as_bytes()))
        });
        let dropped = pipeline.queue.shut_down().delayed;
        let read = reader.join().expect("the reader has not panicked");
        read.with_context(|| format!("cannot read {name}"))?;
        workers
            .join()
            .expect("what a worker panics with is caught")?;
        eprintln!("ended; {dropped} pending retries dropped");
        watched
    })
}

/// Waits for Ctrl-C, SIGTERM or the set time.
fn wait(pipeline: &Pipeline, args: &Options) -> anyhow::Result<()> {
    static ENDED: AtomicBool = AtomicBool::new(false);
    // Ordering: Relaxed, here and below; a flag.
    ctrlc::set_handler(|| ENDED.store(true, Ordering::Relaxed)).context("cannot catch signals")?;
    if let Some(address) = args.listen {
        eprintln!("serving http://{address}/metrics");
    }
    let (began, time) = (Instant::now(), args.seconds.map(Duration::from_secs));
    while !ENDED.load(Ordering::Relaxed) && !pipeline.queue.is_shutting_down() {
        if time.is_some_and(|time| began.elapsed() >= time) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The group of a name: its first letter.
fn letter(name: &Name) -> char {
    let name = String::from_utf8_lossy(name);
    name.chars().next().unwrap_or_default().to_ascii_lowercase()
}

/// Reads the file over and over, at `rate` bytes a second, until the queue is shut down.
fn feed(pipeline: &Pipeline, mut file: File, rate: u64) -> io::Result<()> {
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
                    .entry(b"urgent".to_vec())
                    .level(0)
                    .put(b"urgent\n".to_vec());
            }
        }
        file.rewind()?;
    }
}
