//! Workers that try the messages of a key one by one (W11): the table in `src/worker/each.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::mem;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::timed::{HOUR, ms, secs};
use crate::common::{poll, poll_until_idle, scaled, watchdog};
use crate::jobs::{WAYS, Way};
use keyqueue::limiter::{ItemExponentialFailure, ItemFastSlow, RateLimiter};
use keyqueue::worker::{DeadLetters, GivenUp, IntoVerdict, Job, Outcome, Turn, Verdict, Workers};
use keyqueue::{
    Added, Builder, Clock, Ended, LeftReason, MockClock, Receipt, State, UpTo, WorkQueue, merge,
};

type List = Vec<u32>;
type Lists = WorkQueue<u64, List>;
type ListJob<'j> = Job<'j, u64, List>;

/// What has happened, in order: tries of a message, and the messages of each report.
type Log = Arc<Mutex<Vec<String>>>;

fn lists(set: impl FnOnce(Builder<u64, List>) -> Builder<u64, List>) -> (Arc<Lists>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).manual_timers();
    let queue = set(builder.merge(merge::append)).build().unwrap();
    (Arc::new(queue), time)
}

/// A queue of these messages of key 1.
fn list(messages: &[u32]) -> Arc<Lists> {
    let (queue, _) = lists(|builder| builder);
    queue.put(1, messages.to_vec());
    queue
}

fn log(log: &Log, said: impl Into<String>) {
    log.lock().unwrap().push(said.into());
}

fn taken(log: &Log) -> Vec<String> {
    mem::take(&mut *log.lock().unwrap())
}

/// The message of a job, which has no other.
fn message(job: &ListJob<'_>) -> u32 {
    assert_eq!(job.value().len(), 1, "{:?}", job.value());
    job.value()[0]
}

type Crew<E> = Workers<'static, u64, List, E>;

/// Workers that log what is given up.
fn workers<E: Send + 'static>(queue: &Lists, of: &Log) -> Crew<E> {
    let of = Arc::clone(of);
    Workers::new(queue).on_give_up(move |_, given_up: GivenUp<_, List>| {
        let messages = given_up.value.unwrap_or_default();
        log(&of, format!("{:?} {messages:?}", given_up.reason));
    })
}

/// Runs `f` for each message, and logs the tries.
fn run<E, R>(
    way: Way,
    queue: &Lists,
    turn: impl Into<Turn>,
    set: impl FnOnce(Crew<E>) -> Crew<E>,
    f: impl Fn(u32, &mut ListJob<'_>) -> R + Send + Sync + 'static,
) -> Vec<String>
where
    E: fmt::Display + Send + 'static,
    R: IntoVerdict<Error = E> + Send + 'static,
{
    let tries = Log::default();
    let noted = Arc::clone(&tries);
    let workers = set(workers(queue, &tries)).each(turn);
    way.run(workers, move |mut job: ListJob<'_>| {
        let number = message(&job);
        log(&noted, format!("{number} at {}", job.attempt()));
        f(number, &mut job)
    });
    taken(&tries)
}

fn same<T>(it: T) -> T {
    it
}

fn logs() -> (Log, Log) {
    let log = Log::default();
    (Arc::clone(&log), log)
}

#[test] // W11 W2 X1
fn tries_are_counted_for_a_message_and_only_the_one_at_the_front_is_given_up() {
    for way in WAYS {
        let queue = list(&[1, 2, 3, 4]);
        let letters = DeadLetters::new(10).unwrap();
        let kept = letters.clone();
        let ending = Arc::clone(&queue);
        // The second one always fails, and the others but the last once.
        let tries = run(
            *way,
            &queue,
            100,
            |workers| workers.max_retries(2).dead_letters(&kept),
            move |number, job| match (number, job.attempt()) {
                (4, _) => Ok(_ = ending.shut_down()),
                (2, _) | (_, 1) => Err("no"),
                _ => Ok(()),
            },
        );
        let expected = [
            "1 at 1", "1 at 2", "2 at 1", "2 at 2", "2 at 3", "3 at 1", "3 at 2", "4 at 1",
        ];
        assert_eq!(tries, expected, "{way:?}");
        let letters = letters.list();
        assert_eq!(letters.len(), 1);
        assert_eq!(
            (letters[0].value.as_deref(), letters[0].attempts),
            (Some(&vec![2]), 3)
        );
        assert_eq!(queue.take_left(), []);
    }
}

