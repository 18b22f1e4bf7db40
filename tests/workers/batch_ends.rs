//! Batches of workers that end: shut-downs, pauses, aborts, cancelled futures and hooks (W10), the rest of the table in
//! `src/worker/batches.rs`.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;

use crate::batches::{Calls, Jobs, keys, note, taken};
use crate::common::timed::HOUR;
use crate::common::{eventually, poll, poll_until_idle, take_all, waiting, watchdog};
use crate::jobs::WAYS;
use keyqueue::limiter::NoLimit;
use keyqueue::worker::{DeadLetters, Job, Verdict, Workers};
use keyqueue::{LeftReason, State, UpTo, WorkQueue, merge};

#[test] // W10 S5 S12
fn a_batch_is_tried_to_its_end_after_a_shut_down_and_its_retries_are_refused() {
    for way in WAYS {
        let queue = Arc::new(WorkQueue::<u64>::new());
        queue.add_all(0..4);
        let (calls, ending) = (Calls::default(), Arc::clone(&queue));
        let noted = Arc::clone(&calls);
        way.run_batches(Workers::new(&queue), move |jobs| {
            ending.shut_down_now();
            match note(&noted, &jobs).contains(&1) {
                true => Err("no"),
                false => Ok(()),
            }
        });
        let tried: [&[u64]; 5] = [&[0, 1, 2, 3], &[0, 1], &[0], &[1], &[2, 3]];
        assert_eq!(taken(&calls), tried, "{way:?}");
        let left: Vec<_> = queue
            .take_left()
            .iter()
            .map(|left| (left.key, left.reason))
            .collect();
        assert_eq!(left, [(1, LeftReason::Refused)]);
    }
}

#[test] // W10
fn a_pause_leaves_a_batch_that_is_tried_as_it_is_and_lets_no_other_begin() {
    let _watchdog = watchdog(60);
    for way in WAYS {
        let queue = Arc::new(WorkQueue::builder().pausable().build().unwrap());
        queue.add_all(0..2);
        let (calls, pausing) = (Calls::default(), Arc::clone(&queue));
        let noted = Arc::clone(&calls);
        way.run_batches(Workers::new(&queue), move |jobs| {
            pausing.pause().unwrap();
            pausing.add(9);
            match note(&noted, &jobs)[..] {
                [0, 1] => return Err("in halves"),
                [1] => {
                    pausing.resume();
                    pausing.shut_down();
                }
                _ => {}
            }
            Ok(())
        });
        assert_eq!(taken(&calls), [&[0, 1][..], &[0], &[1], &[9]], "{way:?}");
    }
}

#[test] // W10 W4 W6 V3
fn the_jobs_of_a_cancelled_batch_that_are_not_settled_go_back_in_order_with_their_values() {
    for requeue in [true, false] {
        let queue = WorkQueue::builder().merge(merge::append).build().unwrap();
        (0..8).for_each(|key| _ = queue.put(key, vec![key]));
        let workers = Workers::new(&queue)
            .concurrency(1)
            .requeue_cancelled(requeue);
        let mut run = Box::pin(workers.run_batches_async(
            8,
            async |mut jobs: Jobs<'static, Vec<u64>>| {
                let all = keys(&jobs);
                jobs.iter_mut().for_each(|job| job.value_mut().push(9));
                match all[..] {
                    [0, 1] => Ok(()),
                    [2, 3] => pending().await,
                    _ => Err("in halves"),
                }
            },
        ));
        assert!(poll_until_idle(&mut run).is_pending());
        assert_eq!(queue.counts().processing, 6);
        drop(run);
        assert_eq!(queue.counts().processing, 0);
        let left = std::iter::from_fn(|| queue.try_get().ok());
        let left = left.map(|mut item| (*item, item.take().unwrap()));
        // A call of all, of the first half, and of the third quarter.
        let back = (2..8).map(|key| {
            let nines = if key < 4 { 3 } else { 1 };
            let value = std::iter::once(key).chain(std::iter::repeat_n(9, nines));
            (key, value.collect::<Vec<_>>())
        });
        let back: Vec<_> = back.filter(|_| requeue).collect();
        assert_eq!(left.collect::<Vec<_>>(), back);
    }
}

#[test] // W10 V3
fn a_job_that_outlives_a_call_that_fails_keeps_its_value_from_the_next_one() {
    let queue = WorkQueue::builder().merge(merge::latest).build().unwrap();
    (0..4).for_each(|key| _ = queue.put(key, key));
    queue.shut_down();
    let (outlives, calls) = (Mutex::new(Vec::new()), Calls::default());
    let workers = Workers::new(&queue).concurrency(1);
    let run = workers.run_batches_async(4, async |mut jobs: Jobs<'static, u64>| {
        note(&calls, &jobs);
        if jobs.len() < 4 {
            assert!(jobs.iter().all(|job| job.key() == job.value()));
            // It comes back in the middle of another call, with its value.
            outlives.lock().unwrap().clear();
            return Ok(());
        }
        outlives.lock().unwrap().push(jobs.remove(1));
        Err("in parts")
    });
    pollster::block_on(run).unwrap();
    assert_eq!(taken(&calls), [&[0, 1, 2, 3][..], &[0], &[2, 3]]);
    assert_eq!(queue.take_left(), []);
}

