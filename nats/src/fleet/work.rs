//! Works on one key: waits for the lease, calls the handler, and does what its verdict asks for.
//!
//! ```text
//!     in time?        a later message has cut a wait short: the key waits on
//!     owned?          otherwise the next owner delivers it
//!     older?          messages that are handled (marks) are acknowledged again
//!     failing?        it comes behind the keys that have not failed
//!     suspect?        it may have killed the former owners: it waits for other such keys
//!     parked?         payloads that were dropped while the key was in back-off are read from the stream
//!     lease, permit
//!     given up?       only the dead letter is left to store
//!     suspect?        that is written down before it begins (attempts); then again: lease, permit
//!     handler
//! ```

use std::any::Any;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use keyqueue::worker::{IntoVerdict, Outcome, Verdict};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::acks::Acks;
use super::attempts::{self, DIED, FAILED};
use super::delivery::Delivery;
use super::handled::{drop_older, remove};
use super::load::{GivenUp, Load};
use super::pull::BATCH;
use super::tenure::Tenure;
use crate::{Event, dead_letter, key as token};

/// Between two tries of what only the server can do.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks of a suspect whether another one is delivered.
const ALONE: Duration = Duration::from_millis(200);

/// The levels of the queue: a key that has failed since it last succeeded, or is given up, comes behind those that have not, so that a crowd of failing
/// keys whose time has come, or which another owner has left, does not keep the others waiting (N8).
pub(super) const HEALTHY: usize = 0;
pub(super) const FAILING: usize = 1;
pub(super) const LEVELS: usize = 2;

/// A key and its messages, as a worker has them.
pub(super) type Job = keyqueue::worker::Job<'static, String, Load>;

/// The function of the workers. Its verdict is the queue's: a key that is retried keeps its messages.
pub(super) async fn work<F, R>(
    shared: Arc<Shared>,
    handler: Arc<F>,
    mut job: Job,
) -> Verdict<String>
where
    F: Fn(Delivery) -> R,
    R: Future<Output: IntoVerdict>,
{
    if let Some(left) = job
        .value()
        .not_before
        .and_then(|at| at.checked_duration_since(Instant::now()))
        && !left.is_zero()
    {
        // A later message, or a copy, has cut the wait short. The handler has asked for the wait.
        job.value_mut().park();
        return Verdict::Ok(Outcome::Later(left));
    }
    let key = job.handle();
    let name = key.key();
    let token = token::encode(name).expect("it was decoded");
    let tenure = Arc::clone(&job.value().tenure);
    if tenure.is_lost() {
        return skip(&shared);
    }
    drop_older(&shared, name, &mut job);
    let suspect = job.value().suspect;
    let counts = tenure.attempts.of(&shared, tenure.fence, &token);
    let [failures, deaths] = match counts.await {
        Ok(counts) => counts,
        Err(error) => {
            tenure.cannot_read(name, "its failures", &error);
            return Verdict::Ok(Outcome::Later(PAUSE));
        }
    };
    let suspect = suspect || deaths > 0;
    let is_failing = failures > 0 || job.value().given_up.is_some();
    let level = if is_failing { FAILING } else { HEALTHY };
    // What comes from now on has this level: it is moved once.
    if job.level() != level {
        let mut load = job.take().expect("nothing has taken it");
        load.moved = true;
        load.park();
        shared.queue.entry_ref(name).level(level).put(load);
        return Verdict::Ok(Outcome::Done);
    }
    let Ok(few) = attempts::take(&shared.suspects, deaths) else {
        // Healthy keys need the task.
        job.value_mut().park();
        return Verdict::Ok(Outcome::Later(ALONE));
    };
    let ready = match fetch(&shared, &mut job).await {
        Ok(ready) => ready,
        Err(error) => {
            tenure.cannot_read(name, "a message", &error);
            return Verdict::Ok(Outcome::Later(PAUSE));
        }
    };
    if ready == 0 {
        return Verdict::Ok(Outcome::Done);
    }
    let ready = job.value_mut().given_up_of(ready);
    let Some(mut running) = may_begin(&shared, &tenure).await else {
        return skip(&shared);
    };
    if let Some(given_up) = job.value().given_up.clone() {
        return give_up(&shared, name, &token, job, ready, given_up).await;
    }
    let attempt = failures.saturating_add(deaths).saturating_add(1);
    let attempts = &tenure.attempts;
    if suspect {
        if attempts::is_guilty(deaths, &shared.config) {
            let error = format!("the process has ended each time: {deaths} times");
            let given_up = GivenUp::new(error, failures + deaths, job.value(), ready);
            return give_up(&shared, name, &token, job, ready, given_up).await;
        }
        attempts.begin(&shared, tenure.fence, &token, deaths).await;
        // The lease may have run out while the server did not reply, or the tenure have ended. A hand-over waits for the first permit, so
        // that what the key is left with is handed on.
        let again = tokio::select! {
            again = may_begin(&shared, &tenure) => again,
            () = tenure.lost() => None,
        };
        let Some(again) = again else {
            if !tenure.is_lost() {
                let withdraw = attempts.withdraw(&shared, tenure.fence, &token, deaths);
                withdraw.await;
            }
            return skip(&shared);
        };
        running = again;
    }
    // Until the key is settled.
    let _running = running;
    let delivery = Delivery {
        key: key.clone(),
        tenure: Arc::clone(&tenure),
        // Without their room, which a handler that keeps them would keep, too.
        messages: job.value().messages[..ready].to_vec(),
        covered: job.value().covered - (job.value().messages.len() - ready),
        lease: Arc::clone(&shared.lease),
        attempt,
    };
    let work = async {
        let work = async {
            // An error's `Display` may panic, too.
            match handler(delivery).await.into_verdict() {
                Verdict::Ok(outcome) => Verdict::Ok(outcome),
                Verdict::Retry(error) => Verdict::Retry(error.to_string()),
                Verdict::RetryAfter(error, delay) => Verdict::RetryAfter(error.to_string(), delay),
                Verdict::GiveUp(error) => Verdict::GiveUp(error.to_string()),
                _ => Verdict::Retry("a verdict that this version does not know".to_owned()),
            }
        };
        let verdict = AssertUnwindSafe(work).catch_unwind().await;
        verdict.unwrap_or_else(|panic| Verdict::Retry(format!("panicked: {}", message_of(&*panic))))
    };
    let mut few = Some(few);
    // Other suspects do not wait for a handler that hangs, or whose partition is lost.
    let yields = async {
        if deaths > 0 {
            let _ = timeout(shared.config.lease, tenure.lost()).await;
            few = None;
        }
        pending().await
    };
    let verdict = tokio::select! {
        verdict = work => Some(verdict),
        // The partition is handed over without it.
        () = tenure.cancelled() => None,
        never = yields => never,
    };
    // If it is lost, the count may be that of the next owner.
    if suspect && !tenure.is_lost() {
        attempts.end(&shared, tenure.fence, &token).await;
    }
    let Some(verdict) = verdict else {
        return skip(&shared);
    };
    if tenure.is_lost() {
        // Acknowledgements would reach nobody.
        return Verdict::Ok(Outcome::Done);
    }
    job.value_mut().suspect = false;
    let attempt = failures.saturating_add(1);
    settle(&shared, name, &token, job, ready, attempt, verdict).await
}

