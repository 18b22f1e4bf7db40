//! Workers whose function gets many jobs at a time (W10).
//!
//! # Protocol
//!
//! A worker takes a batch, as [`get_batch`](crate::WorkQueue::get_batch) does, and holds each of its keys until that
//! key is settled. It tries the batch in *parts*, one after the other. The first part is all of it:
//!
//! ```text
//!     of a part, the function returns             and then
//!     a verdict for each job                      each job is settled with its own
//!     a success for all                           each job is settled with that
//!     an error for all; or it panics, or returns  of one job: it is settled with that
//!     verdicts for another number of jobs         of more: the part failed as a whole. Nothing is settled, and it is cut
//!                                                 in two, which are the next parts
//! ```
//!
//! It is cut between the jobs that the function has marked ([`Job::give_up`], [`Job::retry_after`]) and the others, which
//! come first; in halves, if it has marked none, or all. So a bad key is alone in the end, and its own failure is what
//! counts; the others are done. Of n keys, one bad one costs about 2 log2(n) calls more, or two if it is marked; if all are bad,
//! there are 2 n - 1 calls.
//!
//! A part that fails as a whole is no failure of its keys: none is counted, and no hook is called. `tracing` has an event.
//!
//! A future that is cancelled holds the jobs of the part that is being tried, and the parts behind it, each job in a guard that
//! puts it back. They are dropped in that order.
//!
//! # What becomes of a job of a batch
//!
//! | event | a job of a batch |
//! | --- | --- |
//! | it is settled | as a job alone: retry, give-up, dead letter, hooks, receipts, and the key is finished before the next part is tried |
//! | it is dropped, moved elsewhere or leaked | the same as a job alone ([`super::job`]): a value that is elsewhere is taken |
//! | its value is changed, and its part fails as a whole | the next call gets the value as it is |
//! | its value is taken, and its part fails as a whole | fails, or is given up if it is marked so, as a job alone without its value; the first one with the error of the call |
//! | the future is cancelled | the jobs that are not settled yet are added again, in the order of the parts |
//! | an abort, of threads | the thread ends after its batch |
//! | an abort, of tasks | is cancelled |
//! | a shut-down | the batch is tried to its end; a linger ends; retries are refused |
//! | a pause | changes nothing: no other batch begins |
//! | a limit of its group | counts it until it is settled |
//!
//! `tests/workers/batches.rs` and `batch_ends.rs` have a test for each row.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::iter::repeat_with;
use std::mem;
use std::sync::Arc;

use super::each::Rest;
use super::job::Mark;
use super::join::Join;
use super::settle::{Epoch, Said};
use super::stop::StopFlag;
use super::tasks::MOST_TASKS;
use super::trace::{self, Span};
use super::{IntoVerdicts, Job, Key, Loop, Report, Running, Verdict, Workers};
use crate::sync::ThreadParker;
use crate::sync::catch_panic::{catch_panic, catch_panic_async, drop_caught};
use crate::wait::let_others_run;
use crate::{Batch, ConfigError, Item, UpTo};

/// A verdict for each job, or one for all.
type Verdicts<E> = Result<Vec<Verdict<E>>, Verdict<E>>;

/// A worker's function, behind a pointer as that of one job.
type Function<'f, K, V, E> = dyn Fn(Vec<Job<'_, K, V>>) -> Verdicts<E> + 'f;

/// Jobs that the function was called for, and what it has decided about each.
type Part<'q, K, V> = Vec<(Item<'q, K, V>, Mark)>;

/// What is to be tried next.
type Parts<'q, K, V> = Vec<Vec<Item<'q, K, V>>>;

/// The calls of an async hook.
type Reports<'a, 'q, K, V> = Vec<(Item<'q, K, V>, Report<'a>, Span)>;

