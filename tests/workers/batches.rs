//! Workers whose function gets many jobs at a time (W10): the table in `src/worker/batches.rs`, one test for each row,
//! here and in `batch_ends.rs`.

use std::fmt;
use std::mem;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, mpsc};

use crate::common::timed::{HOUR, built, secs, timed};
use crate::jobs::{WAYS, Way};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, IntoVerdicts, Job, Outcome, Reason, Verdict, Workers};
use keyqueue::{Ended, Receipt, State, WorkQueue, merge};

pub(crate) type Jobs<'j, V = ()> = Vec<Job<'j, u64, V>>;

/// The keys of each call.
pub(crate) type Calls = Arc<Mutex<Vec<Vec<u64>>>>;

impl Way {
    /// Runs one worker until the queue is shut down and empty.
    pub(crate) fn run_batches<V, E, R>(
        self,
        workers: Workers<'static, u64, V, E>,
        f: impl Fn(Jobs<'_, V>) -> R + Send + Sync + 'static,
    ) where
        V: Send + 'static,
        E: fmt::Display + 'static,
        R: IntoVerdicts<Error = E> + Send + 'static,
    {
        let workers = workers.concurrency(1);
        match self {
            Way::Scoped => workers.run_batches(100, f).unwrap(),
            Way::Spawned => workers.spawn_batches(100, f).unwrap().join(),
            Way::Future => {
                let run = workers.run_batches_async(100, async |jobs: Jobs<'static, _>| f(jobs));
                pollster::block_on(run).unwrap();
            }
            Way::Tasks => {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                let f = Arc::new(f);
                let work = move |jobs: Jobs<'static, _>| {
                    let f = Arc::clone(&f);
                    async move { f(jobs) }
                };
                let running = workers.spawn_batches_on(runtime.handle(), 100, work);
                runtime.block_on(running.unwrap().join_async());
            }
        }
    }
}

pub(crate) fn keys<V>(jobs: &Jobs<'_, V>) -> Vec<u64> {
    jobs.iter().map(|job| **job).collect()
}

pub(crate) fn note<V>(calls: &Calls, jobs: &Jobs<'_, V>) -> Vec<u64> {
    calls.lock().unwrap().push(keys(jobs));
    keys(jobs)
}

pub(crate) fn taken(calls: &Calls) -> Vec<Vec<u64>> {
    mem::take(&mut *calls.lock().unwrap())
}

/// A queue of these keys that takes no others, and their receipts.
fn shut_down(keys: impl IntoIterator<Item = u64>) -> (WorkQueue<u64, u64>, Vec<Receipt>) {
    let queue = WorkQueue::builder().merge(merge::latest).build().unwrap();
    let add = |key| {
        let (entry, receipt) = queue.entry(key).tracked();
        entry.put(key);
        receipt
    };
    let receipts = keys.into_iter().map(add).collect();
    queue.shut_down();
    (queue, receipts)
}

#[test] // W10 W2 W3 W5
fn each_job_of_a_batch_is_settled_with_its_own_verdict() {
    for way in WAYS {
        let (queue, _) = timed();
        queue.add_all(0..6);
        let (ends, ended) = mpsc::channel();
        let (fails, failed) = mpsc::channel();
        let workers = Workers::new(&queue)
            .on_error(move |key, error| fails.send((*key, error.next)).unwrap())
            .on_give_up(move |key, given_up| ends.send((*key, given_up.reason)).unwrap());
        let calls = Calls::default();
        let (noted, again, queue) = (Arc::clone(&calls), queue.handle(9), Arc::new(queue));
        let ending = Arc::clone(&queue);
        way.run_batches(workers, move |jobs| {
            if note(&noted, &jobs) == [9] {
                ending.shut_down();
                return vec![Verdict::Ok(Outcome::Done)];
            }
            again.add();
            vec![
                Verdict::Ok(Outcome::Done),
                Verdict::Ok(Outcome::RequeueAfter(HOUR)),
                Verdict::RetryAfter("later", HOUR),
                Verdict::GiveUp("never"),
                jobs[4].give_up("never").into(),
                Verdict::Ok(Outcome::Done),
            ]
        });
        assert_eq!(taken(&calls), [vec![0, 1, 2, 3, 4, 5], vec![9]], "{way:?}");
        let failed: Vec<_> = failed.try_iter().collect();
        assert_eq!(failed, [(2, Some(HOUR)), (3, None), (4, None)]);
        let ended: Vec<_> = ended.try_iter().collect();
        let given_up = Reason::GiveUp;
        assert_eq!(ended, [(3, given_up), (4, given_up), (2, Reason::Dropped)]);
    }
}

/// Runs a batch of 8 keys, of which key 5 is bad, by `f`. Returns the calls.
fn with_a_bad_key<R>(
    way: Way,
    f: impl Fn(&Jobs<'_, u64>) -> R + Send + Sync + 'static,
) -> Vec<Vec<u64>>
where
    R: IntoVerdicts<Error = &'static str> + Send + 'static,
{
    let (queue, receipts) = shut_down(0..8);
    let letters = DeadLetters::new(10).unwrap();
    let (fails, failed) = mpsc::channel();
    let workers = Workers::new(&queue)
        .max_retries(0)
        .dead_letters(&letters)
        .on_error(move |key, failed| fails.send((*key, failed.attempt)).unwrap());
    let calls = Calls::default();
    let noted = Arc::clone(&calls);
    way.run_batches(workers, move |jobs| {
        note(&noted, &jobs);
        f(&jobs)
    });
    let failed: Vec<_> = failed.try_iter().collect();
    assert_eq!(failed, [(5, 1)], "{way:?}: only its own failure is one");
    let letters: Vec<_> = letters.list().iter().map(|letter| *letter.key).collect();
    assert_eq!(letters, [5]);
    let ends = receipts.into_iter().map(Receipt::wait);
    let given_up = |key| {
        if key == 5 {
            Ended::GivenUp
        } else {
            Ended::Done
        }
    };
    assert!(ends.eq((0..8).map(given_up)));
    taken(&calls)
}

/// The calls that find key 5 of 8.
const HALVES: [&[u64]; 7] = [
    &[0, 1, 2, 3, 4, 5, 6, 7],
    &[0, 1, 2, 3],
    &[4, 5, 6, 7],
    &[4, 5],
    &[4],
    &[5],
    &[6, 7],
];

#[test] // W10 X1
fn a_batch_that_fails_is_tried_in_halves_until_the_bad_key_is_alone_and_a_dead_letter() {
    for way in WAYS {
        let fails = |jobs: &Jobs<'_, u64>| match keys(jobs).contains(&5) {
            true => Err("it is bad"),
            false => Ok(()),
        };
        assert_eq!(with_a_bad_key(*way, fails), HALVES);
        let panics = move |jobs: &Jobs<'_, u64>| {
            if fails(jobs).is_err() {
                resume_unwind(Box::new("it is bad"));
            }
            Ok::<_, &str>(())
        };
        assert_eq!(with_a_bad_key(*way, panics), HALVES);
        // Two verdicts too few, or one for no job.
        let miscounts = move |jobs: &Jobs<'_, u64>| match fails(jobs) {
            Ok(()) => vec![Ok(()); jobs.len()],
            Err(_) => vec![Err("it is bad"); jobs.len().saturating_sub(2)],
        };
        assert_eq!(with_a_bad_key(*way, miscounts), HALVES);
        // An error for all, or what became of each.
        let either = move |jobs: &Jobs<'_, u64>| fails(jobs).map(|()| vec![Ok(()); jobs.len()]);
        assert_eq!(with_a_bad_key(*way, either), HALVES);
    }
}

