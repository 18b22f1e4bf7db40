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

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select, select_all};
use keyqueue::worker::{IntoVerdicts, Job, Outcome, Verdict};

use super::{Next, Said, Waits, bury, message, settle, texts};
use crate::Record;
use crate::key::{Backlog, Key};
use crate::record::Inner;
use crate::shared::Shared;
use crate::tenure::Tenure;

/// A record, and the index of the job that it is of.
type One = (usize, Arc<Inner>);

/// What a handler said of a part.
enum Of {
    Each(Vec<Verdict<String>>),
    All(Said),
}

/// Handles records of many keys, up to `max` of them, and returns what becomes of each key.
pub(crate) async fn work<F, R>(
    shared: &Shared,
    f: &F,
    max: usize,
    mut jobs: Vec<Job<'static, Key, Backlog>>,
) -> Vec<Verdict<Waits>>
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
    let verdict = |(index, job): (usize, Job<'static, Key, Backlog>)| match waits.get(&index) {
        Some(delay) => Next::After(*delay).into(),
        None if job.value().front().is_some() => Verdict::Ok(Outcome::Later(Duration::ZERO)),
        None => Next::Gone.into(),
    };
    jobs.into_iter().enumerate().map(verdict).collect()
}

/// Takes from each key what can be tried now, in order, up to a fair part of `max`.
async fn take(
    shared: &Shared,
    max: usize,
    jobs: &mut [Job<'static, Key, Backlog>],
    waits: &mut BTreeMap<usize, Duration>,
) -> Vec<One> {
    let each = (max / jobs.len().max(1)).max(1);
    let mut part = Vec::new();
    for (index, job) in jobs.iter_mut().enumerate() {
        // One that is dead has only its letter left.
        while let Some(front) = job.value().front().cloned()
            && let Some(trouble) = front.trouble().filter(|trouble| trouble.is_dead)
            && let Some(_running) = front.tenure.enter()
        {
            match bury(shared, &front, trouble).await {
                Next::Gone => remove(job, &front),
                Next::After(delay) => {
                    waits.insert(index, delay);
                    break;
                }
            }
        }
        if !waits.contains_key(&index) {
            part.extend(
                job.value()
                    .iter()
                    .take(each)
                    .map(|record| (index, Arc::clone(record))),
            );
        }
    }
    part
}

/// Tries a part, settles its records, or adds the parts that are to be tried next.
async fn try_part<F, R>(
    shared: &Shared,
    f: &F,
    mut part: Vec<One>,
    parts: &mut Vec<Vec<One>>,
    jobs: &mut [Job<'static, Key, Backlog>],
    waits: &mut BTreeMap<usize, Duration>,
) where
    F: Fn(Vec<Record>) -> R,
    R: Future<Output: IntoVerdicts>,
{
    // Those of a key that waits stay behind it. Those whose tenure has ended are gone.
    let tenures: Vec<_> = part
        .iter()
        .map(|(_, record)| Arc::clone(&record.tenure))
        .collect();
    let (mut running, mut of_part) = (Vec::new(), tenures.iter());
    part.retain(|(index, record)| {
        let tenure = of_part.next();
        if waits.contains_key(index) {
            return false;
        }
        let entered = tenure.and_then(|tenure| tenure.enter());
        if entered.is_none() {
            remove(&mut jobs[*index], record);
        }
        let is_in = entered.is_some();
        running.extend(entered);
        is_in
    });
    if part.is_empty() {
        return;
    }
    let each = match call(f, &part).await {
        Of::All(Said::Verdict(Verdict::Ok(outcome))) => vec![Verdict::Ok(outcome); part.len()],
        Of::Each(each) => each,
        // By the tenure that was cancelled: what is left of the others is tried again.
        Of::All(Said::Cancelled) => {
            drop(running);
            for (index, record) in &part {
                if record.tenure.is_revoked() {
                    shared.counts.cancelled.add(1);
                    remove(&mut jobs[*index], record);
                }
            }
            part.retain(|(_, record)| !record.tenure.is_revoked());
            parts.push(part);
            return;
        }
        Of::All(said) if part.len() == 1 => {
            let (index, record) = &part[0];
            let next = settle(shared, record, record.trouble(), said).await;
            note(next, *index, record, jobs, waits);
            return;
        }
        Of::All(_) => {
            tracing::debug!(target: "keyqueue_kafka", records = part.len(), "a batch failed as a whole");
            let second = part.split_off(part.len() / 2);
            parts.extend([second, part.clone()]);
            return;
        }
    };
    for ((index, record), verdict) in part.iter().zip(each) {
        if !waits.contains_key(index) {
            let next = settle(shared, record, record.trouble(), Said::Verdict(verdict)).await;
            note(next, *index, record, jobs, waits);
        }
    }
}

fn note(
    next: Next,
    index: usize,
    record: &Arc<Inner>,
    jobs: &mut [Job<'static, Key, Backlog>],
    waits: &mut BTreeMap<usize, Duration>,
) {
    match next {
        Next::Gone => remove(&mut jobs[index], record),
        Next::After(delay) => _ = waits.insert(index, delay),
    }
}

fn remove(job: &mut Job<'static, Key, Backlog>, record: &Arc<Inner>) {
    job.value_mut().retain(|other| !Arc::ptr_eq(other, record));
}

/// Calls the handler, until it is ready, panics, or one of the tenures is cancelled.
async fn call<F, R>(f: &F, part: &[One]) -> Of
where
    F: Fn(Vec<Record>) -> R,
    R: Future<Output: IntoVerdicts>,
{
    let record = |(_, inner): &One| {
        let attempt = 1 + inner.trouble().map_or(0, |trouble| trouble.attempts);
        let inner = Arc::clone(inner);
        Record { inner, attempt }
    };
    let records: Vec<_> = part.iter().map(record).collect();
    let count = records.len();
    let said = async {
        match f(records).await.into_verdicts() {
            Ok(each) if each.len() == count => Of::Each(each.into_iter().map(texts).collect()),
            Ok(each) => Of::All(Said::Panic(format!(
                "{} verdicts for {count} records",
                each.len()
            ))),
            Err(verdict) => Of::All(Said::Verdict(texts(verdict))),
        }
    };
    let said = Box::pin(AssertUnwindSafe(said).catch_unwind());
    let mut tenures: Vec<&Arc<Tenure>> = part.iter().map(|(_, record)| &record.tenure).collect();
    tenures.sort_unstable_by_key(|tenure| Arc::as_ptr(tenure));
    tenures.dedup_by_key(|tenure| Arc::as_ptr(tenure));
    let cancelled = tenures
        .into_iter()
        .map(|tenure| Box::pin(tenure.cancelled()));
    match select(said, select_all(cancelled)).await {
        Either::Left((Ok(of), _)) => of,
        Either::Left((Err(payload), _)) => {
            let message = |payload: Box<dyn Any + Send>| message(&*payload);
            Of::All(Said::Panic(message(payload)))
        }
        Either::Right(_) => Of::All(Said::Cancelled),
    }
}
