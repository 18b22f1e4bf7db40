//! Workers whose function gets the value as well (V3, W2, W3, W5, S5).

use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{lists, tracked};
use crate::common::counted::Alive;
use crate::common::timed::HOUR;
use crate::common::watchdog;
use keyqueue::limiter::{ItemExponentialFailure, NoLimit};
use keyqueue::worker::{Job, Reason, Verdict, Workers};
use keyqueue::{Ended, WorkQueue, merge};

#[test] // V3 W2 W5
fn the_hook_gets_the_value_of_a_key_that_is_given_up() {
    let queue = lists::<&str>();
    let given_up = Mutex::new(Vec::new());
    let receipts = ["error", "panic", "now"].map(|key| tracked(&queue, key, vec![1]));
    let workers = Workers::new(&queue).concurrency(1).max_retries(1);
    workers
        .on_give_up(|key, end| {
            let mut given_up = given_up.lock().unwrap();
            given_up.push((*key, end.value.unwrap(), end.reason));
            if given_up.len() == 3 {
                queue.shut_down();
            }
        })
        .run(|mut job| {
            job.value_mut().push(2);
            match *job {
                "error" => Verdict::Retry("fails"),
                "panic" => resume_unwind(Box::new("the work fails")),
                _ => Verdict::GiveUp("never"),
            }
        })
        .unwrap();
    let mut given_up = given_up.into_inner().unwrap();
    given_up.sort_by_key(|(key, ..)| *key);
    assert_eq!(
        given_up,
        [
            ("error", vec![1, 2, 2], Reason::MaxRetries),
            ("now", vec![1, 2], Reason::GiveUp),
            ("panic", vec![1, 2, 2], Reason::MaxRetries),
        ]
    );
    assert!(
        receipts
            .iter()
            .all(|receipt| receipt.ended() == Some(Ended::GivenUp))
    );
}

#[test] // V3 S5
fn the_hook_gets_the_value_of_a_retry_that_a_shut_down_drops_or_refuses_unless_it_was_removed() {
    let _watchdog = watchdog(60);
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let builder = WorkQueue::builder().rate_limiter(limiter).manual_timers();
    let queue = builder.merge(merge::append).build().unwrap();
    let receipts = ["dropped", "taken", "refused"].map(|key| tracked(&queue, key, vec![1]));
    let given_up = Mutex::new(Vec::new());
    let workers = Workers::new(&queue).concurrency(1);
    workers
        .on_give_up(|key, end| given_up.lock().unwrap().push((*key, end.value, end.reason)))
        .run(|mut job: Job<'_, &str, Vec<u32>>| {
            job.value_mut().push(2);
            if *job == "refused" {
                queue.entry("dropped").after(2 * HOUR).put(vec![3]); // joins the retry
                queue.shut_down();
                assert_eq!(queue.remove("taken"), Some(vec![1, 2]));
            }
            Verdict::Retry("fails")
        })
        .unwrap();
    let mut given_up = given_up.into_inner().unwrap();
    given_up.sort_by_key(|(key, ..)| *key);
    assert_eq!(
        given_up,
        [
            ("dropped", Some(vec![1, 2, 3]), Reason::Dropped),
            ("refused", Some(vec![1, 2]), Reason::ShutDown),
        ]
    );
    let ends = receipts.map(|receipt| receipt.ended().unwrap());
    assert_eq!(ends, [Ended::Dropped, Ended::Dropped, Ended::GivenUp]);
}

#[test] // V2 W2
fn workers_drop_each_value_once() {
    let alive = Alive::default();
    let queue: WorkQueue<u32, Vec<_>> = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .merge(merge::append)
        .build()
        .unwrap();
    for key in 0..100 {
        queue.put(key, vec![alive.of(key)]);
    }
    let calls = AtomicUsize::new(0);
    let workers = Workers::new(&queue).concurrency(2).max_retries(1);
    workers
        .run(|mut job| {
            let key = *job;
            if key % 7 == 0 {
                job.value_mut().push(alive.of(key));
            }
            if calls.fetch_add(1, Ordering::SeqCst) == 119 {
                queue.shut_down();
            }
            if key % 5 == 0 { Err("fails") } else { Ok(()) }
        })
        .unwrap();
    assert_eq!((alive.count(), calls.into_inner()), (0, 120));
    assert!(queue.get().is_none());
}