/// An error whose drop panics.
struct Bomb;

impl fmt::Display for Bomb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is bad")
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("the drop of an error"));
    }
}

#[test] // W10
fn verdicts_for_another_number_of_jobs_whose_drop_panics_end_no_worker() {
    for way in WAYS {
        let (queue, receipts) = shut_down(0..4);
        let calls = Calls::default();
        let noted = Arc::clone(&calls);
        way.run_batches(
            Workers::new(&queue),
            move |jobs: Jobs<'_, u64>| match note(&noted, &jobs).len() {
                1 => vec![Ok(())],
                count => (0..=count).map(|_| Err(Bomb)).collect(),
            },
        );
        assert_eq!(taken(&calls).len(), 7, "{way:?}");
        let mut ends = receipts.into_iter().map(Receipt::wait);
        assert!(ends.all(|ended| ended == Ended::Done));
    }
}

#[test] // W10
fn a_batch_that_fails_is_cut_where_the_function_has_marked_a_job() {
    for way in WAYS {
        let fails = |jobs: &Jobs<'_, u64>| match jobs.iter().find(|job| ***job == 5) {
            Some(job) => job.give_up("it is bad"),
            None => Ok(()),
        };
        let calls: [&[u64]; 3] = [&[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 6, 7], &[5]];
        assert_eq!(with_a_bad_key(*way, fails), calls);
    }
}

#[test] // W10 W2
fn keys_that_are_all_bad_are_each_tried_alone_and_counted_once() {
    for way in WAYS {
        for marks in [false, true] {
            let limiter = ItemExponentialFailure::new(secs(1), HOUR).unwrap();
            let (queue, _) = built(|builder| builder.rate_limiter(limiter));
            queue.add_all(0..7);
            let queue = Arc::new(queue);
            let (failed, ending) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&queue));
            let (failures, calls) = (Arc::clone(&failed), Calls::default());
            let workers = Workers::new(&queue).on_error(move |key, failed| {
                let mut failures = failures.lock().unwrap();
                failures.push((*key, failed.attempt, failed.next));
                if failures.len() == 7 {
                    ending.shut_down();
                }
            });
            let noted = Arc::clone(&calls);
            way.run_batches(workers, move |jobs| {
                note(&noted, &jobs);
                let wait = |job: &Job<'_, u64>| job.retry_after::<(), _>((), secs(2));
                let waits = jobs.iter().filter(|_| marks).map(wait);
                _ = waits.count();
                Err::<(), _>("no")
            });
            assert_eq!(taken(&calls).len(), 13, "{way:?}: 2 n - 1");
            let delay = secs(if marks { 2 } else { 1 });
            let each = (0..7).map(|key| (key, 1, Some(delay)));
            assert!(failed.lock().unwrap().iter().copied().eq(each));
        }
    }
}

