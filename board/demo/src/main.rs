//! A pipeline with failures, and its board: `cargo run -p keyqueue-board-demo -- 127.0.0.1:8080`.
//!
//! Its series are at `/metrics`. Everybody who reaches the address may do everything there, so it listens on this machine alone.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Failures, Job, Verdict, Workers};
use keyqueue::{WorkQueue, merge};
use keyqueue_board::{Board, Shown};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::net::TcpListener;

/// An order of a customer.
type Order = (&'static str, u32);

const CUSTOMERS: [&str; 5] = ["acme", "globex", "initech", "umbrella", "wayne"];

/// Orders of customers that take turns, some of which fail.
fn orders(board: &Board) -> Result<impl Sized + use<>, Box<dyn Error>> {
    let backoff = ItemExponentialFailure::new(Duration::from_secs(2), Duration::from_secs(300))?;
    let queue = WorkQueue::builder().name("orders").levels(3);
    let queue = queue.group_by(|order: &Order| order.0).group_limit(3);
    let queue = Arc::new(queue.rate_limiter(backoff).build()?);
    let (letters, failures) = (DeadLetters::new(10_000)?, Failures::new(10_000)?);
    let workers = Workers::new(&queue).concurrency(6).max_retries(3);
    let workers = workers.dead_letters(&letters).failures(&failures);
    let workers = workers.spawn(|job: Job<'_, Order>| {
        let (customer, number) = *job;
        thread::sleep(Duration::from_millis(fastrand::u64(20..400)));
        match fastrand::u32(0..20) {
            0 => Verdict::GiveUp(format!("{customer} has no order {number}")),
            1..4 => Verdict::Retry("the warehouse does not respond".to_owned()),
            4 if customer == "wayne" && number % 50 == 0 => panic!("a price below zero"),
            _ => Verdict::Ok(Default::default()),
        }
    })?;
    let shown = Shown::new(&queue, |(customer, number): &Order, f| {
        write!(f, "{customer}/{number}")
    });
    board.add(
        "orders",
        shown
            .groups::<&str>(fmt::Display::fmt)
            .dead_letters(&letters)
            .failures(&failures),
    )?;
    thread::spawn(move || {
        for number in 0.. {
            let customer = CUSTOMERS[fastrand::usize(0..10).min(CUSTOMERS.len() - 1)];
            queue
                .entry((customer, number))
                .level(fastrand::usize(0..3))
                .add();
            // For half a minute more than the workers can do, then less.
            let busy = number % 1800 < 900;
            thread::sleep(Duration::from_millis(if busy { 30 } else { 60 }));
        }
    });
    Ok(workers)
}

/// Clicks of users, summed until they are saved.
fn clicks(board: &Board) -> Result<impl Sized + use<>, Box<dyn Error>> {
    let backoff = ItemExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(60))?;
    let queue = WorkQueue::builder()
        .merge(merge::sum::<u64>)
        .name("clicks")
        .pausable();
    let queue = Arc::new(queue.rate_limiter(backoff).build()?);
    let letters = DeadLetters::new(1000)?;
    let failures = Failures::new(1000)?;
    let workers = Workers::new(&queue).concurrency(2).max_retries(2);
    let workers = workers.dead_letters(&letters).failures(&failures);
    let workers = workers.spawn(|job: Job<'_, u32, u64>| {
        thread::sleep(Duration::from_millis(50));
        match fastrand::u32(0..12) {
            0 => Err(format!(
                "{} clicks of user {} are not saved: the database is read-only",
                job.value(),
                *job
            )),
            _ => Ok(()),
        }
    })?;
    let shown = Shown::display(&queue).values(Some(&letters), fmt::Display::fmt);
    board.add("clicks", shown.failures(&failures))?;
    thread::spawn(move || {
        loop {
            queue.put(fastrand::u32(0..200), 1);
            thread::sleep(Duration::from_millis(10));
        }
    });
    Ok(workers)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080");
    let board = Board::new().allow(|_| Some("demo".to_owned()));
    let durations = Matcher::Suffix("_duration_seconds".to_owned());
    let exported = PrometheusBuilder::new()
        .set_buckets_for_metric(durations, &keyqueue::metrics::BUCKETS)?
        .install_recorder()?;
    let upkeep = exported.clone();
    let _workers = (orders(&board)?, clicks(&board)?);
    let app = Router::new()
        .route("/metrics", get(async move || exported.render()))
        .route("/", get(async || Redirect::to("/queues")))
        .nest_service("/queues", board.router());
    tokio::spawn(async move { board.record().await });
    // Otherwise what was observed is kept until somebody asks for the series.
    tokio::spawn(async move {
        loop {
            upkeep.run_upkeep();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/queues", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