#[test] // W10 W6 S16
fn a_report_that_is_cancelled_puts_the_rest_of_the_batch_back() {
    let queue = WorkQueue::new();
    queue.add_all(0..4);
    let workers = Workers::new(&queue)
        .concurrency(1)
        .on_give_up_async(|_, _| pending());
    let mut run =
        Box::pin(
            workers.run_batches_async(4, async |jobs: Jobs<'static>| match keys(&jobs)[..] {
                [0, 1] => Ok(vec![Verdict::GiveUp("never"); 2]),
                _ => Err("in halves"),
            }),
        );
    assert!(poll_until_idle(&mut run).is_pending());
    drop(run);
    assert_eq!(take_all(&queue), [0, 1, 2, 3]);
}

#[test] // W10 W6 S16
fn reports_that_are_cancelled_are_dropped_before_their_keys_go_back() {
    struct Dropped<F: Fn()>(F);
    impl<F: Fn()> Drop for Dropped<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let queue = WorkQueue::new();
    queue.add_all(0..4);
    let states = Mutex::new(Vec::new());
    let workers = Workers::new(&queue)
        .concurrency(1)
        .on_give_up_async(|key, _| {
            let (states, queue) = (&states, &queue);
            let state = move || states.lock().unwrap().push((*key, queue.state(&*key)));
            let dropped = Dropped(state);
            async move {
                let _dropped = dropped;
                pending::<()>().await;
            }
        });
    let give_up = |jobs: Jobs<'static>| vec![Verdict::GiveUp("never"); jobs.len()];
    let mut run = Box::pin(workers.run_batches_async(4, async |jobs| give_up(jobs)));
    assert!(poll_until_idle(&mut run).is_pending());
    drop(run);
    let held = (0..4).map(|key| (key, Some(State::Processing)));
    assert!(states.into_inner().unwrap().into_iter().eq(held));
    assert_eq!(take_all(&queue), [0, 1, 2, 3]);
}

#[test] // W10 W2
fn the_reports_of_a_batch_that_wait_are_awaited_one_after_the_other() {
    let queue = WorkQueue::new();
    queue.add_all(0..4);
    queue.shut_down();
    let reports = Mutex::new(Vec::new());
    let workers = Workers::new(&queue)
        .concurrency(1)
        .on_give_up_async(|key, _| {
            let (reports, queue) = (&reports, &queue);
            async move {
                futures_lite::future::yield_now().await;
                reports.lock().unwrap().push((*key, queue.state(&*key)));
            }
        });
    let run = workers.run_batches_async(4, async |jobs: Jobs<'static>| {
        jobs.iter()
            .map(|job| job.give_up::<(), _>("never"))
            .collect::<Vec<_>>()
    });
    pollster::block_on(run).unwrap();
    let reported = (0..4).map(|key| (key, Some(State::Processing)));
    assert!(reports.into_inner().unwrap().into_iter().eq(reported));
    assert!((0..4).all(|key| queue.state(&key).is_none()));
}

#[test] // W10 W6
fn other_tasks_run_after_each_part_of_a_batch() {
    let queue = WorkQueue::from_iter([0, 1, 2, 3]);
    queue.shut_down();
    let calls = Calls::default();
    let workers = Workers::new(&queue).concurrency(1);
    let mut run = Box::pin(workers.run_batches_async(2, async |jobs: Jobs<'static>| {
        match note(&calls, &jobs).len() {
            1 => Ok(()),
            _ => Err("in halves"),
        }
    }));
    for number in 1..=6 {
        assert!(poll(&mut run, Waker::noop()).is_pending());
        assert_eq!(calls.lock().unwrap().len(), number);
    }
    assert!(poll(&mut run, Waker::noop()).is_ready());
}

#[test] // W10 W4
fn an_abort_of_threads_ends_them_after_their_batch() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add_all(0..4);
    let (calls, begun, go_on) = (Calls::default(), mpsc::channel(), mpsc::channel());
    let (noted, go_on_at) = (Arc::clone(&calls), Mutex::new(go_on.1));
    let workers = Workers::new(&queue).concurrency(1);
    let running = workers.spawn_batches(4, move |jobs: Jobs<'_>| {
        if note(&noted, &jobs).len() == 1 {
            return Ok(());
        }
        begun.0.send(()).unwrap();
        go_on_at.lock().unwrap().recv().unwrap();
        Err("in halves")
    });
    let running = running.unwrap();
    begun.1.recv().unwrap();
    queue.add(9);
    running.abort();
    (0..3).for_each(|_| go_on.0.send(()).unwrap());
    running.join();
    assert_eq!(taken(&calls).len(), 7);
    assert_eq!(take_all(&queue), [9]);
}