#[test] // W10 V3
fn what_a_call_that_fails_has_changed_is_there_in_the_next_and_what_it_has_taken_is_not() {
    for way in WAYS {
        let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
        let put = |key| {
            let (entry, receipt) = queue.entry(key).tracked();
            entry.put(vec![key]);
            receipt
        };
        let receipts: Vec<_> = (0..4).map(put).collect();
        queue.shut_down();
        let (values, given) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(Mutex::new(Vec::new())),
        );
        let (seen, failures) = (Arc::clone(&values), Arc::clone(&given));
        let workers = Workers::new(&queue);
        let workers = workers.on_error(move |key, failed| {
            failures.lock().unwrap().push((*key, failed.to_string()));
        });
        way.run_batches(workers, move |mut jobs: Jobs<'_, Vec<u64>>| {
            let all = jobs.iter().map(|job| job.value().clone());
            seen.lock().unwrap().push(all.collect::<Vec<_>>());
            if jobs.len() < 4 {
                return Ok(());
            }
            assert_eq!(jobs[1].take(), Some(vec![1]));
            jobs[2].value_mut().push(7);
            Err("in the middle")
        });
        let [one, three] = [vec![0], vec![3]];
        let all = (0..4).map(|key| vec![key]).collect();
        assert_eq!(
            *values.lock().unwrap(),
            [all, vec![one], vec![vec![2, 7], three]],
            "{way:?}"
        );
        let failure = "in the middle (attempt 1, given up)".to_owned();
        assert_eq!(*given.lock().unwrap(), [(1, failure)]);
        let ends: Vec<_> = receipts.into_iter().map(Receipt::wait).collect();
        assert_eq!(
            ends,
            [Ended::Done, Ended::GivenUp, Ended::Done, Ended::Done]
        );
    }
}

#[test] // W10
fn a_batch_whose_values_are_all_taken_or_all_but_one_is_not_called_for_no_jobs() {
    for way in WAYS {
        for left in [0, 1] {
            let queue = WorkQueue::builder().merge(merge::latest).build().unwrap();
            (0..3).for_each(|key| _ = queue.put(key, key));
            queue.shut_down();
            let calls = Calls::default();
            let noted = Arc::clone(&calls);
            way.run_batches(Workers::new(&queue), move |mut jobs: Jobs<'_, u64>| {
                note(&noted, &jobs);
                jobs.iter_mut().skip(left).for_each(|job| _ = job.take());
                Err::<(), _>("without values")
            });
            let tried: [&[u64]; 2] = [&[0, 1, 2], &[0]];
            assert_eq!(taken(&calls), tried[..=left], "{way:?}");
        }
    }
}

#[test] // W10 S3 G2
fn a_key_is_finished_when_its_part_is_settled_and_uses_its_groups_limit_until_then() {
    for way in WAYS {
        let builder = WorkQueue::builder()
            .group_by(|key: &u64| key % 2)
            .group_limit(2);
        let queue = Arc::new(builder.build().unwrap());
        // Keys 4 and 5 find their groups full.
        queue.add_all(0..6);
        let (calls, states) = (Calls::default(), Arc::new(Mutex::new(Vec::new())));
        let (noted, seen, looked) = (Arc::clone(&calls), Arc::clone(&states), Arc::clone(&queue));
        way.run_batches(Workers::new(&queue), move |jobs| {
            let keys = note(&noted, &jobs);
            let states = (0..6).map(|key| looked.state(&key)).collect::<Vec<_>>();
            seen.lock()
                .unwrap()
                .push((keys.clone(), states, looked.try_get().is_ok()));
            looked.shut_down();
            if keys.len() == 4 {
                Err("in halves")
            } else {
                Ok(())
            }
        });
        let (idle, held, queued) = (None, Some(State::Processing), Some(State::Queued));
        let seen = states.lock().unwrap();
        let all = vec![held, held, held, held, queued, queued];
        assert_eq!(seen[0], (vec![0, 1, 2, 3], all, false), "{way:?}");
        let first = vec![held, held, held, held, queued, queued];
        assert_eq!(seen[1], (vec![0, 1], first, false));
        // One of the others has been taken by the look before, and is done.
        let second = vec![idle, idle, held, held, queued, queued];
        assert_eq!(seen[2], (vec![2, 3], second, true));
    }
}