#[test] // W11 W5 W9
fn a_message_that_is_given_up_or_panics_or_is_marked_is_one_of_many() {
    for way in WAYS {
        let queue = list(&[1, 2, 3, 4, 5]);
        let ending = Arc::clone(&queue);
        let tries = run(
            *way,
            &queue,
            100,
            |workers| workers.max_retries(0),
            move |number, job| match number {
                1 => Verdict::GiveUp("never"),
                2 => job.give_up::<(), _>("never").into_verdict(),
                3 => resume_unwind(Box::new("as intended")),
                4 => Verdict::Ok(Outcome::Done),
                _ => {
                    ending.shut_down();
                    Verdict::Ok(Outcome::Done)
                }
            },
        );
        let expected = [
            "1 at 1",
            "GiveUp [1]",
            "2 at 1",
            "GiveUp [2]",
            "3 at 1",
            "MaxRetries [3]",
            "4 at 1",
            "5 at 1",
        ];
        assert_eq!(tries, expected, "{way:?}");
    }
}

#[test] // W11 V3
fn what_is_left_when_a_turn_ends_goes_back_before_what_came_meanwhile_and_other_keys_have_their_turn()
 {
    for way in WAYS {
        for turn in [
            Turn::from(2),
            (9, secs(2)).into(),
            (2, secs(9)).into(),
            secs(2).into(),
        ] {
            let (queue, time) = lists(same);
            queue.put(1, (11..16).collect());
            queue.put(2, (21..24).collect());
            let meanwhile = Arc::clone(&queue);
            let (order, seen) = logs();
            run(*way, &queue, turn, same, move |number, _| {
                log(&seen, number.to_string());
                time.advance(secs(1));
                match number {
                    11 => assert_eq!(meanwhile.put(1, vec![16]), Added::Deferred),
                    16 => _ = meanwhile.shut_down(),
                    _ => {}
                }
            });
            let expected = ["11", "12", "21", "22", "13", "14", "23", "15", "16"];
            assert_eq!(taken(&order), expected, "{way:?} {turn:?}");
        }
    }
}

#[test] // W11
fn a_turn_of_no_time_is_one_message_and_one_of_no_messages_is_refused() {
    for way in WAYS {
        let queue = list(&[1, 2]);
        queue.put(2, vec![3]);
        let ending = Arc::clone(&queue);
        let (order, seen) = logs();
        run(*way, &queue, Duration::ZERO, same, move |number, _| {
            log(&seen, number.to_string());
            if number == 2 {
                ending.shut_down();
            }
        });
        assert_eq!(taken(&order), ["1", "3", "2"], "{way:?}");
    }
    let queue = list(&[1]);
    let of = |workers: Workers<'static, u64, List, _>| workers.each(0).run(|_| ());
    let refused = of(Workers::new(&queue)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "workers `each` must be between 1 and 18446744073709551615, but is 0"
    );
    let run = Workers::new(&queue)
        .each((0, secs(1)))
        .run_async(async |_| ());
    assert!(pollster::block_on(run).is_err());
    assert_eq!(queue.len(), 1);
}

#[test] // W11 W10
fn functions_of_batches_do_not_go_with_it() {
    let queue = list(&[1]);
    let workers = || Workers::new(&queue).each(9);
    let done = |_: Vec<ListJob<'_>>| ();
    let refused = workers().run_batches(9, done).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "workers `each` must not be set for batches, but is set"
    );
    assert!(workers().spawn_batches(UpTo::new(9), done).is_err());
    let run = workers().run_batches_async(9, async |_| ());
    assert!(pollster::block_on(run).is_err());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let on = workers().spawn_batches_on(runtime.handle(), 9, |_| async {});
    assert!(on.is_err());
    assert_eq!(queue.len(), 1, "none was delivered");
}

#[test] // W11 S1
fn a_list_is_tried_to_its_end_after_a_shut_down() {
    for way in WAYS {
        for now in [false, true] {
            let queue = list(&[1, 2, 3, 4, 5]);
            let ending = Arc::clone(&queue);
            let tries = run(*way, &queue, 1, same, move |_, _| match now {
                true => _ = ending.shut_down_now(),
                false => _ = ending.shut_down(),
            });
            assert_eq!(tries.len(), 5, "{way:?}");
            assert_eq!(queue.take_left(), []);
        }
    }
}

#[test] // W11 S12 S13
fn a_message_that_fails_after_a_shut_down_is_reported_or_left_with_what_is_behind_it() {
    for way in WAYS {
        let queue = list(&[1, 2, 3]);
        let ending = Arc::clone(&queue);
        let tries = run(*way, &queue, 9, same, move |number, _| {
            ending.shut_down();
            if number == 2 { Err("no") } else { Ok(()) }
        });
        let expected = ["1 at 1", "2 at 1", "ShutDown [2]", "3 at 1"];
        assert_eq!(tries, expected, "{way:?}");
        assert_eq!(queue.take_left(), []);

        // Nobody is told.
        let queue = list(&[1, 2, 3]);
        let ending = Arc::clone(&queue);
        way.run(Workers::new(&queue).each(9), move |job: ListJob<'_>| {
            ending.shut_down();
            if message(&job) == 2 {
                Err("no")
            } else {
                Ok(())
            }
        });
        let left = queue.take_left().pop().unwrap();
        assert_eq!(
            (left.value, left.reason),
            (Some(vec![2, 3]), LeftReason::Refused),
            "{way:?}"
        );
    }
}

