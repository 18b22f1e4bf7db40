//! Workers that are futures: on several executors, how many keys at a time, and what dropping does.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::assert_all_done;
use crate::common::{
    assert_nothing_queued, figures, poll, poll_until_idle, take_all, waiting, watchdog,
};
use futures_lite::future::{block_on, yield_now};
use keyqueue::worker::{Job, Outcome, Workers};
use keyqueue::{Added, LeftReason, WorkQueue};

#[test] // W1 W4
fn tasks_of_tokio_work_off_a_shared_queue() {
    const KEYS: u64 = 2000;
    let _watchdog = watchdog(60);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let queue = WorkQueue::<u64>::new();
        let worked = Arc::new(Mutex::new(HashSet::new()));
        let workers = [(); 3].map(|()| {
            let workers = Workers::new(&queue).concurrency(8);
            let worked = Arc::clone(&worked);
            tokio::spawn(workers.run_async(async move |job: Job<'_, u64>| {
                tokio::time::sleep(Duration::from_micros(10)).await;
                worked.lock().unwrap().insert(*job);
                Ok::<_, String>(Outcome::Done)
            }))
        });
        queue.add_all(0..KEYS);
        queue.drain_async().await;
        for worker in workers {
            worker.await.unwrap().unwrap();
        }
        assert_eq!(worked.lock().unwrap().len() as u64, KEYS);
    });
}

#[test] // W1
fn any_executor_will_do() {
    let _watchdog = watchdog(60);
    let run = async || {
        let queue = WorkQueue::new();
        let sum = AtomicU64::new(0);
        queue.add_all(1..=100);
        queue.shut_down();
        let work = async |job: Job<'_, u64>| {
            yield_now().await;
            sum.fetch_add(*job, Ordering::Relaxed);
        };
        Workers::new(&queue)
            .concurrency(7)
            .run_async(work)
            .await
            .unwrap();
        sum.into_inner()
    };
    assert_eq!(pollster::block_on(run()), 5050);
    assert_eq!(block_on(run()), 5050);
    assert_eq!(
        block_on(async_executor::LocalExecutor::new().run(run())),
        5050
    );
}

#[test] // W1
fn no_more_keys_are_in_work_than_there_are_tasks_and_no_fewer() {
    let queue = WorkQueue::new();
    queue.add_all(0..10);
    let in_work = Cell::new(0);
    let work = async |_: Job<'_, u64>| {
        in_work.set(in_work.get() + 1);
        pending::<()>().await;
    };
    let mut run = Box::pin(Workers::new(&queue).concurrency(3).run_async(work));
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!((in_work.get(), queue.len()), (3, 7));
}

#[test]
fn a_wake_up_polls_the_one_that_was_woken() {
    let queue = WorkQueue::new();
    let polls = RefCell::new([0; 4]);
    let wakers = RefCell::new([const { None::<Waker> }; 4]);
    let work = async |job: Job<'_, u64>| {
        poll_fn(|context| {
            polls.borrow_mut()[*job as usize] += 1;
            wakers.borrow_mut()[*job as usize] = Some(context.waker().clone());
            Poll::<()>::Pending
        })
        .await;
    };
    let mut run = Box::pin(Workers::new(&queue).concurrency(4).run_async(work));
    queue.add_all(0..4);
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(*polls.borrow(), [1; 4]);

    // Twice, and so once: nothing happened in between.
    wakers.borrow()[2].as_ref().unwrap().wake_by_ref();
    wakers.borrow()[2].as_ref().unwrap().wake_by_ref();
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(*polls.borrow(), [1, 1, 2, 1]);

    // Wakers may outlive what they wake.
    drop(run);
    for waker in wakers.into_inner().into_iter().flatten() {
        waker.wake();
    }
}

