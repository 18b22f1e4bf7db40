//! Workers whose handler gets many records at a time.
//!
//! A delivery is a batch of keys with their backlogs. From these a worker takes records, those of a key in order, and tries them in
//! parts, the first of which is all of them:
//!
//! ```text
//!     of a part, the handler returns              and then
//!     a verdict for each record                   each is settled with its own; the records of a key behind one that is not finished stay
//!     a success for all                           each is settled with that
//!     an error for all; or it panics, or returns  of one record: it is settled with that
//!     verdicts for another number of records      of more: the part failed as a whole, and is cut in two
//!     nothing, because a tenure is cancelled      those of that tenure are discarded, and the part is tried again without them
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use keyqueue::worker::{IntoVerdicts, Outcome, Verdict};

use super::{Broken, Next, bury, settle, texts, watched};
use crate::key::Job;
use crate::record::Inner;
use crate::shared::Shared;
use crate::tenure::{Running, Tenure};
use crate::{Record, caught};

/// A record, and the index of the job that it is of.
type One = (usize, Arc<Inner>);

/// Handles records of many keys, up to `max` of them, and returns what becomes of each key.
pub(crate) async fn work<F, R>(
    shared: &Arc<Shared>,
    f: &F,
    max: usize,
    mut jobs: Vec<Job>,
) -> Vec<Verdict<&'static str>>
where
    F: Fn(Vec<Record>) -> R,
    R: Future<Output: IntoVerdicts>,
{
    // Of each key the time after which it is tried again.
    let mut waits = BTreeMap::new();
    let mut parts = vec![take(shared, max, &mut jobs, &mut waits).await];
    while let Some(part) = parts.pop() {
        try_part(shared, f, part, &mut parts, &mut jobs, &mut waits).await;
    }
    let verdict = |(index, mut job): (usize, Job)| {
        let first = job.value().first().cloned();
        // What is not held any more would hold up what its key has read since. It is in front of that.
        let old = job.value().iter();
        let old = old.take_while(|record| record.tenure.is_revoked()).count();
        job.value_mut().drain(..old);
        let is_first = |left| first.is_some_and(|first| Arc::ptr_eq(&first, left));
        match (job.value().first(), waits.get(&index)) {
            (None, _) => Next::Gone.into(),
            (Some(left), Some(delay)) if is_first(left) => Next::After(*delay).into(),
            _ => Verdict::Ok(Outcome::Later(Duration::ZERO)),
        }
    };
    jobs.into_iter().enumerate().map(verdict).collect()
}

/// Takes from each key what can be tried now, in order, up to a fair part of `max`.
async fn take(
    shared: &Arc<Shared>,
    max: usize,
    jobs: &mut [Job],
    waits: &mut BTreeMap<usize, Duration>,
) -> Vec<One> {
    let each = (max / jobs.len().max(1)).max(1);
    let mut part = Vec::new();
    let dead = jobs.iter_mut().map(|job| bury_dead(shared, job));
    let delays = join_all(dead).await;
    for (index, (job, delay)) in jobs.iter().zip(delays).enumerate() {
        match delay {
            Some(delay) => _ = waits.insert(index, delay),
            None => {
                let first = job.value().iter().take(each);
                part.extend(first.map(|record| (index, Arc::clone(record))));
            }
        }
    }
    part
}

/// Ends the first records of a key that have only their letters left, and returns after which time that is tried again.
async fn bury_dead(shared: &Arc<Shared>, job: &mut Job) -> Option<Duration> {
    while let Some(front) = job.value().first().cloned()
        && front.trouble().is_some_and(|trouble| trouble.is_dead)
        && let Some(_running) = front.tenure.enter().await
    {
        match bury(shared, &front).await {
            Next::Gone => _ = job.value_mut().remove(0),
            Next::After(delay) => return Some(delay),
        }
    }
    None
}