#[test] // W11 W3 W5
fn another_outcome_puts_the_message_back_with_what_is_behind_it() {
    for way in WAYS {
        for outcome in [
            Outcome::Later(Duration::ZERO),
            Outcome::RequeueAfter(Duration::ZERO),
            Outcome::RequeueRateLimited,
            Outcome::HoldGroup(Duration::ZERO),
        ] {
            let queue = list(&[1, 2, 3]);
            queue.put(2, vec![9]);
            let ending = Arc::clone(&queue);
            let again = AtomicU32::new(0);
            let (order, seen) = logs();
            run(*way, &queue, 9, same, move |number, job| {
                log(&seen, number.to_string());
                match number {
                    2 if again.fetch_add(1, Ordering::Relaxed) == 0 => {
                        // As a function changes the value of a job.
                        job.value_mut()[0] = 22;
                        return outcome;
                    }
                    3 => _ = ending.shut_down(),
                    _ => {}
                }
                Outcome::Done
            });
            assert_eq!(
                taken(&order),
                ["1", "2", "9", "22", "3"],
                "{way:?} {outcome:?}"
            );
        }
    }
}

#[test] // W11 V3 W9
fn a_message_that_is_taken_and_fails_is_lost_and_the_rest_is_tried_from_its_first_try() {
    for way in WAYS {
        for empties in [false, true] {
            let queue = list(&[1, 2]);
            let ending = Arc::clone(&queue);
            let tries = run(
                *way,
                &queue,
                9,
                |workers| workers.max_retries(1),
                move |number, job| {
                    if number == 2 {
                        ending.shut_down();
                        return Ok(());
                    }
                    match empties {
                        true => job.value_mut().clear(),
                        false => _ = job.take(),
                    }
                    Err("without it")
                },
            );
            assert_eq!(tries, ["1 at 1", "2 at 1"], "{way:?} {empties}");
        }
    }
}

#[test] // W11 V2
fn a_list_without_messages_is_done() {
    for way in WAYS {
        let (queue, _) = lists(same);
        queue.put(1, vec![]);
        queue.put(2, vec![7]);
        queue.shut_down();
        assert_eq!(run(*way, &queue, 9, same, |_, _| ()), ["7 at 1"], "{way:?}");
    }
}

#[test] // W11
fn the_receipts_of_a_key_end_when_its_messages_are_settled_and_none_that_is_given_up_is_done() {
    for way in WAYS {
        let queue = list(&[]);
        let receipts: Arc<Mutex<Vec<Receipt>>> = Arc::default();
        let put = |receipts: &Mutex<Vec<Receipt>>, queue: &Lists, number| {
            let (entry, receipt) = queue.entry(1).tracked();
            entry.put(vec![number]);
            receipts.lock().unwrap().push(receipt);
        };
        (1..4).for_each(|number| put(&receipts, &queue, number));
        let (ending, later) = (Arc::clone(&queue), Arc::clone(&receipts));
        run(
            *way,
            &queue,
            9,
            |workers| workers.max_retries(1),
            move |number, job| {
                let ended = |nth: usize| later.lock().unwrap()[nth].ended();
                match (number, job.attempt()) {
                    (1, _) => return Verdict::GiveUp("never"),
                    (3, 1) => {
                        put(&later, &ending, 4);
                        return Verdict::Retry("once");
                    }
                    (4, _) => {
                        put(&later, &ending, 5);
                        ending.shut_down();
                    }
                    // What was in hand with the first one has ended when the last of that is done.
                    (5, _) => assert_eq!(ended(2), Some(Ended::GivenUp)),
                    _ => {}
                }
                if number < 5 {
                    assert_eq!(ended(0), None);
                }
                Verdict::Ok(Outcome::Done)
            },
        );
        let ends: Vec<_> = mem::take(&mut *receipts.lock().unwrap());
        let ends: Vec<_> = ends.into_iter().map(Receipt::wait).collect();
        use Ended::{Done, GivenUp};
        assert_eq!(ends, [GivenUp, GivenUp, GivenUp, Done, Done], "{way:?}");
    }
}

