//! The hooks: every failure (W7), and keys that are given up, with a hook that waits.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::timed::{HOUR, built, ms};
use crate::common::{poll_until_idle, take_all};
use keyqueue::limiter::{ItemExponentialFailure, NoLimit};
use keyqueue::worker::{Job, Outcome, Reason, Verdict, Workers};
use keyqueue::{Added, WorkQueue, merge};

#[test] // W7
fn every_failure_is_seen_with_error_attempt_and_next_delay_before_a_give_up() {
    let limiter = ItemExponentialFailure::new(ms(5), HOUR).unwrap();
    let (queue, time) = built(|builder| builder.rate_limiter(limiter));
    let seen = Mutex::new(Vec::new());
    let run = Workers::new(&queue)
        .concurrency(1)
        .max_retries(1)
        .on_error(|key, failed| {
            seen.lock().unwrap().push(format!("{key}: {failed}"));
            panic!("from the hook");
        })
        .on_give_up(|key, end| seen.lock().unwrap().push(format!("{key}: {end}")))
        .run_async(async |job: Job<'_, &str>| match *job {
            "good" => Verdict::Ok(Outcome::Done),
            "bad" => Verdict::Retry("bad"),
            "busy" => Verdict::RetryAfter("429", Duration::from_secs(2)),
            "gone" => Verdict::GiveUp("404"),
            _ => panic!("ouch"),
        });
    let mut run = Box::pin(run);
    let mut seen_of = |key: &'static str| {
        queue.add(key);
        for _ in 0..2 {
            assert!(poll_until_idle(&mut run).is_pending());
            time.advance(Duration::from_secs(2));
            queue.fire_due();
        }
        std::mem::take(&mut *seen.lock().unwrap())
    };
    assert_eq!(seen_of("good"), [""; 0]);
    let bad = [
        "bad: bad (attempt 1, the next in 5ms)",
        "bad: bad (attempt 2, given up)",
        "bad: bad (retries: 1)",
    ];
    assert_eq!(seen_of("bad"), bad);
    let busy = [
        "busy: 429 (attempt 1, the next in 2s)",
        "busy: 429 (attempt 2, given up)",
        "busy: 429 (retries: 1)",
    ];
    assert_eq!(seen_of("busy"), busy);
    let gone = [
        "gone: 404 (attempt 1, given up)",
        "gone: 404 (retries: 0, as the worker decided)",
    ];
    assert_eq!(seen_of("gone"), gone);
    assert_eq!(
        seen_of("panics")[0],
        "panics: panicked: ouch (attempt 1, the next in 5ms)"
    );
}

#[test] // W7 D5
fn a_retry_that_merges_into_an_add_is_told_without_a_delay() {
    for (supersedes, next) in [(false, ms(5)), (true, Duration::ZERO)] {
        let limiter = ItemExponentialFailure::new(ms(5), HOUR).unwrap();
        let (queue, _) =
            built(|builder| builder.rate_limiter(limiter).supersede_delays(supersedes));
        queue.add(1);
        let (tries, seen) = (Cell::new(0), Mutex::new(Vec::new()));
        let run = Workers::new(&queue)
            .concurrency(1)
            .on_error(|_, failed| seen.lock().unwrap().push(failed.next))
            .run_async(async |_: Job<'_, u64>| {
                tries.set(tries.get() + 1);
                // Something changes while the first try fails.
                match tries.get() {
                    1 => {
                        queue.add(1);
                        Err("no")
                    }
                    _ => Ok(()),
                }
            });
        assert!(poll_until_idle(&mut Box::pin(run)).is_pending());
        assert_eq!(
            (tries.get(), &*seen.lock().unwrap()),
            (2, &vec![Some(next)])
        );
    }
}

#[test] // W2 W7
fn a_hook_may_wait_and_its_key_is_held_meanwhile() {
    let queue = WorkQueue::from_iter([1]);
    let open = AtomicBool::new(false);
    let ends = Mutex::new(Vec::new());
    let workers = Workers::new(&queue)
        .concurrency(1)
        .on_give_up_async(|key, end| {
            let (open, ends) = (&open, &ends);
            async move {
                poll_fn(|context| match open.load(Ordering::SeqCst) {
                    true => Poll::Ready(()),
                    false => {
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                })
                .await;
                ends.lock().unwrap().push((*key.key(), end.reason));
            }
        });
    let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| Verdict::GiveUp("no")));
    for _ in 0..10 {
        assert!(crate::common::poll(&mut run, std::task::Waker::noop()).is_pending());
    }
    assert_eq!(queue.add(1), Added::Deferred);
    let left = queue.shut_down();
    assert_eq!((left.queued, left.processing), (0, 1));
    open.store(true, Ordering::SeqCst);
    assert!(poll_until_idle(&mut run).is_ready());
    drop(run);
    // The add came before the shut-down.
    assert_eq!(ends.into_inner().unwrap(), [(1, Reason::GiveUp); 2]);
}