/// Waits until a delivery may begin. `None`: the tenure has ended.
///
/// What waits after this has to call it again before the handler.
async fn may_begin(shared: &Shared, tenure: &Tenure) -> Option<OwnedSemaphorePermit> {
    loop {
        shared.lease.held().await;
        // The permit is taken last, so a hand-over does not wait for keys that wait for the lease.
        let permit = tenure.begin();
        if permit.is_none() || shared.lease.holds() {
            return permit;
        }
    }
}

/// The partition is not ours any more. Its next owner delivers the messages.
fn skip(shared: &Shared) -> Verdict<String> {
    shared.series.skipped.increment(1);
    Verdict::Ok(Outcome::Done)
}

/// Reads the payloads of messages that have none, as many as may come at once, and returns how many of the messages have theirs: the first
/// ones. A message that is not in the stream any more is dropped: a later one has replaced it.
async fn fetch(shared: &Shared, job: &mut Job) -> Result<usize, async_nats::Error> {
    let tenure = Arc::clone(&job.value().tenure);
    let window = usize::try_from(shared.config.window).unwrap_or(usize::MAX);
    let (many, most) = (BATCH.min(window / 2).max(1), shared.client.max_payload());
    let (mut ready, mut read, mut bytes) = (0, 0, 0);
    while let Some(message) = job.value_mut().messages.get_mut(ready) {
        if message.held.is_parked() {
            if read >= many || bytes >= most {
                break;
            }
            let Some(size) = message.fetch(shared, &tenure).await? else {
                job.value_mut().messages.remove(ready);
                continue;
            };
            (read, bytes) = (read + 1, bytes + size);
        }
        ready += 1;
    }
    Ok(ready)
}