#[test] // W11 W6
fn a_cancelled_future_puts_the_message_back_before_the_others() {
    for requeue in [true, false] {
        for ends in [false, true] {
            let queue = list(&[1, 2, 3, 4]);
            let workers = Workers::new(&queue)
                .concurrency(1)
                .requeue_cancelled(requeue);
            let mut run = Box::pin(workers.each(9).run_async(async |job: ListJob<'static>| {
                if message(&job) == 2 {
                    pending::<()>().await;
                }
            }));
            assert!(poll_until_idle(&mut run).is_pending());
            queue.put(1, vec![5]);
            if ends {
                queue.shut_down();
            }
            drop(run);
            let all: List = if requeue {
                (2..6).collect()
            } else {
                (3..6).collect()
            };
            let mut item = queue.try_get().unwrap();
            assert_eq!(item.take(), Some(all), "{requeue} {ends}");
            item.done();
            assert!(queue.take_left().is_empty());
        }
    }
    // After a shut-down, of a key that is not dirty.
    let queue = list(&[1, 2, 3]);
    let workers = Workers::new(&queue).concurrency(1).each(9);
    let mut run = Box::pin(workers.run_async(async |_: ListJob<'static>| pending::<()>().await));
    assert!(poll_until_idle(&mut run).is_pending());
    queue.shut_down();
    drop(run);
    assert_eq!(queue.take_left().pop().unwrap().value, Some(vec![1, 2, 3]));
}

#[test] // W11 W6 S16
fn a_future_that_is_cancelled_between_two_messages_puts_the_rest_back() {
    for requeue in [true, false] {
        let queue = list(&[1, 2, 3]);
        let workers = Workers::new(&queue)
            .concurrency(1)
            .requeue_cancelled(requeue);
        let mut run = Box::pin(workers.each(9).run_async(async |_: ListJob<'static>| {}));
        assert!(poll(&mut run, std::task::Waker::noop()).is_pending());
        drop(run);
        let mut item = queue.try_get().unwrap();
        assert_eq!(item.take(), Some(vec![2, 3]), "{requeue}");
    }
}

#[test] // W11 S16 S12
fn a_future_that_is_cancelled_after_the_last_message_leaves_nothing_and_its_receipt_is_done() {
    for ends in [false, true] {
        let queue = list(&[]);
        let (entry, receipt) = queue.entry(1).tracked();
        entry.put(vec![1]);
        let workers = Workers::new(&queue).concurrency(1).each(9);
        let mut run = Box::pin(workers.run_async(async |_: ListJob<'static>| {}));
        assert!(poll(&mut run, std::task::Waker::noop()).is_pending());
        assert_eq!(receipt.ended(), Some(Ended::Done));
        if ends {
            assert!(queue.shut_down().is_nothing());
        }
        drop(run);
        assert_eq!(queue.state(&1), State::Idle);
        assert!(queue.shut_down().is_nothing());
    }
}

/// Counts failures, and delays nothing.
fn counts(builder: Builder<u64, List>) -> Builder<u64, List> {
    builder.rate_limiter(ItemFastSlow::new(Duration::ZERO, Duration::ZERO, 0).unwrap())
}

#[test] // W11 W6 S16
fn the_tries_of_a_message_that_is_cancelled_and_does_not_go_back_are_not_those_of_the_next() {
    // What has taken it goes back without it; or it is done, with others behind it or before others come.
    for (takes, is_alone) in [(true, false), (false, false), (false, true)] {
        let (queue, _) = lists(counts);
        queue.put(1, if is_alone { vec![1] } else { vec![1, 2] });
        let tries = Mutex::new(Vec::new());
        let work = async |mut job: ListJob<'static>| {
            tries.lock().unwrap().push((message(&job), job.attempt()));
            match tries.lock().unwrap().len() {
                1 => return Err::<(), _>("no"),
                2 if takes => drop(job.take()),
                _ => {}
            }
            pending().await
        };
        let run = || {
            let workers = Workers::new(&queue).concurrency(1);
            let workers = workers.requeue_cancelled(takes).each(9);
            let mut run = Box::pin(workers.run_async(&work));
            assert!(poll_until_idle(&mut run).is_pending());
        };
        run();
        if is_alone {
            queue.put(1, vec![2]);
        }
        run();
        assert_eq!(*tries.lock().unwrap(), [(1, 1), (1, 2), (2, 1)]);
    }
}

#[test] // W11 W9 W5
fn a_message_that_is_taken_and_requeued_is_given_up_and_the_rest_is_tried_from_its_first_try() {
    for (way, empties) in WAYS.iter().flat_map(|way| [(way, false), (way, true)]) {
        let queue = list(&[]);
        let (entry, receipt) = queue.entry(1).tracked();
        entry.put(vec![1, 2]);
        let ending = Arc::clone(&queue);
        let tries = run(*way, &queue, 9, same, move |number, job| match number {
            1 if job.attempt() == 1 => Verdict::Retry("once"),
            1 => {
                match empties {
                    true => job.value_mut().clear(),
                    false => _ = job.take(),
                }
                Verdict::Ok(Outcome::Later(Duration::ZERO))
            }
            _ => {
                ending.shut_down();
                Verdict::Ok(Outcome::Done)
            }
        });
        assert_eq!(tries, ["1 at 1", "1 at 2", "2 at 1"], "{way:?} {empties}");
        assert_eq!(receipt.ended(), Some(Ended::GivenUp), "{way:?} {empties}");
    }
}

type Calls = Arc<dyn Fn(&'static str) + Send + Sync>;

/// A list whose conversions run a function: of an iterator that begins, returns a message, or is dropped, and of a list
/// that is collected from several.
struct Odd(List, Calls);

struct OddIter(std::vec::IntoIter<u32>, Calls);

impl IntoIterator for Odd {
    type Item = (u32, Calls);
    type IntoIter = OddIter;

    fn into_iter(self) -> OddIter {
        (self.1)("begin");
        OddIter(self.0.into_iter(), self.1)
    }
}

impl Iterator for OddIter {
    type Item = (u32, Calls);

    fn next(&mut self) -> Option<Self::Item> {
        (self.1)("next");
        Some((self.0.next()?, Arc::clone(&self.1)))
    }
}

impl Drop for OddIter {
    fn drop(&mut self) {
        if !thread::panicking() {
            (self.1)("drop");
        }
    }
}

impl FromIterator<(u32, Calls)> for Odd {
    fn from_iter<I>(all: I) -> Self
    where
        I: IntoIterator<Item = (u32, Calls)>,
    {
        let (list, calls): (List, Vec<_>) = all.into_iter().unzip();
        if list.len() > 1 {
            calls[0]("collect");
        }
        Odd(list, Arc::clone(&calls[0]))
    }
}

/// Puts messages of key 1, which call `f`, and 4 of key 2, and runs workers in turns of one. Returns what was tried,
/// and how the receipts have ended.
fn odd(
    way: Way,
    ends: bool,
    messages: List,
    f: impl Fn(&'static str) + Send + Sync + 'static,
) -> (List, [Ended; 2]) {
    let merge = |older: &mut Odd, newer: Odd| older.0.extend(&newer.0);
    let queue: Arc<WorkQueue<u64, Odd>> =
        Arc::new(WorkQueue::builder().merge(merge).build().unwrap());
    let put = |key, list, f| {
        let (entry, receipt) = queue.entry(key).tracked();
        entry.put(Odd(list, f));
        receipt
    };
    let receipts = [
        put(1, messages, Arc::new(f)),
        put(2, vec![4], Arc::new(|_| ())),
    ];
    if ends {
        queue.shut_down();
    }
    let tried = Arc::new(Mutex::new(Vec::new()));
    let (noted, ending) = (Arc::clone(&tried), Arc::clone(&queue));
    way.run(
        Workers::new(&queue).each(1),
        move |mut job: Job<'_, u64, Odd>| {
            let number = job.take().map_or(0, |list| list.0[0]);
            noted.lock().unwrap().push(number);
            if number == 4 {
                ending.shut_down();
            }
        },
    );
    let tried = mem::take(&mut *tried.lock().unwrap());
    (tried, receipts.map(Receipt::wait))
}

#[test] // W11 S15
fn what_an_iterator_that_panics_loses_is_given_up_and_the_worker_goes_on() {
    for way in WAYS {
        for (at, tried) in [
            ("begin", vec![4]),
            ("next", vec![4]),
            ("collect", vec![1, 4]),
            ("drop", vec![1, 4]),
        ] {
            let f = move |call| {
                if call == at {
                    resume_unwind(Box::new("as intended"));
                }
            };
            let (seen, ends) = odd(*way, false, vec![1, 2, 3], f);
            assert_eq!(seen, tried, "{way:?} {at}");
            assert_eq!(ends, [Ended::GivenUp, Ended::Done], "{way:?} {at}");
        }
        // That of a list which is joined after a shut-down, or never.
        let f = |call| {
            if call == "drop" {
                resume_unwind(Box::new("as intended"));
            }
        };
        let (seen, ends) = odd(*way, true, vec![1, 2, 3], f);
        assert_eq!((&*seen, ends), (&[1, 4][..], [Ended::GivenUp, Ended::Done]));
        let (seen, ends) = odd(*way, false, vec![1], f);
        assert_eq!((&*seen, ends), (&[1, 4][..], [Ended::Done, Ended::Done]));
    }
}

#[test] // W11 S1
fn a_turn_that_a_queue_refuses_to_end_is_tried_to_its_end_and_asks_no_more() {
    for way in WAYS {
        let collected = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&collected);
        let f = move |call| {
            if call == "collect" {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        assert_eq!(
            odd(*way, true, vec![1, 2, 3, 5], f).0,
            [1, 2, 3, 5, 4],
            "{way:?}"
        );
        assert_eq!(collected.load(Ordering::Relaxed), 1, "{way:?}");
    }
}

#[test] // W11 S16
fn a_report_that_is_cancelled_puts_its_message_back_and_one_that_is_not_goes_on() {
    for cancels in [true, false] {
        let queue = list(&[1, 2, 3]);
        let (entry, receipt) = queue.entry(1).tracked();
        entry.put(vec![4]);
        let tries = Mutex::new(Vec::new());
        let workers = Workers::new(&queue)
            .concurrency(1)
            .on_give_up_async(|_, _| async move {
                if cancels {
                    pending::<()>().await;
                }
                futures_lite::future::yield_now().await;
            });
        let mut run = Box::pin(workers.each(9).run_async(async |job: ListJob<'static>| {
            tries.lock().unwrap().push(message(&job));
            if message(&job) == 2 {
                Verdict::GiveUp("never")
            } else {
                Verdict::Ok(Outcome::Done)
            }
        }));
        assert!(poll_until_idle(&mut run).is_pending());
        drop(run);
        let tries = tries.into_inner().unwrap();
        if cancels {
            assert_eq!(tries, [1, 2]);
            assert_eq!(receipt.ended(), None);
            let mut item = queue.try_get().unwrap();
            assert_eq!(item.take(), Some(vec![2, 3, 4]));
        } else {
            assert_eq!(tries, [1, 2, 3, 4]);
            assert_eq!(receipt.ended(), Some(Ended::GivenUp));
        }
    }
}

#[test] // W11 W2
fn the_tries_of_a_message_whose_report_is_awaited_are_not_those_of_the_next() {
    let (queue, _) = lists(counts);
    queue.put(1, vec![1, 2]);
    let tries = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1).max_retries(1);
    let workers = workers.on_give_up_async(|_, _| async {});
    let mut run = Box::pin(workers.each(9).run_async(async |job: ListJob<'static>| {
        tries.lock().unwrap().push((message(&job), job.attempt()));
        if message(&job) == 1 {
            Err("no")
        } else {
            Ok(())
        }
    }));
    assert!(poll_until_idle(&mut run).is_pending());
    drop(run);
    assert_eq!(tries.into_inner().unwrap(), [(1, 1), (1, 2), (2, 1)]);
}

#[test] // W11 W4 W8
fn an_abort_of_threads_ends_a_turn_after_its_message() {
    let _watchdog = watchdog(60);
    for ends in [false, true] {
        let queue = list(&[1, 2, 3]);
        let (tried, goes_on) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let goes_on_at = Mutex::new(goes_on.1);
        let workers = Workers::new(&queue).concurrency(1).each(9);
        let running = workers
            .spawn(move |job: ListJob<'_>| {
                tried.0.send(message(&job)).unwrap();
                // It waits for one call only.
                _ = goes_on_at.lock().unwrap().recv();
            })
            .unwrap();
        assert_eq!(tried.1.recv(), Ok(1));
        if ends {
            queue.shut_down();
        }
        running.abort();
        drop(goes_on.0);
        running.join();
        assert_eq!(tried.1.try_iter().count(), 0);
        let rest = match ends {
            true => queue.take_left().pop().unwrap().value,
            false => queue.try_get().unwrap().take(),
        };
        assert_eq!(rest, Some(vec![2, 3]));
    }
}

/// Panics whenever it is asked for a delay.
struct Panics;

impl RateLimiter<u64> for Panics {
    fn when(&self, _: &u64) -> Duration {
        resume_unwind(Box::new("as intended"))
    }

    fn forget(&self, _: &u64) {}

    fn num_requeues(&self, _: &u64) -> u32 {
        0
    }
}

#[test] // W11 W2
fn a_limiter_that_panics_gives_up_a_message_and_not_those_behind_it() {
    for way in WAYS {
        for requeues in [false, true] {
            let (queue, _) = lists(|builder| builder.rate_limiter(Panics));
            queue.put(1, vec![1, 2, 3]);
            let ending = Arc::clone(&queue);
            let tries = run(*way, &queue, 9, same, move |number, _| match number {
                2 if requeues => Verdict::Ok(Outcome::RequeueRateLimited),
                2 => Verdict::Retry("no"),
                3 => {
                    ending.shut_down();
                    Verdict::Ok(Outcome::Done)
                }
                _ => Verdict::Ok(Outcome::Done),
            });
            let expected = ["1 at 1", "2 at 1", "Limiter [2]", "3 at 1"];
            assert_eq!(tries, expected, "{way:?} {requeues}");
        }
    }
}

#[test] // W11 S15
fn a_hook_that_panics_loses_no_message_behind_the_one_that_is_given_up() {
    for way in WAYS {
        let queue = list(&[1, 2]);
        queue.shut_down();
        let (order, seen) = logs();
        let workers = Workers::new(&queue)
            .on_give_up(|_, _: GivenUp<&str, _>| resume_unwind(Box::new("as intended")));
        way.run(workers.each(9), move |job: ListJob<'_>| {
            log(&seen, message(&job).to_string());
            Err::<(), _>("no")
        });
        assert_eq!(taken(&order), ["1", "2"], "{way:?}");
    }
}

#[test] // W11 V7
fn a_message_keeps_its_back_off_whatever_is_put_behind_it() {
    for way in WAYS {
        let limiter = ItemExponentialFailure::new(secs(1), HOUR).unwrap();
        let set =
            |builder: Builder<u64, List>| builder.rate_limiter(limiter).adds_wait_for_retries(true);
        let (queue, time) = lists(set);
        queue.put(1, vec![1, 2]);
        let (putting, ending) = (Arc::clone(&queue), Arc::clone(&queue));
        let next = AtomicU32::new(3);
        let set = move |workers: Crew<&'static str>| {
            workers.on_error(move |_, failed| {
                for _ in 0..failed.next.unwrap().as_secs() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(putting.put(1, vec![number]), Added::Delayed);
                    time.advance(secs(1));
                    putting.fire_due();
                }
            })
        };
        let tries = run(*way, &queue, 9, set, move |number, job| {
            if number == 1 && job.attempt() < 3 {
                return Err("not yet");
            }
            if number == 5 {
                ending.shut_down();
            }
            Ok(())
        });
        let expected = [
            "1 at 1", "1 at 2", "1 at 3", "2 at 1", "3 at 1", "4 at 1", "5 at 1",
        ];
        assert_eq!(tries, expected, "{way:?}");
    }
}

