//! Workers: what is done with the records of a key.
//!
//! The queue's workers try the records of a key [one by one](keyqueue::worker::Workers::each), in order, until one of them has to wait:
//!
//! ```text
//!     its tenure has ended                 it is gone, the next one
//!     the handler: Ok(Done)                finished, the next one
//!                  Ok(RequeueAfter(d)) ..  the key comes again after d
//!                  error, panic            retries left: the key comes again after the limiter's delay
//!                                          none left: dead letter, finished, the next one; or skipped; or blocked
//!                  cancelled               it is gone, the next one
//! ```
//!
//! All that waits is a retry for the queue, so that records that come later do not cut it short. The queue counts no tries and has no
//! limiter: both are the record's.

pub(crate) mod batches;

use std::any::Any;
use std::fmt::{self, Display};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use keyqueue::worker::{IntoVerdict, Job, Outcome, Verdict};

use crate::Record;
use crate::config::{Exhausted, Place};
use crate::key::{Backlog, Key};
use crate::record::{Inner, Trouble};
use crate::shared::Shared;
use crate::tenure::Tenure;

/// The records of a key that are handled before others have their turn.
pub(crate) const TURN: usize = 64;

/// Why a key comes again: for its records, which have their own errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits;

impl Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its first record waits")
    }
}

/// What becomes of a record.
enum Next {
    /// It is not in hand any more.
    Gone,
    /// It is tried again after this time.
    After(Duration),
}

/// What a handler did: its verdict, the message of its panic, or nothing, because its tenure was cancelled.
enum Said {
    Verdict(Verdict<String>),
    Panic(String),
    Cancelled,
}

impl From<Next> for Verdict<Waits> {
    fn from(next: Next) -> Self {
        match next {
            Next::Gone => Verdict::Ok(Outcome::Done),
            Next::After(delay) => Verdict::RetryAfter(Waits, delay),
        }
    }
}

/// Handles a record of a key.
pub(crate) async fn work<F, R>(
    shared: &Shared,
    f: &F,
    job: Job<'static, Key, Backlog>,
) -> Verdict<Waits>
where
    F: Fn(Record) -> R,
    R: Future<Output: IntoVerdict>,
{
    match job.value().front() {
        Some(record) => handle(shared, f, record).await.into(),
        None => Verdict::Ok(Outcome::Done),
    }
}

async fn handle<F, R>(shared: &Shared, f: &F, record: &Arc<Inner>) -> Next
where
    F: Fn(Record) -> R,
    R: Future<Output: IntoVerdict>,
{
    let Some(_running) = record.tenure.enter() else {
        return Next::Gone;
    };
    let trouble = record.trouble();
    if let Some(trouble) = trouble.as_ref().filter(|trouble| trouble.is_dead) {
        return bury(shared, record, trouble.clone()).await;
    }
    let attempt = 1 + trouble.as_ref().map_or(0, |trouble| trouble.attempts);
    let inner = Arc::clone(record);
    let call = async { texts(f(Record { inner, attempt }).await.into_verdict()) };
    // Ordering: Relaxed; a mark to show.
    record.running.store(true, Ordering::Relaxed);
    let said = unless_cancelled(&record.tenure, call).await;
    record.running.store(false, Ordering::Relaxed);
    settle(shared, record, trouble, said).await
}

/// Does what was said about a record that is in the gate.
async fn settle(
    shared: &Shared,
    record: &Arc<Inner>,
    trouble: Option<Trouble>,
    said: Said,
) -> Next {
    let (error, delay, is_hopeless) = match said {
        Said::Cancelled => {
            shared.counts.cancelled.add(1);
            return Next::Gone;
        }
        Said::Verdict(Verdict::Ok(outcome)) => return succeed(shared, record, trouble, outcome),
        Said::Verdict(Verdict::Retry(error)) => (error, None, false),
        Said::Verdict(Verdict::RetryAfter(error, delay)) => (error, Some(delay), false),
        Said::Verdict(Verdict::GiveUp(error)) => (error, None, true),
        Said::Verdict(_) => ("an unknown verdict".to_owned(), None, false),
        Said::Panic(message) => (format!("panicked: {message}"), None, false),
    };
    let now = SystemTime::now();
    let attempts = 1 + trouble.as_ref().map_or(0, |trouble| trouble.attempts);
    let exhausted = shared.settings.exhausted_in(&record.tenure.topic);
    let is_last = is_hopeless || attempts > shared.settings.retries;
    let is_dead = is_last && exhausted != Exhausted::Block;
    let limit = if is_dead {
        Duration::ZERO
    } else {
        backoff(shared, record)
    };
    let delay = delay.unwrap_or(limit);
    let trouble = Trouble {
        attempts,
        error,
        first: trouble.map_or(now, |trouble| trouble.first),
        last: now,
        is_dead,
        refused: None,
    };
    let (topic, partition, offset) = (
        &*record.tenure.topic,
        record.tenure.partition,
        record.offset,
    );
    tracing::warn!(target: "keyqueue_kafka", topic, partition, offset, attempts, is_dead, error = trouble.error, "a record failed");
    if is_dead {
        return bury(shared, record, trouble).await;
    }
    record.fail(trouble);
    shared.counts.retries.add(1);
    Next::After(delay)
}