impl<K, V, E> Workers<'_, K, V, E>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
    E: fmt::Display,
{
    /// Like [`run`](Self::run), with a function that gets up to as many keys at a time as
    /// [`get_batch`](crate::WorkQueue::get_batch) takes, and says for all of them, or for each, what became of it (W10):
    /// see [`IntoVerdicts`].
    ///
    /// If it fails for the batch as a whole, with an error or a panic, it is called again for the halves of it, and so on
    /// until the bad key is alone. That one is then retried, given up, and kept as a [dead letter](Self::dead_letters) as
    /// any other is; the others are done. A function that knows which job is the bad one returns
    /// [`job.give_up(error)`](Job::give_up) or [`job.retry_after(..)`](Job::retry_after) as its error: the next calls are for
    /// the others, and for that one alone. So what a call has done before it fails has to be undone, as a transaction is.
    ///
    /// [`concurrency`](Self::concurrency) is the number of batches at the same time. A failure of a batch as a whole counts
    /// as none of its keys', and calls no hook; `tracing` has an event.
    ///
    /// # Errors
    ///
    /// The same as for [`run`](Self::run).
    ///
    /// ```
    /// use keyqueue::worker::{DeadLetters, Job, Workers};
    /// use keyqueue::{UpTo, WorkQueue, merge};
    /// use std::sync::Mutex;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::builder().merge(merge::latest).build()?;
    /// for row in 0..100 {
    ///     queue.put(row, if row == 7 { "bad" } else { "good" });
    /// }
    /// # queue.shut_down();
    /// let (table, letters) = (Mutex::new(Vec::new()), DeadLetters::new(1000)?);
    /// let insert = |rows: Vec<Job<'_, u32, &str>>| {
    ///     if rows.iter().any(|row| *row.value() == "bad") {
    ///         return Err("a row violates a constraint"); // and the transaction is rolled back
    ///     }
    ///     table.lock().unwrap().extend(rows.iter().map(|row| *row.key()));
    ///     Ok(())
    /// };
    /// let workers = Workers::new(&queue).concurrency(1).max_retries(0).dead_letters(&letters);
    /// workers.run_batches(UpTo::new(50).linger(Duration::from_millis(50)), insert)?;
    /// assert_eq!(table.into_inner().unwrap().len(), 99);
    /// assert_eq!(*letters.list()[0].key, 7);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// ```
    pub fn run_batches<R: IntoVerdicts<Error = E>>(
        self,
        max: impl Into<UpTo>,
        f: impl Fn(Vec<Job<'_, K, V>>) -> R + Sync,
    ) -> Result<(), ConfigError> {
        self.inner.refuse_each()?;
        let max = max.into();
        let f = |jobs: Vec<Job<'_, _, _>>| f(jobs).into_verdicts();
        self.inner
            .run(&|workers, stop| workers.work_batches(max, &f, stop))
    }

    /// Like [`run_batches`](Self::run_batches), but on background threads: returns immediately, with a handle to them.
    ///
    /// # Errors
    ///
    /// The same as for [`run`](Self::run).
    pub fn spawn_batches<R: IntoVerdicts<Error = E>>(
        self,
        max: impl Into<UpTo>,
        f: impl Fn(Vec<Job<'_, K, V>>) -> R + Send + Sync + 'static,
    ) -> Result<Running<K, V>, ConfigError>
    where
        Self: 'static,
    {
        self.inner.refuse_each()?;
        let max = max.into();
        let f = move |jobs: Vec<Job<'_, _, _>>| f(jobs).into_verdicts();
        let work =
            move |workers: &Loop<'_, K, V, E>, stop: &StopFlag| workers.work_batches(max, &f, stop);
        self.inner.spawn(Box::new(work))
    }

    /// Like [`run_batches`](Self::run_batches), for any async executor, as [`run_async`](Self::run_async) is.
    ///
    /// # Errors
    ///
    /// The same as for [`run_async`](Self::run_async).
    ///
    /// # Cancel safety
    ///
    /// As for [`run_async`](Self::run_async): the keys that are not settled yet go back into the queue.
    ///
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue::worker::{Job, Workers};
    /// # use std::cell::RefCell;
    /// # pollster::block_on(async {
    /// let queue = WorkQueue::from_iter(["1", "two", "3"]);
    /// queue.shut_down();
    /// let sent = RefCell::new(Vec::new());
    /// let send = async |jobs: Vec<Job<'static, &str>>| {
    ///     let send = |job: Job<&str>| job.parse().map(|number: u32| sent.borrow_mut().push(number));
    ///     jobs.into_iter().map(send).collect::<Vec<_>>() // what became of each
    /// };
    /// Workers::new(&queue).run_batches_async(100, send).await?;
    /// assert_eq!(sent.into_inner(), [1, 3]);
    /// # Ok::<(), keyqueue::ConfigError>(())
    /// # });
    /// ```
    pub async fn run_batches_async<F, R>(
        self,
        max: impl Into<UpTo>,
        f: F,
    ) -> Result<(), ConfigError>
    where
        F: AsyncFn(Vec<Job<'static, K, V>>) -> R,
        R: IntoVerdicts<Error = E>,
    {
        self.inner.refuse_each()?;
        let max = max.into();
        let count = self.inner.count(MOST_TASKS)?;
        // As in `run_async`.
        let shared = Arc::new((self.inner, f));
        let work = |shared: Arc<(_, F)>| async move {
            let (workers, f): &(Loop<'_, K, V, E>, F) = &shared;
            while let Some(batch) = workers.queue.get_batch_async(max).await {
                workers.work_on_batch(batch, |jobs| call(f, jobs)).await;
            }
            workers.report_dropped_async().await;
        };
        Join::new((0..count).map(|_| work(Arc::clone(&shared)))).await;
        Ok(())
    }
}

impl<'a, K: Key, V: Send + 'static, E: fmt::Display> Loop<'a, K, V, E> {
    /// Runs one thread's loop until the queue is shut down and empty, or `stop` is set.
    fn work_batches(&self, max: UpTo, f: &Function<'_, K, V, E>, stop: &StopFlag) {
        let parker = ThreadParker::current();
        stop.enlist(parker.waker());
        while let Some(batch) = self.queue.get_batch_unless(max, &parker, || stop.is_set()) {
            let began = self.epoch();
            let mut parts = VecDeque::from([batch.into_iter().collect()]);
            while let Some(part) = parts.pop_front() {
                let marked = |item| (item, Mark::default());
                let mut part: Vec<_> = Vec::into_iter(part).map(marked).collect();
                let said = catch_panic(|| self.call_all(f, &mut part));
                // No hook is async.
                let (_, again) = self.settle_part(part, said, began);
                for part in again.into_iter().rev() {
                    parts.push_front(part);
                }
            }
        }
        self.report_dropped().for_each(drop);
    }

    /// Calls a future's function for a batch, and settles its keys. Then lets other tasks run.
    pub(super) async fn work_on_batch<F, R>(
        &self,
        batch: Batch<'_, K, V>,
        f: impl Fn(Vec<Job<'static, K, V>>) -> F,
    ) where
        F: Future<Output = R>,
        R: IntoVerdicts<Error = E>,
    {
        let began = self.epoch();
        // Each job has a lane of its own, because it may outlive the call.
        let lend = |item| self.lend(item, Rest::none(), &Arc::default());
        // If this is cancelled, what is dropped last is put back last.
        let mut parts = VecDeque::from([batch.into_iter().map(lend).collect::<Vec<_>>()]);
        while let Some(mut part) = parts.pop_front() {
            let jobs = part.iter_mut().map(|lent| self.own(lent)).collect();
            let work = async { f(jobs).await.into_verdicts() };
            let said = catch_panic_async(work).await;
            let part = part.into_iter();
            let part = part.map(|lent| {
                let (item, mark, _) = lent.into_item().take_back();
                (item, mark)
            });
            let part = part.collect();
            let (reports, again) = self.settle_part(part, said, began);
            for part in again.into_iter().rev() {
                parts.push_front(part.into_iter().map(lend).collect());
            }
            // In this order: if this is cancelled, each report is dropped before its key is put back.
            let held = |(item, report, span)| (report, lend(item), span);
            let held: Vec<_> = reports.into_iter().map(held).collect();
            for (report, held, span) in held {
                let held = self.report(held, report, &span).await;
                let _ = catch_panic(|| drop(held.into_item()));
            }
            let_others_run().await;
        }
    }

    /// Settles the jobs of a part, or cuts it in two. Returns the calls of an async hook, and the next parts. Never panics.
    fn settle_part<'q>(
        &self,
        mut part: Part<'q, K, V>,
        said: Result<Verdicts<E>, String>,
        began: Epoch,
    ) -> (Reports<'a, 'q, K, V>, Parts<'q, K, V>) {
        let keys = part.len();
        let all = |outcome| repeat_with(move || Ok(Verdict::Ok(outcome))).take(keys);
        // For each job, or of the part as a whole.
        let said: Result<Vec<Said<E>>, Said<E>> = match said {
            Ok(Ok(each)) if each.len() == keys => Ok(each.into_iter().map(Ok).collect()),
            Ok(Ok(each)) => {
                let message = format!("{} verdicts for {keys} jobs", each.len());
                // The drop of an error is user code.
                each.into_iter().for_each(drop_caught);
                Err(Err(message))
            }
            Ok(Err(Verdict::Ok(outcome))) => Ok(all(outcome).collect()),
            Ok(Err(verdict)) => Err(Ok(verdict)),
            Err(message) => Err(Err(message)),
        };
        // Of a job whose value was taken: whether it is given up.
        let (each, again): (Vec<Result<Said<E>, bool>>, _) = match said {
            Ok(each) => (each.into_iter().map(Ok).collect(), Vec::new()),
            Err(whole) if keys == 1 => (vec![Ok(whole)], Vec::new()),
            Err(whole) => {
                trace::batch_failed(keys, &whole);
                let is_taken =
                    |job: &mut (Item<'q, K, V>, Mark)| matches!(job.0.loaded(), Some(None));
                let taken = part.extract_if(.., is_taken).collect();
                let again = cut(mem::replace(&mut part, taken));
                // As of a job alone, a panic is all that counts.
                let gives_up = |mark: &Mark| match &whole {
                    Ok(Verdict::GiveUp(_)) => true,
                    Ok(Verdict::Retry(_)) => mark.gives_up(),
                    Ok(_) | Err(_) => false,
                };
                let each = part.iter().map(|(_, mark)| Err(gives_up(mark)));
                let mut each: Vec<_> = each.collect();
                // The failure is that of the first job that the call has marked, or of the first.
                let first = part.iter().position(|(_, mark)| mark.is_set());
                match each.get_mut(first.unwrap_or(0)) {
                    Some(said) => *said = Ok(whole),
                    // The drop of an error is user code.
                    None => drop_caught(whole),
                }
                (each, again)
            }
        };
        let reports = part.into_iter().zip(each);
        let reports = reports.filter_map(|((mut item, mark), said)| {
            let span = Span::of(self, &item);
            let report = match said {
                Ok(said) => {
                    let said = said.map(|verdict| mark.on(verdict));
                    self.settle((&mut item, &mut Rest::none()), said, &span, began)
                }
                Err(gives_up) => self.settle_taken(&mut item, gives_up, &span, began),
            };
            let Some(report) = report else {
                drop_caught(item);
                return None;
            };
            Some((item, report, span))
        });
        (reports.collect(), again)
    }
}

/// Calls the function; opaque, as its twin for one job.
fn call<K, V, F, R>(f: &F, jobs: Vec<Job<'static, K, V>>) -> impl Future<Output = R>
where
    F: AsyncFn(Vec<Job<'static, K, V>>) -> R,
{
    f(jobs)
}

/// Cuts a part that has failed as a whole in two, or returns one or none if no more jobs are left of it.
fn cut<K, V>(mut part: Part<'_, K, V>) -> Parts<'_, K, V> {
    part.sort_by_key(|(_, mark)| mark.is_set());
    let marked = part.iter().position(|(_, mark)| mark.is_set());
    let at = marked.filter(|at| *at > 0).unwrap_or(part.len() / 2);
    let mut first: Vec<_> = part.into_iter().map(|(item, _)| item).collect();
    let second = first.split_off(at);
    let parts = [first, second].into_iter();
    parts.filter(|part| !part.is_empty()).collect()
}
