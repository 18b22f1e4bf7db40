//! The last failure of each key whose retry is pending (X2).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::poll_until_idle;
use crate::common::timed::{HOUR, built, secs};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{Failures, Job, LastFailure, Workers};
use keyqueue::{Cursor, Listed, MockClock, WorkQueue};

type Queue = WorkQueue<u64>;

fn queue() -> (Queue, MockClock) {
    let backoff = ItemExponentialFailure::new(secs(10), HOUR).unwrap();
    built(|builder| builder.rate_limiter(backoff))
}

/// Works on all that is queued, and returns.
fn work<E: fmt::Display>(
    queue: &Queue,
    failures: &Failures<u64>,
    f: impl Fn(u64) -> Result<(), E>,
) {
    let workers = Workers::new(queue).max_retries(2).failures(failures);
    let run = workers
        .concurrency(1)
        .run_async(async |job: Job<'_, u64>| f(*job));
    assert!(poll_until_idle(&mut Box::pin(run)).is_pending());
}

fn of(queue: &Queue, failures: &Failures<u64>, wanted: u64) -> Option<LastFailure> {
    let page = queue.page(Cursor::default(), Listed::All, 1000);
    let key = page.keys.iter().find(|key| *key.key() == wanted)?;
    failures.of(key)
}

#[test] // X2
fn the_hook_of_errors_finds_the_failure() {
    let (queue, _time) = queue();
    let failures = Failures::new(10).unwrap();
    let seen = AtomicBool::new(false);
    queue.add(1);
    let workers = Workers::new(&queue).failures(&failures);
    let workers = workers.on_error(|_, _| {
        assert_eq!(queue.counts().delayed, 1);
        seen.store(of(&queue, &failures, 1).is_some(), Ordering::Relaxed);
    });
    let run = workers
        .concurrency(1)
        .run_async(async |_| Err::<(), _>("no route"));
    assert!(poll_until_idle(&mut Box::pin(run)).is_pending());
    assert!(seen.into_inner());
}

#[test] // X2
fn a_failure_is_there_until_the_end_of_the_next_try() {
    let (queue, time) = queue();
    let failures = Failures::new(10).unwrap();
    let before = SystemTime::now();
    queue.add_all([1, 2]);
    work(&queue, &failures, |key| match key {
        1 => Err("no route"),
        _ => Ok(()),
    });
    let first = of(&queue, &failures, 1).unwrap();
    assert_eq!(
        (&*first.error, first.attempt, first.next),
        ("no route", 1, secs(10))
    );
    assert!(first.at >= before);
    assert_eq!((failures.len(), failures.missed()), (1, 0));

    time.advance(secs(10));
    queue.fire_due();
    assert_eq!(of(&queue, &failures, 1), Some(first)); // it is queued
    work(&queue, &failures, |_| Err("still none"));
    let second = of(&queue, &failures, 1).unwrap();
    assert_eq!((&*second.error, second.next), ("still none", secs(20)));

    time.advance(secs(20));
    queue.fire_due();
    work(&queue, &failures, |_| Ok::<_, String>(()));
    assert!(failures.is_empty());
}

#[test] // X2
fn a_key_that_is_given_up_has_no_failure_left() {
    let (queue, time) = queue();
    let failures = Failures::new(10).unwrap();
    queue.add(1);
    for _ in 0..3 {
        work(&queue, &failures, |_| Err("no"));
        time.advance(HOUR);
        queue.fire_due();
    }
    assert!(failures.is_empty());
}

#[test] // X2
fn a_full_record_says_how_many_it_has_not_kept() {
    assert_eq!(Failures::<u64>::new(0).unwrap_err().field(), "capacity");
    let (queue, _time) = queue();
    let failures = Failures::new(3).unwrap();
    queue.add_all(0..5);
    work(&queue, &failures, |_| Err("no"));
    assert_eq!((failures.len(), failures.missed()), (3, 2));
}

#[test] // X2
fn failures_of_cancelled_retries_go_while_workers_finish_keys() {
    let (queue, _time) = queue();
    let failures = Failures::new(3).unwrap();
    queue.add_all(0..3);
    work(&queue, &failures, |_| Err("no"));
    (0..3).for_each(|key| assert!(queue.cancel(&key)));
    queue.add_all(10..16);
    work(&queue, &failures, |_| Ok::<_, String>(()));
    assert!(failures.is_empty(), "{failures:?}");
}

struct Long;

impl fmt::Display for Long {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..1_000_000).try_for_each(|_| f.write_str("é€"))
    }
}

struct Panics;

impl fmt::Display for Panics {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in the text")
    }
}

#[test] // X2
fn the_text_of_an_error_is_cut_and_may_panic() {
    let (queue, _time) = queue();
    let failures = Failures::new(3).unwrap();
    queue.add(1);
    work(&queue, &failures, |_| Err(Long));
    let error = of(&queue, &failures, 1).unwrap().error;
    assert!(
        (4093..=4096).contains(&error.len()) && error.starts_with("é€é"),
        "{}",
        error.len()
    );
    queue.add(2);
    work(&queue, &failures, |_| Err(Panics));
    let error = of(&queue, &failures, 2).unwrap().error;
    assert_eq!(error, "its text panicked: in the text");
}

#[test] // X2
fn a_panic_of_the_function_is_a_failure_like_others() {
    let (queue, _time) = queue();
    let failures = Failures::new(3).unwrap();
    queue.add(1);
    work(&queue, &failures, |_| -> Result<(), String> {
        panic!("no luck")
    });
    assert_eq!(of(&queue, &failures, 1).unwrap().error, "panicked: no luck");
    assert_eq!(
        of(&queue, &failures, 1).unwrap().next,
        Duration::from_secs(10)
    );
}
