//! Workers that try the messages of a key one by one (W11): the table in `src/worker/each.rs`. Here what becomes of messages by what the
//! function returns; [`ends`] has what is cancelled, reported, aborted or panics, [`cleared`] what is cleared away, and [`random`]
//! both in random runs.

mod cleared;
mod ends;
mod random;

use std::collections::{BTreeMap, VecDeque};
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
use keyqueue::limiter::{ItemExponentialFailure, ItemFastSlow, NoLimit, RateLimiter};
use keyqueue::worker::{DeadLetters, GivenUp, IntoVerdict, Job, Outcome, Turn, Verdict, Workers};
use keyqueue::{
    Added, Builder, Clock, Ended, LeftReason, MockClock, Receipt, UpTo, WorkQueue, merge,
};

type List = Vec<u32>;
type Lists = WorkQueue<u64, List>;
type ListJob<'j> = Job<'j, u64, List>;

/// What has happened, in order: tries of a message, and the messages of each report.
type Log = Arc<Mutex<Vec<String>>>;

fn lists(set: impl FnOnce(Builder<u64, List>) -> Builder<u64, List>) -> (Arc<Lists>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .clock(clock)
        .manual_timers();
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

#[test] // W11
fn what_a_turn_leaves_of_a_deque_stays_where_it_is() {
    const ROOM: usize = 1000;
    let room = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&room);
    let append = move |older: &mut VecDeque<u32>, newer: VecDeque<u32>| {
        seen.lock().unwrap().push(older.capacity() >= ROOM);
        older.extend(newer);
    };
    let queue = WorkQueue::builder().merge(append).build().unwrap();
    let mut messages = VecDeque::with_capacity(ROOM);
    messages.extend(1..=5);
    queue.put(1, messages);
    let (order, workers) = (Mutex::new(Vec::new()), Workers::new(&queue).concurrency(1));
    let work = async |job: Job<'static, i32, VecDeque<u32>>| {
        let number = job.value()[0];
        order.lock().unwrap().push(number);
        match number {
            1..5 => _ = queue.put(1, [number + 5].into()),
            _ => _ = queue.shut_down(),
        }
    };
    pollster::block_on(workers.each(1).run_async(work)).unwrap();
    assert_eq!(order.into_inner().unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(*room.lock().unwrap(), [true; 4]);
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