fn succeed(
    shared: &Shared,
    record: &Arc<Inner>,
    trouble: Option<Trouble>,
    outcome: Outcome,
) -> Next {
    let wait = match outcome {
        Outcome::RequeueAfter(delay) => {
            shared.limiter().forget(&place(record));
            (delay, 0)
        }
        Outcome::Later(delay) | Outcome::HoldGroup(delay) => (
            delay,
            trouble.as_ref().map_or(0, |trouble| trouble.attempts),
        ),
        Outcome::RequeueRateLimited => {
            let attempts = trouble.as_ref().map_or(0, |trouble| trouble.attempts);
            (backoff(shared, record), attempts)
        }
        // `Done`, and what later versions have.
        _ => {
            finish(shared, record, trouble.is_some());
            shared.counts.finished.add(1);
            return Next::Gone;
        }
    };
    let (delay, attempts) = wait;
    let now = SystemTime::now();
    let error = trouble
        .as_ref()
        .map_or_else(|| "not yet".to_owned(), |trouble| trouble.error.clone());
    record.fail(Trouble {
        attempts,
        error,
        first: trouble.map_or(now, |trouble| trouble.first),
        last: now,
        is_dead: false,
        refused: None,
    });
    Next::After(delay)
}

/// Ends a record that has no retries left, or waits to try that again.
async fn bury(shared: &Shared, record: &Arc<Inner>, trouble: Trouble) -> Next {
    let exhausted = shared.settings.exhausted_in(&record.tenure.topic);
    if let (Exhausted::DeadLetter, Some(letters)) = (exhausted, &shared.letters) {
        let write = async {
            let written = letters.write(record, &trouble).await;
            Verdict::from(
                written
                    .map(|()| Outcome::Done)
                    .map_err(|error| error.to_string()),
            )
        };
        match unless_cancelled(&record.tenure, write).await {
            Said::Verdict(Verdict::Ok(_)) => shared.counts.dead_letters.add(1),
            Said::Cancelled => {
                shared.counts.cancelled.add(1);
                return Next::Gone;
            }
            Said::Panic(error) | Said::Verdict(Verdict::Retry(error)) => {
                return refused(shared, record, trouble, &error);
            }
            Said::Verdict(_) => return refused(shared, record, trouble, "an unknown verdict"),
        }
    } else {
        shared.counts.skipped.add(1);
    }
    finish(shared, record, true);
    Next::Gone
}

/// A letter was refused: its record stays unfinished, and its key waits.
fn refused(shared: &Shared, record: &Arc<Inner>, trouble: Trouble, error: &str) -> Next {
    let (topic, partition, offset) = (
        &*record.tenure.topic,
        record.tenure.partition,
        record.offset,
    );
    tracing::warn!(target: "keyqueue_kafka", topic, partition, offset, error, "a dead letter is refused");
    let delay = backoff(shared, record);
    record.fail(Trouble {
        refused: Some(error.to_owned()),
        is_dead: true,
        ..trouble
    });
    Next::After(delay)
}

fn finish(shared: &Shared, record: &Arc<Inner>, has_failed: bool) {
    if has_failed {
        shared.limiter().forget(&place(record));
    }
    record.tenure.finish(record);
}

fn place(record: &Inner) -> Place {
    Place {
        topic: Arc::clone(&record.tenure.topic),
        partition: record.tenure.partition,
        offset: i64::try_from(record.offset).unwrap_or(i64::MAX),
    }
}

/// The limiter's delay. It is user code: if it panics, a second.
fn backoff(shared: &Shared, record: &Inner) -> Duration {
    let when = || shared.limiter().when(&place(record));
    std::panic::catch_unwind(AssertUnwindSafe(when)).unwrap_or(Duration::from_secs(1))
}

/// Calls a handler: until it is ready, panics, or its tenure is cancelled.
async fn unless_cancelled(tenure: &Tenure, call: impl Future<Output = Verdict<String>>) -> Said {
    let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
    let said = |result: Result<Verdict<String>, Box<dyn Any + Send>>| match result {
        Ok(verdict) => Said::Verdict(verdict),
        Err(payload) => Said::Panic(message(&*payload)),
    };
    // Most handlers of little work are ready at the first poll, and those register nowhere.
    let first = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    if let Poll::Ready(result) = first {
        return said(result);
    }
    let mut cancelled = pin!(tenure.cancelled());
    poll_fn(|context| {
        if let Poll::Ready(result) = call.as_mut().poll(context) {
            return Poll::Ready(said(result));
        }
        cancelled.as_mut().poll(context).map(|()| Said::Cancelled)
    })
    .await
}

/// The verdict with the text of its error, which need not be `Send`.
fn texts<E: Display>(verdict: Verdict<E>) -> Verdict<String> {
    match verdict {
        Verdict::Ok(outcome) => Verdict::Ok(outcome),
        Verdict::Retry(error) => Verdict::Retry(error.to_string()),
        Verdict::RetryAfter(error, delay) => Verdict::RetryAfter(error.to_string(), delay),
        Verdict::GiveUp(error) => Verdict::GiveUp(error.to_string()),
        // A verdict of a later version of keyqueue.
        _ => Verdict::Retry("an unknown verdict".to_owned()),
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_else(|| "with a value that is no text".to_owned())
}