#[test]
fn a_wake_up_that_comes_from_another_thread_at_any_time_is_not_lost() {
    const KEYS: u64 = 20_000;
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    let (ring, rings) = std::sync::mpsc::channel::<Waker>();
    std::thread::scope(|scope| {
        scope.spawn(move || rings.into_iter().for_each(Waker::wake));
        scope.spawn(|| {
            queue.add_all(0..KEYS);
            queue.shut_down();
        });
        let worked = Cell::new(0);
        let work = async |_: Job<'_, u64>| {
            let mut rung = false;
            poll_fn(|context| {
                if std::mem::replace(&mut rung, true) {
                    return Poll::Ready(());
                }
                ring.send(context.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
            worked.set(worked.get() + 1);
        };
        let run = Workers::new(&queue).concurrency(16).run_async(work);
        pollster::block_on(run).unwrap();
        assert_eq!(worked.get(), KEYS);
        drop(ring);
    });
}

#[test]
fn keys_whose_work_never_waits_do_not_keep_others_waiting() {
    let _watchdog = watchdog(60);
    let queue = WorkQueue::new();
    queue.add(1);
    let rounds = Cell::new(0);
    let work = async |_: Job<'_, u64>| {
        rounds.set(rounds.get() + 1);
        Outcome::RequeueAfter(Duration::ZERO)
    };
    let mut run = pin!(Workers::new(&queue).concurrency(2).run_async(work));
    for polls in 1..=100 {
        assert!(poll(&mut run, Waker::noop()).is_pending());
        assert!(rounds.get() <= 2 * polls, "{} in {polls}", rounds.get());
    }
    assert!(rounds.get() >= 50, "{}", rounds.get());
}

#[test] // W4
fn it_ends_only_when_the_keys_in_flight_are_finished() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2]);
    let gate = Cell::new(false);
    let work = async |_: Job<'_, u64>| {
        while !gate.get() {
            yield_now().await;
        }
    };
    let mut run = pin!(Workers::new(&queue).concurrency(2).run_async(work));
    assert!(poll(&mut run, Waker::noop()).is_pending());
    let left = queue.shut_down();
    assert_eq!((left.queued, left.processing), (0, 2));
    for _ in 0..100 {
        assert!(poll(&mut run, Waker::noop()).is_pending());
    }
    gate.set(true);
    assert_eq!(poll_until_idle(&mut run), Poll::Ready(Ok(())));
    assert_all_done(&queue);
}

#[test] // W4 W6
fn dropping_it_puts_the_keys_in_flight_back_at_the_tail() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3, 4]);
    let work = async |_: Job<'_, u64>| pending::<()>().await;
    let mut run = Box::pin(Workers::new(&queue).concurrency(2).run_async(work));
    assert!(poll_until_idle(&mut run).is_pending());
    assert_eq!(queue.add(1), Added::Deferred);
    drop(run);

    // 1 was added while it was processing, but is queued once.
    assert_eq!(take_all(&queue), [3, 4, 1, 2]);
    assert_nothing_queued(&queue);
    assert_eq!(waiting(&queue), 0);
}

#[test] // W4 W6 S13
fn dropping_it_ends_the_keys_in_flight_if_that_is_set_and_leaves_them_after_a_shut_down() {
    for requeue in [false, true] {
        let queue = WorkQueue::new();
        queue.add_all([1, 2, 3]);
        let work = async |_: Job<'_, u64>| pending::<()>().await;
        let workers = Workers::new(&queue)
            .concurrency(2)
            .requeue_cancelled(requeue);
        let mut run = Box::pin(workers.run_async(work));
        assert!(poll_until_idle(&mut run).is_pending());
        assert_eq!(queue.add(1), Added::Deferred);
        if requeue {
            assert_eq!(figures(queue.shut_down()), (1, 2, 0));
        }
        drop(run);
        // 1 was added before, while it was processing, and is delivered once more.
        assert_eq!(take_all(&queue), [3, 1]);
        let left = queue.take_left().into_iter();
        let left: Vec<_> = left.map(|left| (left.key, left.reason)).collect();
        let refused = [(2, LeftReason::Refused)];
        assert_eq!(left, if requeue { &refused[..] } else { &[] });
    }
}

#[test] // W6
fn work_is_cancelled_before_its_key_is_put_back() {
    struct Cancelled<'a>(&'a WorkQueue<u64>);
    impl Drop for Cancelled<'_> {
        fn drop(&mut self) {
            assert_eq!(self.0.len(), 0);
            assert_eq!(self.0.add(1), Added::Deferred);
        }
    }
    let queue = WorkQueue::new();
    queue.add(1);
    let work = async |_: Job<'_, u64>| {
        let _cancelled = Cancelled(&queue);
        pending::<()>().await;
    };
    let mut run = Box::pin(Workers::new(&queue).concurrency(1).run_async(work));
    assert!(poll_until_idle(&mut run).is_pending());
    drop(run);
    assert_eq!(take_all(&queue), [1]);
}
