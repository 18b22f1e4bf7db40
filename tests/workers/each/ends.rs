//! Messages whose work or report is cancelled or aborted, and user code that panics around them.

use super::*;

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
        assert_eq!(queue.state(&1), None);
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

#[test] // W11 W2
fn a_message_that_other_workers_have_done_leaves_no_tries_to_the_next() {
    let (queue, time) = lists(|builder| builder);
    let tries = Mutex::new(Vec::new());
    let run = |fails: bool| {
        let (workers, tries) = (Workers::new(&queue).concurrency(1).each(9), &tries);
        Box::pin(workers.run_async(async move |job: ListJob<'static>| {
            tries.lock().unwrap().push((message(&job), job.attempt()));
            match fails {
                true => job.retry_after("no", secs(1)),
                false => Ok(()),
            }
        }))
    };
    let (mut fails, mut succeeds) = (run(true), run(false));
    queue.put(1, vec![1]);
    assert!(poll_until_idle(&mut fails).is_pending());
    time.advance(secs(1));
    queue.fire_due();
    assert!(poll_until_idle(&mut succeeds).is_pending());
    queue.put(1, vec![2]);
    assert!(poll_until_idle(&mut fails).is_pending());
    assert_eq!(*tries.lock().unwrap(), [(1, 1), (1, 2), (2, 1)]);
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

/// A list whose conversions run a function: of an iterator that begins, is asked how much it has, returns a message, or is
/// dropped, and of a list that is collected from several.
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

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.1)("hint");
        self.0.size_hint()
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
            ("hint", vec![1, 4]),
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