/// Tries a part, settles its records, or adds the parts that are to be tried next.
async fn try_part<F, R>(
    shared: &Arc<Shared>,
    f: &F,
    mut part: Vec<One>,
    parts: &mut Vec<Vec<One>>,
    jobs: &mut [Job],
    waits: &mut BTreeMap<usize, Duration>,
) where
    F: Fn(Vec<Record>) -> R,
    R: Future<Output: IntoVerdicts>,
{
    // Before one of them has entered: a revocation waits for those that have.
    for (_, record) in &part {
        record.tenure.wait().await;
    }
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    // Those of a key that waits stay behind it. Those whose tenure has ended are gone.
    part.retain(|(index, record)| {
        if waits.contains_key(index) {
            return false;
        }
        let entered = Running::enter(Arc::clone(&record.tenure));
        if entered.is_none() {
            ended.push((*index, Arc::clone(record)));
        }
        let is_in = entered.is_some();
        running.extend(entered);
        is_in
    });
    remove(jobs, &ended);
    if part.is_empty() {
        return;
    }
    let of_all = match call(f, &part).await {
        Ok(Ok(each)) if each.len() == part.len() => Ok(each),
        Ok(Ok(each)) => {
            let (few, count) = (each.len(), part.len());
            let message = format!("{few} verdicts for {count} records");
            Err(Err(Broken::Panic(message)))
        }
        Ok(Err(Verdict::Ok(outcome))) => Ok(vec![Verdict::Ok(outcome); part.len()]),
        Ok(Err(verdict)) => Err(Ok(verdict)),
        // By the tenure that was cancelled: what is left of the others is tried again.
        Err(Broken::Cancelled) => {
            drop(running);
            let (cancelled, left): (Vec<_>, _) = part
                .into_iter()
                .partition(|(_, record)| record.tenure.is_revoked());
            shared.counts.cancelled.add(cancelled.len() as u64);
            remove(jobs, &cancelled);
            parts.push(left);
            return;
        }
        Err(panic) => Err(Err(panic)),
    };
    let each = match of_all {
        Ok(each) => each.into_iter().map(Ok).collect(),
        Err(said) if part.len() == 1 => vec![said],
        Err(_) => {
            _ = caught(|| {
                tracing::debug!(target: "keyqueue_kafka", records = part.len(), "a batch failed as a whole");
            });
            let second = part.split_off(part.len() / 2);
            parts.extend([second, part.clone()]);
            return;
        }
    };
    let mut keys = BTreeMap::<_, Vec<_>>::new();
    for ((index, record), said) in part.into_iter().zip(each) {
        keys.entry(index).or_default().push((record, said));
    }
    // Letters take a round trip each, so those of different keys are written at the same time.
    let settled = keys.into_iter().map(|(index, records)| async move {
        let mut gone = Vec::new();
        for (record, said) in records {
            match settle(shared, &record, said).await {
                // Its partition is given back, and its letter is not written: those behind it are left with it.
                Next::Gone if record.tenure.holds(&record) => break,
                Next::Gone => gone.push((index, record)),
                Next::After(delay) => return (index, gone, Some(delay)),
            }
        }
        (index, gone, None)
    });
    for (index, gone, delay) in join_all(settled).await {
        remove(jobs, &gone);
        waits.extend(delay.map(|delay| (index, delay)));
    }
}

/// Removes records from their jobs. They are in the order of a part, as they are in the jobs: each job is gone through once, because the
/// backlog of a key may be all that is in memory.
fn remove(jobs: &mut [Job], gone: &[One]) {
    for of_key in gone.chunk_by(|one, next| one.0 == next.0) {
        let mut gone = of_key.iter().map(|(_, record)| record).peekable();
        let backlog = jobs[of_key[0].0].value_mut();
        backlog.retain(|record| gone.next_if(|gone| Arc::ptr_eq(gone, record)).is_none());
    }
}

/// What a handler has said of a part: a verdict for each, or one for all.
type Said = Result<Vec<Verdict<String>>, Verdict<String>>;

/// Calls the handler, until it is ready, panics, or one of the tenures is cancelled.
async fn call<F, R>(f: &F, part: &[One]) -> Result<Said, Broken>
where
    F: Fn(Vec<Record>) -> R,
    R: Future<Output: IntoVerdicts>,
{
    let record = |(_, inner): &One| {
        let attempt = 1 + inner.trouble().map_or(0, |trouble| trouble.attempts);
        let inner = Arc::clone(inner);
        Record { inner, attempt }
    };
    let records = part.iter().map(record).collect();
    let call = async {
        match f(records).await.into_verdicts() {
            Ok(each) => Ok(each.into_iter().map(texts).collect()),
            Err(verdict) => Err(texts(verdict)),
        }
    };
    let mut tenures: Vec<&Arc<Tenure>> = part.iter().map(|(_, record)| &record.tenure).collect();
    tenures.sort_unstable_by_key(|tenure| Arc::as_ptr(tenure));
    tenures.dedup_by_key(|tenure| Arc::as_ptr(tenure));
    let cancelled = tenures
        .into_iter()
        .map(|tenure| Box::pin(tenure.cancelled()));
    // Ordering: Relaxed; a mark to show.
    let mark = |runs| {
        part.iter()
            .for_each(|(_, record)| record.running.store(runs, Ordering::Relaxed));
    };
    mark(true);
    let said = watched(select_all(cancelled), call).await;
    mark(false);
    said
}