#[test] // W2 S5
fn a_hook_that_waits_is_called_for_dropped_retries_and_may_panic() {
    let limiter = ItemExponentialFailure::new(HOUR, HOUR).unwrap();
    let queue = WorkQueue::builder().rate_limiter(limiter).build().unwrap();
    queue.add_all([1, 2, 3, 4]);
    let ends = Mutex::new(Vec::new());
    let workers = Workers::new(&queue)
        .concurrency(2)
        .on_give_up_async(|key, end| {
            ends.lock().unwrap().push((*key.key(), end.reason));
            assert_ne!(*key.key(), 1, "in the hook");
            async move {
                futures_lite::future::yield_now().await;
                panic!("in its future");
            }
        });
    let work = async |job: Job<'_, u64>| match *job {
        4 => Verdict::GiveUp("never"),
        _ => Verdict::Retry("no"),
    };
    let mut run = Box::pin(workers.run_async(work));
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(queue.shut_down().delayed, 3);
    assert!(poll_until_idle(&mut run).is_ready());
    drop(run);
    let mut ends = ends.into_inner().unwrap();
    ends.sort_by_key(|end| end.0);
    let dropped = [1, 2, 3].map(|key| (key, Reason::Dropped));
    assert_eq!((&ends[..3], ends[3]), (&dropped[..], (4, Reason::GiveUp)));
}

#[test] // W4 W6: the key is not given up before it is reported.
fn a_worker_that_is_dropped_while_its_hook_waits_puts_the_key_back() {
    for (requeue, left) in [(true, &[2, 1][..]), (false, &[2])] {
        let queue = WorkQueue::from_iter([1, 2]);
        let called = Cell::new(0);
        let workers = Workers::new(&queue)
            .concurrency(1)
            .requeue_cancelled(requeue);
        let workers = workers.on_give_up_async(|_, _| pending());
        let mut run = Box::pin(workers.run_async(async |_: Job<'_, u64>| {
            called.set(called.get() + 1);
            Verdict::GiveUp("no")
        }));
        assert!(poll_until_idle(&mut run).is_pending());
        drop(run);
        assert_eq!(called.get(), 1, "the hook waits");
        assert_eq!(take_all(&queue), left);
        assert!(queue.shut_down().is_nothing());
    }
}

#[test] // W2
fn threads_refuse_a_hook_that_waits_by_name() {
    let queue = WorkQueue::<u64>::new();
    let workers = || {
        let workers = Workers::new(&queue).concurrency(1);
        workers.on_give_up_async(|_, _| async {})
    };
    let refused = [
        workers().run(|_| Err::<(), _>("no")).unwrap_err(),
        workers().spawn(|_| Err::<(), _>("no")).unwrap_err(),
    ];
    for refused in refused {
        assert_eq!(refused.field(), "on_give_up_async");
        let text = "workers `on_give_up_async` must not be set for threads, but is set";
        assert_eq!(refused.to_string(), text);
    }
    // The last hook counts.
    queue.shut_down();
    let ran = workers().on_give_up(|_, _| ()).run(|_| Err::<(), _>("no"));
    assert_eq!(ran, Ok(()));
}

#[test] // W1: without a hook an error stays on its thread.
fn a_future_with_a_hook_is_send_and_so_is_one_whose_errors_are_not() {
    fn is_send(_: &impl Send) {}
    let queue = WorkQueue::<u64>::new();
    let workers = Workers::new(&queue);
    let workers = workers
        .on_give_up_async(|_, _| async {})
        .on_error(|_, _| ());
    is_send(&workers.run_async(async |_: Job<'_, u64>| Err::<(), _>("no")));
    let lists: WorkQueue<u64, Vec<u32>> =
        WorkQueue::builder().merge(merge::append).build().unwrap();
    let work = async |job: Job<'_, u64, Vec<u32>>| drop(job);
    is_send(&Workers::new(&lists).run_async(work));
    let workers = Workers::new(&queue).on_error(|_, _| ());
    is_send(
        &workers
            .run_async(async |_: Job<'_, u64>| Err::<(), Box<dyn std::error::Error>>("no".into())),
    );
}

/// A value whose clone panics if it is 7.
#[derive(Debug, PartialEq)]
struct Fragile(u32);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if self.0 == 7 {
            std::panic::resume_unwind(Box::new("as intended"));
        }
        Fragile(self.0)
    }
}

#[test] // W7 S13 S16
fn a_report_that_waits_has_a_clone_of_the_value_if_that_is_set_and_the_key_keeps_it() {
    for (number, sets, drops) in [
        (1, true, false),
        (1, false, false),
        (7, true, false),
        (1, true, true),
        (7, true, true),
    ] {
        let queue = WorkQueue::builder()
            .rate_limiter(NoLimit)
            .manual_timers()
            .merge(merge::latest)
            .build()
            .unwrap();
        queue.put("a", Fragile(number));
        let values = Mutex::new(Vec::new());
        let workers = Workers::new(&queue)
            .concurrency(1)
            .on_give_up_async(|_, given_up| {
                values.lock().unwrap().push(given_up.value);
                pending()
            });
        let workers = if sets {
            workers.values_in_reports()
        } else {
            workers
        };
        let mut run = Box::pin(workers.run_async(
            async |job: Job<'_, &str, Fragile>| match drops {
                false => job.give_up::<(), _>("never"),
                true => job.retry_after("later", HOUR),
            },
        ));
        assert!(poll_until_idle(&mut run).is_pending());
        // A retry is reported when a shut-down drops it.
        queue.shut_down();
        assert!(poll_until_idle(&mut run).is_pending());
        let has_clone = sets && number != 7;
        let expected = [has_clone.then_some(Fragile(number))];
        assert_eq!(*values.lock().unwrap(), expected, "{number} {sets} {drops}");
        drop(run);
        let left = queue.take_left().pop().unwrap();
        assert_eq!(left.value, Some(Fragile(number)), "{number} {sets} {drops}");
    }
}
