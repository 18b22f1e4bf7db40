//! Workers: what is done with the records of a key.
//!
//! The queue's workers try the records of a key [one by one](keyqueue::worker::Workers::each), in order, until one of them has to wait:
//!
//! ```text
//!     the lease has ended                  it waits in hand, until the lease or its tenure says otherwise
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

use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use keyqueue::worker::{IntoVerdict, Outcome, Verdict};

use crate::config::Exhausted;
use crate::key::Job;
use crate::record::{Inner, Trouble};
use crate::shared::Shared;
use crate::tenure::{Running, Tenure};
use crate::{Record, caught, message};

/// The records of a key that are handled before others have their turn.
pub(crate) const TURN: usize = 64;
/// After which time it is looked again what has become of a letter on its way.
const LOOK: Duration = Duration::from_secs(1);
/// The characters of an error that are kept while its record is retried, and in its letter, where they have to fit in a message.
const SHORT: usize = 512;
const TEXT: usize = 8192;

/// What becomes of a record.
enum Next {
    /// It is not in hand any more.
    Gone,
    /// It is tried again after this time.
    After(Duration),
}

/// Why a call has returned nothing.
enum Broken {
    /// It panicked, with this message.
    Panic(String),
    /// Its tenure was cancelled.
    Cancelled,
}

/// What becomes of a key. The error is for its records together: each has its own one.
impl From<Next> for Verdict<&'static str> {
    fn from(next: Next) -> Self {
        match next {
            Next::Gone => Verdict::Ok(Outcome::Done),
            Next::After(delay) => Verdict::RetryAfter("its first record waits", delay),
        }
    }
}

/// Handles a record of a key.
pub(crate) async fn work<F, R>(shared: &Arc<Shared>, f: &F, job: Job) -> Verdict<&'static str>
where
    F: Fn(Record) -> R,
    R: Future<Output: IntoVerdict>,
{
    match job.value().first() {
        Some(record) => handle(shared, f, record).await.into(),
        None => Verdict::Ok(Outcome::Done),
    }
}

async fn handle<F, R>(shared: &Arc<Shared>, f: &F, record: &Arc<Inner>) -> Next
where
    F: Fn(Record) -> R,
    R: Future<Output: IntoVerdict>,
{
    let Some(_running) = record.tenure.enter().await else {
        return Next::Gone;
    };
    let trouble = record.trouble();
    if trouble.as_ref().is_some_and(|trouble| trouble.is_dead) {
        return bury(shared, record).await;
    }
    let attempt = 1 + trouble.map_or(0, |trouble| trouble.attempts);
    let inner = Arc::clone(record);
    let call = async { texts(f(Record { inner, attempt }).await.into_verdict()) };
    // Ordering: Relaxed; a mark to show.
    record.running.store(true, Ordering::Relaxed);
    let said = watched(record.tenure.cancelled(), call).await;
    record.running.store(false, Ordering::Relaxed);
    settle(shared, record, said).await
}

/// Does what was said about a record that is in the gate.
async fn settle(
    shared: &Arc<Shared>,
    record: &Arc<Inner>,
    said: Result<Verdict<String>, Broken>,
) -> Next {
    let (error, delay, is_hopeless) = match said {
        Err(Broken::Cancelled) => return cancelled(shared),
        Err(Broken::Panic(message)) => (format!("panicked: {message}"), None, false),
        Ok(Verdict::Ok(outcome)) => return succeed(shared, record, outcome),
        Ok(Verdict::RetryAfter(error, delay)) => (error, Some(delay), false),
        Ok(Verdict::GiveUp(error)) => (error, None, true),
        Ok(Verdict::Retry(error)) => (error, None, false),
        Ok(_) => ("an unknown verdict".to_owned(), None, false),
    };
    // Its tenure has ended while it ran: others try it again, or give it up.
    if !record.tenure.holds(record) {
        return Next::Gone;
    }
    let mut trouble = record.trouble().unwrap_or_else(Trouble::none);
    trouble.last = SystemTime::now();
    if trouble.attempts == 0 {
        trouble.first = trouble.last;
    }
    trouble.attempts += 1;
    let key = shared.settings.order.key(record);
    let is_crowded = record.tenure.failed(key);
    let is_last = is_hopeless || is_crowded || trouble.attempts > shared.settings.retries;
    trouble.is_dead = is_last && shared.exhausted(record) != Exhausted::Block;
    let most = if trouble.is_dead { TEXT } else { SHORT };
    trouble.error = error.chars().take(most).collect();
    let (at, is_dead) = (record.place(), trouble.is_dead);
    // If it panics, the attempt counts all the same.
    _ = caught(|| {
        tracing::warn!(target: "keyqueue_kafka", topic = &*at.topic, partition = at.partition, offset = at.offset, attempts = trouble.attempts, is_dead, is_crowded, error = trouble.error, "a record failed");
    });
    record.fail(trouble);
    if is_dead {
        return bury(shared, record).await;
    }
    shared.counts.retries.add(1);
    let limit = backoff(shared, record);
    again(shared, record, delay.unwrap_or(limit))
}

fn succeed(shared: &Shared, record: &Arc<Inner>, outcome: Outcome) -> Next {
    let order = &shared.settings.order;
    let delay = match outcome {
        Outcome::RequeueAfter(delay) | Outcome::Later(delay) | Outcome::HoldGroup(delay) => delay,
        Outcome::RequeueRateLimited => backoff(shared, record),
        // `Done`, and what later versions have.
        _ => {
            record.tenure.succeeded(record, order, true);
            finish(shared, record);
            shared.counts.finished.add(1);
            return Next::Gone;
        }
    };
    record.tenure.succeeded(record, order, false);
    let mut trouble = record.trouble().unwrap_or_else(Trouble::none);
    trouble.last = SystemTime::now();
    if let Outcome::RequeueAfter(_) = outcome {
        forget(shared, record);
        trouble.attempts = 0;
    }
    record.fail(trouble);
    again(shared, record, delay)
}