/// What became of the messages of each key, in order.
type Settled = Mutex<BTreeMap<u64, List>>;

fn settle(settled: &Settled, key: u64, messages: &[u32]) {
    let mut settled = settled.lock().unwrap();
    settled.entry(key).or_default().extend(messages);
}

/// Something that may become of a message.
fn any_verdict(random: u32) -> Verdict<&'static str> {
    match random % 16 {
        0..8 => Verdict::Ok(Outcome::Done),
        8..10 => Verdict::Retry("made to fail"),
        10 => Verdict::RetryAfter("made to fail", ms(2)),
        11 => Verdict::GiveUp("made to give up"),
        12 => Verdict::Ok(Outcome::Later(Duration::ZERO)),
        13 => Verdict::Ok(Outcome::RequeueAfter(ms(3))),
        14 => Verdict::Ok(Outcome::RequeueRateLimited),
        _ => resume_unwind(Box::new("as intended")),
    }
}

/// Each message that was put is done, given up or left, once, and those of a key in order.
fn check(settled: Settled, queue: &Lists, put: &BTreeMap<u64, u32>, seed: u64) {
    let mut settled = settled.into_inner().unwrap();
    for left in queue.take_left() {
        settled
            .entry(left.key)
            .or_default()
            .extend(left.value.unwrap());
    }
    for (key, count) in put {
        let all = settled.remove(key).unwrap_or_default();
        let expected: List = (0..*count).collect();
        assert_eq!(all, expected, "key {key}, seed {seed}");
    }
    assert!(settled.is_empty(), "seed {seed}");
}

