//! A small controller that serves its queue's metrics to Prometheus.
//!
//! `cargo run --release --features metrics --example metrics -- [--listen ADDRESS] [--seconds N]`
//!
//! Events add keys, and workers take a few milliseconds for each. Some keys fail and are retried,
//! and each is requeued once after a while. With `--listen` the metrics are served at
//! `http://ADDRESS/metrics`; without, they are printed at the end. `prometheus.yml`, `alerts.yml`
//! and `dashboard.json` in this folder are made for them.
//!
//! Ctrl-C and SIGTERM end it: the workers finish what is queued, and the exit code is 0.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use keyqueue::{Added, WorkQueue};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use shared::program::{exit, written};

/// A small controller that serves its queue's metrics to Prometheus. Ctrl-C ends it.
#[derive(Parser)]
#[command(name = "metrics")]
struct Args {
    /// Where to serve the metrics; otherwise they are printed at the end
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// How long to run; 0 means forever
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,
    /// Events a second
    #[arg(long, value_name = "N", default_value_t = 200)]
    events: u32,
    /// Threads that work on keys
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8192))]
    workers: u16,
}

type Pods = WorkQueue<String, ItemExponentialFailure<String>>;

fn main() -> ExitCode {
    exit("metrics", run(&Args::parse()))
}

fn run(args: &Args) -> anyhow::Result<()> {
    let limiter = ItemExponentialFailure::new(Duration::from_millis(20), Duration::from_secs(5))?;
    // A name enables the metrics.
    let queue = WorkQueue::builder().name("pods").rate_limiter(limiter);
    let queue: Arc<Pods> = Arc::new(queue.build()?);
    // No further event is accepted, so `watch` returns.
    let ended = Arc::clone(&queue);
    ctrlc::set_handler(move || _ = ended.shut_down()).context("cannot catch signals")?;

    // Without buckets the exporter makes summaries of what client-go has as histograms.
    let exporter = PrometheusBuilder::new().set_buckets_for_metric(
        Matcher::Suffix("_duration_seconds".into()),
        &keyqueue::metrics::BUCKETS,
    )?;
    // Installed for the whole process; `Builder::recorder` is for a queue that reports elsewhere.
    let exported = match args.listen {
        Some(address) => {
            let served = exporter.with_http_listener(address).install();
            served.with_context(|| format!("cannot serve http://{address}/metrics"))?;
            eprintln!("serving http://{address}/metrics");
            None
        }
        None => Some(exporter.install_recorder()?),
    };

    let workers = Workers::shared(Arc::clone(&queue))
        .threads(args.workers.into())
        .max_retries(3)
        .spawn(|key: &String| reconcile(key))?;
    let end = Duration::from_secs(args.seconds);
    let events = watch(&queue, args.events, (args.seconds > 0).then_some(end));
    queue.report();
    if let Some(exported) = exported {
        let series = exported.render();
        written(io::stdout().write_all(series.as_bytes()))?;
    }
    // The workers finish what is queued. Retries and requeues that are pending are dropped.
    let dropped = queue.shut_down_with_drain().left.delayed;
    workers.join();
    eprintln!("{events} events; {dropped} pending retries and requeues dropped");
    Ok(())
}

/// What a controller would do: here it takes its time, and sometimes fails.
fn reconcile(key: &str) -> Result<Outcome, &'static str> {
    let digits = |n: u64, byte: u8| 10 * n + u64::from(byte % 16);
    let number = key.bytes().filter(u8::is_ascii_digit).fold(0, digits);
    thread::sleep(Duration::from_millis(1 + number % 8));
    match number % 50 {
        0 => Err("a pod that never gets well"),
        n if n < 5 && fastrand::bool() => Err("not this time"),
        n if n < 10 => Ok(Outcome::RequeueAfter(Duration::from_secs(30))),
        _ => Ok(Outcome::Done),
    }
}

/// Adds keys, among them bursts of equal ones, and returns the number of adds.
fn watch(queue: &Pods, rate: u32, end: Option<Duration>) -> u64 {
    let began = Instant::now();
    let mut events = 0;
    while !queue.is_shutting_down() && end.is_none_or(|end| began.elapsed() < end) {
        // Where it should be by now; so a late wake-up is made up for.
        let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        while events < due {
            events += 1;
            let key = format!("default/pod-{}", events * events % 499);
            if queue.add(key) == Added::ShutDown {
                return events;
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
    events
}
