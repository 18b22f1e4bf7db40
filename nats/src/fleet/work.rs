//! Works on one key: waits for the lease, calls the handler, and does what its verdict asks for.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use keyqueue::worker::{self, IntoVerdict, Lent, Outcome, Verdict};
use tokio::time::Instant;

use super::Shared;
use super::delivery::{Delivery, Key};
use super::load::Load;
use crate::Event;
use crate::dead_letter;

/// The function of the workers. Its verdict is the queue's: a key that is retried keeps its messages.
pub(super) async fn work<F, R>(
    shared: Arc<Shared>,
    handler: Arc<F>,
    key: Key,
    load: Lent<Load>,
) -> Verdict<String>
where
    F: Fn(Delivery) -> R,
    R: Future<Output: IntoVerdict>,
{
    if let Some(left) = load
        .not_before
        .and_then(|at| at.checked_duration_since(Instant::now()))
        && !left.is_zero()
    {
        // A later message has cut the wait short. The handler has asked for the wait.
        return Verdict::Ok(Outcome::Later(left));
    }
    // The permit is taken last, so a hand-over does not wait for keys that wait for the lease.
    let permit = loop {
        shared.lease.held().await;
        let permit = load.tenure.begin();
        if permit.is_none() || shared.lease.holds() {
            break permit;
        }
    };
    let Some(_running) = permit else {
        // The partition is not ours any more. Its next owner delivers the messages.
        shared.series.skipped();
        drop(load.into_inner());
        return Verdict::Ok(Outcome::Done);
    };
    let attempt = worker::current().map_or(1, |attempt| attempt.number);
    let delivery = Delivery {
        key: key.clone(),
        tenure: Arc::clone(&load.tenure),
        messages: Arc::clone(&load.messages),
        covered: load.covered,
        lease: Arc::clone(&shared.lease),
        attempt,
    };
    let work = async { handler(delivery).await.into_verdict() };
    let verdict = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Verdict::Ok(outcome)) => Verdict::Ok(outcome),
        Ok(Verdict::Retry(error)) => Verdict::Retry(error.to_string()),
        Ok(Verdict::RetryAfter(error, delay)) => Verdict::RetryAfter(error.to_string(), delay),
        Ok(Verdict::GiveUp(error)) => Verdict::GiveUp(error.to_string()),
        Ok(_) => Verdict::Retry("a verdict that this version does not know".to_owned()),
        Err(panic) => Verdict::Retry(format!("panicked: {}", message_of(&*panic))),
    };
    if load.tenure.is_lost() {
        // Acknowledgements would reach nobody.
        drop(load.into_inner());
        return Verdict::Ok(Outcome::Done);
    }
    settle(&shared, key.key().key(), load, attempt, verdict).await
}

/// Acknowledges what is done, writes what is given up to the dead letters, and keeps the rest.
async fn settle(
    shared: &Shared,
    key: &str,
    mut load: Lent<Load>,
    attempt: u32,
    verdict: Verdict<String>,
) -> Verdict<String> {
    let (error, delay) = match verdict {
        Verdict::Ok(Outcome::Done) => {
            let load = load.into_inner();
            for message in load.messages.iter() {
                shared.acks.send(&load.tenure, message.reply.clone());
            }
            shared.series.acknowledged(load.messages.len());
            return Verdict::Ok(Outcome::Done);
        }
        Verdict::Ok(outcome) => {
            let outcome = match outcome {
                Outcome::RequeueRateLimited => Outcome::Later(shared.backoff(attempt)),
                other => other,
            };
            if let Outcome::Later(delay) = outcome {
                load.not_before = Instant::now().checked_add(delay);
            }
            return Verdict::Ok(outcome);
        }
        Verdict::RetryAfter(error, delay) => (error, Some(delay)),
        Verdict::GiveUp(error) => (error, None),
        Verdict::Retry(error) => {
            let delay = shared.backoff(attempt);
            (error, Some(delay))
        }
        other => return other,
    };
    let limit = shared.config.max_retries.unwrap_or(u32::MAX);
    let Some(delay) = delay.filter(|_| attempt <= limit) else {
        return match dead_letter::publish(shared, key, &load, attempt, &error).await {
            Ok(()) => {
                let load = load.into_inner();
                for message in load.messages.iter() {
                    shared.acks.terminate(&load.tenure, message.reply.clone());
                }
                shared.series.given_up();
                shared.tell(Event::GivenUp {
                    key: key.to_owned(),
                    error: error.clone(),
                    attempts: attempt,
                });
                Verdict::GiveUp(error)
            }
            Err(failed) => {
                tracing::error!(key, error = %failed, "the dead letter is refused: the key is kept");
                let delay = shared.config.max_backoff;
                load.not_before = Instant::now().checked_add(delay);
                Verdict::RetryAfter(error, delay)
            }
        };
    };
    tracing::debug!(key, attempt, ?delay, error, "the key is retried");
    load.not_before = Instant::now().checked_add(delay);
    Verdict::RetryAfter(error, delay)
}

impl Shared {
    /// The delay before the next try of a key: doubled with each failure.
    fn backoff(&self, attempt: u32) -> Duration {
        let doubled = 1_u32
            .checked_shl(attempt.saturating_sub(1))
            .filter(|factor| *factor > 0);
        self.config
            .backoff
            .saturating_mul(doubled.unwrap_or(u32::MAX))
            .min(self.config.max_backoff)
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with a payload that is no text")
}
