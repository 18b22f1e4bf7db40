//! A small controller that serves its queue's metrics to Prometheus.
//!
//! `cargo run --release --features metrics --example metrics -- [--listen ADDRESS] [--seconds N]`
//!
//! Events add keys, and workers take a few milliseconds for each. Some keys fail and are retried,
//! and each is requeued once after a while. With `--listen` the metrics are served at
//! `http://ADDRESS/metrics`; without, they are printed at the end. `prometheus.yml`, `alerts.yml`
//! and `dashboard.json` in this folder are made for them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Outcome, Workers};
use keyqueue::{Added, WorkQueue};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// A small controller that serves its queue's metrics to Prometheus.
#[derive(Parser)]
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
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: usize,
}

type Pods = WorkQueue<String, ItemExponentialFailure<String>>;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // Without buckets the exporter makes summaries of what client-go has as histograms.
    let exporter = PrometheusBuilder::new().set_buckets_for_metric(
        Matcher::Suffix("_duration_seconds".into()),
        &keyqueue::metrics::BUCKETS,
    )?;
    // Installed for the whole process; `Builder::recorder` is for a queue that reports elsewhere.
    let exported = match args.listen {
        Some(address) => {
            exporter.with_http_listener(address).install()?;
            eprintln!("serving http://{address}/metrics");
            None
        }
        None => Some(exporter.install_recorder()?),
    };

    let limiter = ItemExponentialFailure::new(Duration::from_millis(20), Duration::from_secs(5))?;
    // A name enables the metrics.
    let queue = WorkQueue::builder().name("pods").rate_limiter(limiter);
    let queue: Arc<Pods> = Arc::new(queue.build()?);
    let workers = Workers::shared(Arc::clone(&queue))
        .threads(args.workers)
        .max_retries(3)
        .spawn(|key: &String| reconcile(key))?;

    let end = Duration::from_secs(args.seconds);
    let events = watch(&queue, args.events, (args.seconds > 0).then_some(end));
    queue.report();
    if let Some(exported) = exported {
        print!("{}", exported.render());
    }
    workers.stop();
    workers.join();
    eprintln!("{events} events");
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
    while end.is_none_or(|end| began.elapsed() < end) {
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