#[test] // W10 W4 C9
fn workers_that_linger_take_nothing_after_an_abort_and_all_at_a_shut_down() {
    let _watchdog = watchdog(60);
    for abort in [true, false] {
        let queue = WorkQueue::new();
        let calls = Calls::default();
        let noted = Arc::clone(&calls);
        let f = move |jobs: Jobs<'_>| _ = note(&noted, &jobs);
        let lingering = UpTo::new(3).linger(HOUR);
        let running = Workers::new(&queue)
            .concurrency(2)
            .spawn_batches(lingering, f)
            .unwrap();
        queue.add_all([1, 2]);
        eventually("both linger", || waiting(&queue) == 2);
        if abort {
            running.abort();
        } else {
            queue.shut_down();
        }
        running.join();
        let taken: usize = taken(&calls).iter().map(Vec::len).sum();
        assert_eq!((taken, queue.len()), if abort { (0, 2) } else { (2, 0) });
    }
}

#[test] // W10 W4 W8
fn workers_that_linger_take_nothing_after_an_abort_although_more_than_a_batch_is_queued() {
    for shut_down in [false, true] {
        let queue = WorkQueue::new();
        queue.add_all(0..10);
        let (calls, begun, go_on) = (Calls::default(), mpsc::channel(), mpsc::channel::<()>());
        let (noted, go_on_at) = (Arc::clone(&calls), Mutex::new(go_on.1));
        let running = Workers::new(&queue).concurrency(1).spawn_batches(
            UpTo::new(2).linger(HOUR),
            move |jobs: Jobs<'_>| {
                note(&noted, &jobs);
                begun.0.send(()).unwrap();
                _ = go_on_at.lock().unwrap().recv();
            },
        );
        let running = running.unwrap();
        begun.1.recv().unwrap();
        if shut_down {
            queue.shut_down();
        }
        running.abort();
        drop(go_on.0);
        running.join();
        assert_eq!(taken(&calls), [[0, 1]], "{shut_down}");
        assert_eq!(take_all(&queue), [2, 3, 4, 5, 6, 7, 8, 9], "{shut_down}");
    }
}

#[tokio::test] // W10 W4 W6
async fn tasks_that_are_aborted_put_their_batches_back_and_take_no_others() {
    let queue = WorkQueue::new();
    queue.add_all(0..4);
    let runtime = tokio::runtime::Handle::current();
    let workers = Workers::new(&queue).concurrency(2);
    let running = workers.spawn_batches_on(&runtime, 2, |jobs: Jobs<'static>| async move {
        pending::<()>().await;
        drop(jobs);
    });
    while queue.counts().processing < 4 {
        tokio::task::yield_now().await;
    }
    let running = running.unwrap();
    running.abort();
    running.join_async().await;
    let mut back = take_all(&queue);
    back.sort_unstable();
    assert_eq!(back, [0, 1, 2, 3]);
    // The future of all of them can be spawned, too.
    queue.add(4);
    queue.shut_down();
    let run = Workers::new(&queue).run_batches_async(2, async move |jobs: Jobs<'static>| {
        tokio::task::yield_now().await;
        assert_eq!(keys(&jobs), [4]);
    });
    tokio::spawn(run).await.unwrap().unwrap();
}

#[test] // W10 S12 X1
fn many_workers_lose_no_key_of_batches_that_fail_at_random() {
    let _watchdog = watchdog(120);
    const KEYS: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let queue = WorkQueue::builder()
        .rate_limiter(NoLimit)
        .drain_delays(true)
        .build()
        .unwrap();
    let letters = DeadLetters::new(usize::MAX).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let workers = || Workers::new(&queue).max_retries(2).dead_letters(&letters);
    let counted = Arc::clone(&done);
    let work = move |jobs: Jobs<'_>| {
        // Each key fails alone with one in three, each batch as a whole with one in four, and bad keys always.
        let is_bad = |job: &Job<'_, u64>| job.is_multiple_of(100);
        if jobs.iter().any(is_bad) || jobs.len() > 1 && fastrand::u8(..4) == 0 {
            return Err("as a whole");
        }
        let each = |job: Job<'_, u64>| match fastrand::u8(..3) {
            0 if job.attempt() == 1 => Err("alone"),
            _ => {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        Ok(jobs.into_iter().map(each).collect::<Vec<_>>())
    };
    let work = Arc::new(work);
    let (threads_work, tasks_work) = (Arc::clone(&work), work);
    let of_threads = workers()
        .concurrency(2)
        .spawn_batches(7, move |jobs| threads_work(jobs));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let run = workers()
                .concurrency(3)
                .run_batches_async(5, async |jobs: Jobs<'static>| {
                    futures_lite::future::yield_now().await;
                    tasks_work(jobs)
                });
            pollster::block_on(run).unwrap();
        });
        queue.add_all(0..KEYS);
        let drained = queue.shut_down_with_drain();
        assert!(drained.is_nothing());
    });
    of_threads.unwrap().join();
    let bad = KEYS.div_ceil(100) as usize;
    assert_eq!(
        (done.load(Ordering::Relaxed), letters.len()),
        (KEYS as usize - bad, bad)
    );
    assert!(letters.list().iter().all(|letter| letter.attempts == 3));
}