fn random_queue(random: &mut fastrand::Rng) -> (Arc<Lists>, MockClock) {
    let limiter = ItemExponentialFailure::new(ms(1), ms(4)).unwrap();
    let (waits, supersede, drains) = (random.bool(), random.bool(), random.bool());
    lists(|builder| {
        builder
            .rate_limiter(limiter)
            .adds_wait_for_retries(waits)
            .supersede_delays(supersede)
            .drain_delays(drains)
    })
}

#[test] // W11 S12 S13 S16 V3
fn each_message_of_a_random_run_that_is_cancelled_and_ended_is_settled_once_and_in_order() {
    let _watchdog = watchdog(60);
    for seed in 0..scaled(600) as u64 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let (queue, time) = random_queue(random);
        let (settled, mut put) = (Settled::default(), BTreeMap::<u64, u32>::new());
        let draws = Mutex::new(fastrand::Rng::with_seed(seed + 1_000_000));
        let work = async |job: ListJob<'static>| {
            let (yields, verdict) = {
                let mut draws = draws.lock().unwrap();
                (draws.u8(..3), draws.u32(..))
            };
            for _ in 0..yields {
                futures_lite::future::yield_now().await;
            }
            let verdict = any_verdict(verdict);
            if verdict == Verdict::Ok(Outcome::Done) {
                settle(&settled, *job.key(), &[message(&job)]);
            }
            verdict
        };
        let turn = random.usize(1..4);
        let workers = || {
            let workers = Workers::new(&queue)
                .concurrency(2)
                .max_retries(2)
                .each(turn);
            let workers = workers.on_give_up(|key, given_up: GivenUp<_, List>| {
                settle(&settled, *key, &given_up.value.unwrap());
            });
            Box::pin(workers.run_async(&work))
        };
        let mut run = workers();
        let step = |random: &mut fastrand::Rng, put: &mut BTreeMap<u64, u32>| {
            for _ in 0..random.u8(..4) {
                let (key, next) = (random.u64(..3), random.u32(1..4));
                let count = put.entry(key).or_default();
                let messages = (*count..*count + next).collect();
                if queue.put(key, messages).is_accepted() {
                    *count += next;
                }
            }
            time.advance(ms(random.u64(..3)));
            queue.fire_due();
        };
        for _ in 0..random.usize(1..60) {
            step(random, &mut put);
            if poll(&mut run, std::task::Waker::noop()).is_ready() {
                run = workers();
            }
            match random.u8(..16) {
                0 => {
                    drop(run);
                    run = workers();
                }
                1 if random.u8(..8) == 0 => _ = queue.shut_down(),
                2 if random.u8(..8) == 0 => _ = queue.shut_down_now(),
                _ => {}
            }
        }
        match random.u8(..4) {
            0 => drop(run),
            1 => {
                queue.shut_down();
                pollster::block_on(run).unwrap();
            }
            2 => {
                queue.shut_down_now();
                pollster::block_on(run).unwrap();
            }
            _ => {
                // A drain that is dropped, and perhaps delivers retries again until then.
                let mut drain = Box::pin(queue.drain_async());
                for _ in 0..random.u8(..40) {
                    if poll(&mut drain, std::task::Waker::noop()).is_ready() {
                        break;
                    }
                    if poll(&mut run, std::task::Waker::noop()).is_ready() {
                        run = workers();
                    }
                }
                drop((drain, run));
            }
        }
        check(settled, &queue, &put, seed);
    }
}

