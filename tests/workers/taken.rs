//! A value that the function takes out of its job, and then fails: it is not tried again, and leaves nothing behind (W9).

use std::fmt::Display;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::batches::Jobs;
use crate::common::timed::HOUR;
use crate::common::watchdog;
use crate::jobs::{WAYS, Way};
use keyqueue::limiter::ItemExponentialFailure;
use keyqueue::worker::{DeadLetters, Failures, GivenUp, Job, Outcome, Verdict, Workers};
use keyqueue::{Builder, Clock, Ended, LeftReason, Receipt, WorkQueue, merge};

type List = Vec<u32>;
type Lists = WorkQueue<u64, List>;
type ListJob<'j> = Job<'j, u64, List>;
type Log = Arc<Mutex<Vec<String>>>;

/// A queue that backs off for an hour, on a clock that stands still.
fn queue(set: impl FnOnce(Builder<u64, List>) -> Builder<u64, List>) -> Arc<Lists> {
    let (clock, _time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let builder = WorkQueue::builder().rate_limiter(limiter).clock(clock);
    let builder = builder.manual_timers().merge(merge::append);
    Arc::new(set(builder).build().unwrap())
}

fn log(log: &Log, said: impl Display) {
    log.lock().unwrap().push(said.to_string());
}

fn put(queue: &Lists, value: u32) -> Receipt {
    let (entry, receipt) = queue.entry(1).tracked();
    entry.put(vec![value]);
    receipt
}

/// What the function gets.
#[derive(Clone, Copy, Debug)]
enum Gets {
    Key,
    Message,
    Batch,
}

/// Workers that log what fails and what is given up.
fn workers(queue: &Lists, told: &Log) -> Workers<'static, u64, List, &'static str> {
    let (failures, ends) = (Arc::clone(told), Arc::clone(told));
    let workers = Workers::new(queue).on_error(move |_, failed| log(&failures, failed));
    workers.on_give_up(move |key, end: GivenUp<_, List>| {
        log(&ends, format!("{key} {:?}: {end}", end.value));
    })
}

fn run(
    (way, gets): (Way, Gets),
    workers: Workers<'static, u64, List, &'static str>,
    f: impl Fn(&mut ListJob<'_>) -> Verdict<&'static str> + Send + Sync + 'static,
) {
    match gets {
        Gets::Key => way.run(workers, move |mut job: ListJob<'_>| f(&mut job)),
        Gets::Message => way.run(workers.each(9), move |mut job: ListJob<'_>| f(&mut job)),
        Gets::Batch => way.run_batches(workers, move |mut jobs: Jobs<'_, List>| {
            jobs.iter_mut().map(&f).collect::<Vec<_>>()
        }),
    }
}

fn each_way(test: impl Fn(Way, Gets)) {
    let _watchdog = watchdog(60);
    for way in WAYS {
        for gets in [Gets::Key, Gets::Message, Gets::Batch] {
            test(*way, gets);
        }
    }
}

#[test] // W9 W2 S5 X2
fn a_value_that_is_taken_and_fails_delays_nothing_and_counts_for_no_other_one() {
    each_way(|way, gets| {
        for waits in [false, true] {
            let queue = queue(|builder| builder.adds_wait_for_retries(waits));
            let receipts = Arc::new(Mutex::new(vec![put(&queue, 1)]));
            let (told, failures) = (Log::default(), Failures::new(9).unwrap());
            let workers = workers(&queue, &told).max_retries(2).failures(&failures);
            let (adding, put_later) = (Arc::clone(&queue), Arc::clone(&receipts));
            run((way, gets), workers, move |job| {
                if **job == 2 {
                    let left = adding.shut_down();
                    assert_eq!((left.queued, left.delayed), (0, 0), "{way:?} {gets:?}");
                    return Verdict::Ok(Outcome::Done);
                }
                if job.value() == &[1] && job.attempt() == 1 {
                    return Verdict::RetryAfter("no", Duration::ZERO);
                }
                let value = job.take().unwrap()[0];
                // The next one comes while the key is processing.
                match value {
                    1..3 => put_later.lock().unwrap().push(put(&adding, value + 1)),
                    _ => _ = adding.put(2, vec![0]),
                }
                Verdict::Retry("no")
            });
            let failed = [
                "no (attempt 1, the next immediately)",
                "no (attempt 2, given up)",
                "no (attempt 1, given up)",
                "no (attempt 1, given up)",
            ];
            assert_eq!(*told.lock().unwrap(), failed, "{way:?} {gets:?} {waits}");
            assert_eq!((queue.num_requeues(&1), failures.len()), (0, 0));
            let receipts = mem::take(&mut *receipts.lock().unwrap()).into_iter();
            let ends: Vec<_> = receipts.map(Receipt::wait).collect();
            assert_eq!(ends, [Ended::GivenUp; 3], "{way:?} {gets:?}");
        }
    });
}

#[test] // W9 W3 W5 W11 S12
fn a_value_that_is_taken_is_done_if_the_function_succeeds_and_requeues() {
    let outcomes = [
        (Outcome::RequeueAfter(HOUR), Ended::Done),
        (Outcome::Later(HOUR), Ended::GivenUp),
        (Outcome::RequeueRateLimited, Ended::GivenUp),
        (Outcome::HoldGroup(HOUR), Ended::GivenUp),
    ];
    each_way(|way, gets| {
        for ((outcome, end), is_over) in outcomes
            .into_iter()
            .flat_map(|it| [(it, false), (it, true)])
        {
            let queue = queue(|builder| builder);
            let receipt = put(&queue, 1);
            let told = Log::default();
            let adding = Arc::clone(&queue);
            run((way, gets), workers(&queue, &told), move |job| {
                if **job == 1 {
                    assert_eq!(job.take(), Some(vec![1]));
                    adding.put(2, vec![0]);
                }
                if is_over || **job == 2 {
                    adding.shut_down();
                }
                Verdict::Ok(if **job == 1 { outcome } else { Outcome::Done })
            });
            assert_eq!(
                receipt.ended(),
                Some(end),
                "{way:?} {gets:?} {outcome:?} {is_over}"
            );
            assert!(told.lock().unwrap().is_empty());
            // What is done is not refused.
            let refused = usize::from(is_over && end == Ended::GivenUp);
            let left = (queue.shut_down().refused, queue.take_left().len());
            assert_eq!(left, (refused, 0), "{way:?} {gets:?} {outcome:?} {is_over}");
        }
    });
}

#[test] // W11 W9
fn a_message_that_is_taken_is_done_before_a_requeue_of_those_behind_it() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        for (outcome, end) in [
            (Outcome::RequeueAfter(Duration::ZERO), Ended::Done),
            (Outcome::Later(Duration::ZERO), Ended::GivenUp),
        ] {
            let queue = queue(|builder| builder);
            let (entry, receipt) = queue.entry(1).tracked();
            entry.put(vec![1, 2]);
            let (told, ending) = (Log::default(), Arc::clone(&queue));
            run((*way, Gets::Message), workers(&queue, &told), move |job| {
                Verdict::Ok(match job.take().unwrap()[0] {
                    1 => outcome,
                    _ => {
                        ending.shut_down();
                        Outcome::Done
                    }
                })
            });
            assert_eq!(receipt.ended(), Some(end), "{way:?} {outcome:?}");
        }
    }
}

#[test] // W9 S5 S12
fn a_delay_that_comes_while_a_taken_value_fails_is_no_retry_of_it() {
    each_way(|way, gets| {
        let queue = queue(|builder| builder);
        queue.put(1, vec![1]);
        let told = Log::default();
        let adding = Arc::clone(&queue);
        run((way, gets), workers(&queue, &told), move |job| {
            if **job == 2 {
                assert_eq!(adding.shut_down().delayed, 1);
                return Verdict::Ok(Outcome::Done);
            }
            drop(job.take());
            adding.entry(1).after(2 * HOUR).put(vec![2]);
            adding.put(2, vec![0]);
            Verdict::RetryAfter("no", HOUR)
        });
        assert_eq!(*told.lock().unwrap(), ["no (attempt 1, given up)"]);
        let left = queue.take_left();
        let left: Vec<_> = left.iter().map(|it| (&it.value, it.reason)).collect();
        assert_eq!(
            left,
            [(&Some(vec![2]), LeftReason::Delayed)],
            "{way:?} {gets:?}"
        );
    });
}

#[test] // W9 W5 W2
fn a_key_whose_value_is_taken_is_reported_without_it_if_it_is_given_up() {
    each_way(|way, gets| {
        for gives_up in [false, true] {
            let queue = queue(|builder| builder);
            queue.put(1, vec![1]);
            let told = Log::default();
            let workers = workers(&queue, &told).max_retries(u32::from(gives_up));
            let ending = Arc::clone(&queue);
            run((way, gets), workers, move |job| {
                drop(job.take());
                ending.shut_down();
                match gives_up {
                    true => Verdict::GiveUp("no"),
                    false => Verdict::Retry("no"),
                }
            });
            let why = if gives_up {
                ", as the worker decided"
            } else {
                ""
            };
            let report = format!("1 None: no (retries: 0{why})");
            let said = ["no (attempt 1, given up)", &report];
            assert_eq!(*told.lock().unwrap(), said, "{way:?} {gets:?} {gives_up}");
        }
    });
}

#[test] // W9 W10 W7
fn a_job_of_a_batch_that_is_given_up_is_reported_although_all_values_were_taken() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        // As of a job alone, a delay of the retry is no retry that a mark turns into a give-up.
        for (gives_up, is_delayed) in [(0, false), (1, false), (2, false), (2, true)] {
            let queue = queue(|builder| builder);
            (0..4).for_each(|row| _ = queue.put(row, vec![0]));
            queue.shut_down();
            let (told, letters) = (Log::default(), DeadLetters::new(9).unwrap());
            let failures = Arc::clone(&told);
            let workers = Workers::new(&queue).dead_letters(&letters);
            let workers = workers.on_error(move |key, failed| {
                log(&failures, format_args!("{key} {}", failed.failure));
            });
            way.run_batches(workers, move |mut jobs: Jobs<'_, List>| {
                jobs.iter_mut().for_each(|job| drop(job.take()));
                let marked = jobs[1..1 + gives_up].iter_mut();
                let marked = marked.map(|job| job.give_up::<(), _>("a bad row"));
                match marked.last().unwrap_or(Err("no")) {
                    Err(error) if is_delayed => Verdict::RetryAfter(error, HOUR),
                    Err(error) => Verdict::Retry(error),
                    Ok(()) => unreachable!("no job succeeds"),
                }
            });
            let kept: Vec<u64> = letters.list().iter().map(|it| *it.key).collect();
            let given_up = if is_delayed { 0 } else { gives_up };
            assert_eq!(kept, [1, 2][..given_up], "{way:?}");
            let told = mem::take(&mut *told.lock().unwrap());
            let taken =
                "panicked: the value was taken by a call that failed for the batch as a whole";
            let said = |row: usize| match (row, gives_up) {
                (0, 0) => "0 no".to_owned(),
                (1, 1 | 2) => "1 a bad row".to_owned(),
                _ => format!("{row} {taken}"),
            };
            assert_eq!(told, (0..4).map(said).collect::<Vec<_>>(), "{way:?}");
        }
    }
}