/// The record comes again. Its failure is noted, and the limiter knows it.
fn again(shared: &Shared, record: &Inner, delay: Duration) -> Next {
    // After both: the end of a tenure has the limiter forget only what has failed by then. And what has failed since it began must not
    // leave a retry, for which the key's records of the next tenure would wait.
    if record.tenure.is_revoked() || !record.tenure.holds(record) {
        forget(shared, record);
        return Next::Gone;
    }
    Next::After(delay)
}

/// The record is repeated by the next owner of its partition.
fn cancelled(shared: &Shared) -> Next {
    shared.counts.cancelled.add(1);
    Next::Gone
}

/// Ends a record that is in the gate and has no retries left, or waits to try that again.
///
/// Brokers that do not reply refuse a letter only after `message.timeout.ms`. Neither a worker nor the other keys of its batch wait for
/// that: a task writes the letter and ends the record. Meanwhile the key is delivered each second, to see whether it has ended.
async fn bury(shared: &Arc<Shared>, record: &Arc<Inner>) -> Next {
    let (Exhausted::DeadLetter, Some(letters)) = (shared.exhausted(record), &shared.letters) else {
        shared.counts.skipped.add(1);
        finish(shared, record);
        return Next::Gone;
    };
    let mut trouble = record.trouble().unwrap_or_else(Trouble::none);
    // A look that finds a refusal comes a moment after it: the letter is written again at once.
    if !trouble.is_sent {
        // What nobody waits for any more is left to the next owner, without a letter.
        if record.tenure.is_cancelled() {
            return cancelled(shared);
        }
        trouble.is_sent = true;
        record.fail(trouble.clone());
        // A revocation waits for it, as for a handler; also one that has begun.
        let running = record.tenure.stay();
        let letter = write(Arc::clone(shared), Arc::clone(record), trouble, running);
        letters.wait(tokio::spawn(letter)).await;
    }
    if record.tenure.is_revoked() || !record.tenure.holds(record) {
        return Next::Gone;
    }
    match record.trouble().is_some_and(|trouble| trouble.is_sent) {
        // That is no failure, and takes nothing from the limiter.
        true => Next::After(LOOK),
        false => again(shared, record, backoff(shared, record)),
    }
}

/// Writes the letter of a record and finishes that, or notes why the letter was refused.
async fn write(
    shared: Arc<Shared>,
    record: Arc<Inner>,
    mut trouble: Trouble,
    _running: Running<Arc<Tenure>>,
) {
    let Some(letters) = &shared.letters else {
        return;
    };
    let written = watched(record.tenure.cancelled(), letters.write(&record, &trouble)).await;
    let error = match written {
        Ok(Ok(())) => {
            shared.counts.dead_letters.add(1);
            return finish(&shared, &record);
        }
        Ok(Err(error)) => error.to_string(),
        Err(Broken::Panic(message)) => message,
        Err(Broken::Cancelled) => {
            cancelled(&shared);
            return;
        }
    };
    trouble.refused = Some(error.clone());
    trouble.is_sent = false;
    record.fail(trouble);
    let at = record.place();
    tracing::warn!(target: "keyqueue_kafka", topic = &*at.topic, partition = at.partition, offset = at.offset, error, "a dead letter is refused");
}

fn finish(shared: &Shared, record: &Inner) {
    record.tenure.finish(record);
    if record.is_troubled() {
        forget(shared, record);
    }
}

/// The limiter's delay. It is user code: if it panics, a second.
fn backoff(shared: &Shared, record: &Inner) -> Duration {
    let when = || shared.settings.backoff.when(&record.place());
    caught(when).unwrap_or(Duration::from_secs(1))
}

/// Tells the limiter that the record has no failures any more. It may panic, too.
pub(crate) fn forget(shared: &Shared, record: &Inner) {
    let forget = || shared.settings.backoff.forget(&record.place());
    _ = caught(forget);
}

/// Polls a call until it is ready, panics, or is cancelled.
async fn watched<T>(cancelled: impl Future, call: impl Future<Output = T>) -> Result<T, Broken> {
    let call = pin!(AssertUnwindSafe(call).catch_unwind());
    // It polls the call first: most handlers of little work are ready then, and those register nowhere.
    match select(call, pin!(cancelled)).await {
        Either::Left((result, _)) => result.map_err(|payload| Broken::Panic(message(&*payload))),
        Either::Right(_) => Err(Broken::Cancelled),
    }
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::tenure::Start;

    #[test] // R2, R5
    fn what_fails_once_its_tenure_ends_leaves_no_retry() {
        const HOUR: Duration = Duration::from_secs(3600);
        let builder = crate::Consumer::builder("127.0.0.1:1", "group").topics(["topic"]);
        let consumer = builder.build().expect("settings");
        let shared = &consumer.shared;
        let tenure = Arc::new(shared.tenure(("topic".into(), 0, 0), Start::default()));
        let record = Arc::new(Inner::of(&tenure, 0, None, None, Instant::now()));
        tenure.begin(&[Arc::clone(&record)]);
        assert!(matches!(again(shared, &record, HOUR), Next::After(HOUR)));
        tenure.revoke();
        assert!(tenure.holds(&record));
        assert!(matches!(again(shared, &record, HOUR), Next::Gone));
    }
}