#[test] // W11 S12 S13 V3
fn each_message_of_racing_threads_is_settled_once_and_in_order() {
    let _watchdog = watchdog(120);
    for seed in 0..scaled(60) as u64 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let limiter = ItemExponentialFailure::new(ms(1), ms(2)).unwrap();
        let builder = WorkQueue::builder()
            .rate_limiter(limiter)
            .merge(merge::append);
        let queue = builder
            .adds_wait_for_retries(random.bool())
            .build()
            .unwrap();
        let queue: Arc<Lists> = Arc::new(queue);
        let settled = Arc::new(Settled::default());
        let given_up = Arc::clone(&settled);
        let workers = Workers::new(&queue)
            .concurrency(3)
            .max_retries(2)
            .each(random.usize(1..5));
        let workers = workers.on_give_up(move |key, report: GivenUp<_, List>| {
            settle(&given_up, *key, &report.value.unwrap());
        });
        let done = Arc::clone(&settled);
        let running = workers
            .spawn(move |job: ListJob<'_>| {
                let verdict = any_verdict(fastrand::u32(..));
                if verdict == Verdict::Ok(Outcome::Done) {
                    settle(&done, *job.key(), &[message(&job)]);
                }
                verdict
            })
            .unwrap();
        let put = thread::scope(|scope| {
            let put = |key| {
                let queue = &queue;
                move || {
                    let mut count = 0;
                    while count < 60 && queue.put(key, vec![count, count + 1]).is_accepted() {
                        count += 2;
                        thread::sleep(Duration::from_micros(fastrand::u64(..100)));
                    }
                    (key, count)
                }
            };
            let threads: Vec<_> = (0..3).map(|key| scope.spawn(put(key))).collect();
            if random.bool() {
                thread::sleep(Duration::from_millis(random.u64(..5)));
                queue.shut_down();
            }
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        queue.shut_down();
        running.join();
        check(Arc::into_inner(settled).unwrap(), &queue, &put, seed);
    }
}