/// Acknowledges what is done, gives up what is to be given up, and keeps the rest. `ready`: how many of the messages the handler got, the
/// first ones.
async fn settle(
    shared: &Shared,
    key: &str,
    token: &str,
    mut job: Job,
    ready: usize,
    attempt: u32,
    verdict: Verdict<String>,
) -> Verdict<String> {
    let tenure = Arc::clone(&job.value().tenure);
    let (error, delay) = match verdict {
        Verdict::Ok(Outcome::Done) => {
            shared.mark(key, job.value(), ready);
            let counts = &tenure.attempts;
            tokio::join!(
                remove(shared, key, job.value(), ready, Acks::send),
                // At once: later the partition may be another owner's.
                counts.forget(shared, tenure.fence, token, FAILED),
            );
            shared.series.acknowledged.increment(ready as u64);
            return Verdict::Ok(rest(job, ready));
        }
        Verdict::Ok(Outcome::RequeueAfter(delay)) => {
            let counts = &tenure.attempts;
            counts.forget(shared, tenure.fence, token, FAILED).await;
            // A copy of a message, which a new consumer sends, is not a new one.
            job.value_mut().wait(delay, true);
            return Verdict::Ok(Outcome::RequeueAfter(delay));
        }
        // The keys of a fleet have no groups.
        Verdict::Ok(Outcome::Later(delay) | Outcome::HoldGroup(delay)) => {
            job.value_mut().wait(delay, false);
            return Verdict::Ok(Outcome::Later(delay));
        }
        Verdict::Ok(Outcome::RequeueRateLimited) => {
            let delay = shared.backoff(attempt);
            job.value_mut().wait(delay, false);
            return Verdict::Ok(Outcome::Later(delay));
        }
        Verdict::Retry(error) => (error, Some(shared.backoff(attempt))),
        Verdict::RetryAfter(error, delay) => (error, Some(delay)),
        Verdict::GiveUp(error) => (error, None),
        other => return other,
    };
    let limit = shared.config.max_retries.unwrap_or(u32::MAX);
    let Some(delay) = delay.filter(|_| attempt <= limit) else {
        let given_up = GivenUp::new(error, attempt, job.value(), ready);
        return give_up(shared, key, token, job, ready, given_up).await;
    };
    let attempts = &tenure.attempts;
    let count = attempts.count(shared, tenure.fence, token, FAILED, delay);
    count.await;
    tracing::warn!(key, attempt, ?delay, error, "the key is retried");
    job.value_mut().wait(delay, false);
    Verdict::RetryAfter(error, delay)
}

/// What follows when the first messages are handled: the key is done, or its other messages are delivered.
fn rest(mut job: Job, handled: usize) -> Outcome {
    if handled == job.value().messages.len() {
        return Outcome::Done;
    }
    job.value_mut().drop_first(handled);
    job.value_mut().not_before = None;
    Outcome::RequeueAfter(Duration::ZERO)
}

/// Writes the first messages to the dead letters, and removes those that are stored there. Until that has succeeded for all the key is kept,
/// without other tries.
async fn give_up(
    shared: &Shared,
    key: &str,
    token: &str,
    mut job: Job,
    ready: usize,
    given_up: GivenUp,
) -> Verdict<String> {
    let (error, attempts) = (given_up.error.clone(), given_up.attempts);
    let fence = job.value().tenure.fence;
    let letters = &job.value().messages[..ready];
    let mut stored = 0;
    let publish = async {
        // Without the lease the key may be another owner's.
        shared.lease.held().await;
        dead_letter::publish(shared, fence, token, letters, attempts, &error, &mut stored).await
    };
    let published = tokio::select! {
        biased;
        // The counts are the next owner's, which gives the key up or not.
        () = job.value().tenure.lost() => return skip(shared),
        published = publish => published,
    };
    shared.mark(key, job.value(), stored);
    remove(shared, key, job.value(), stored, Acks::terminate).await;
    if let Err(failed) = published {
        // Their letters would be stored again when the server knows their ids no more.
        job.value_mut().drop_first(stored);
        if stored > 0 {
            shared.tell(Event::GivenUp {
                key: key.to_owned(),
                error,
                attempts,
            });
        }
        if job.value().given_up.is_none() {
            shared.tell(Event::DeadLetterRefused {
                key: key.to_owned(),
                reason: failed.to_string(),
            });
            job.value_mut().given_up = Some(given_up);
        }
        let counts = &job.value().tenure.attempts;
        // The key comes behind healthy ones, with the next owner as well.
        if !counts.is_failing(token) {
            counts.count(shared, fence, token, FAILED, PAUSE).await;
        }
        job.value_mut().park();
        return Verdict::Ok(Outcome::Later(PAUSE));
    }
    // First, because the run may end while the server is asked to forget the counts.
    shared.tell_caught(Event::GivenUp {
        key: key.to_owned(),
        error: error.clone(),
        attempts,
    });
    let counts = &job.value().tenure.attempts;
    tokio::join!(
        counts.forget(shared, fence, token, FAILED),
        counts.forget(shared, fence, token, DIED),
    );
    match rest(job, ready) {
        Outcome::Done => Verdict::GiveUp(error),
        more => Verdict::Ok(more),
    }
}

impl Shared {
    /// The delay before the next try of a key: doubled with each failure.
    fn backoff(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let delay = self.config.backoff.saturating_mul(doubled);
        delay.min(self.config.max_backoff)
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with a payload that is no text")
}
