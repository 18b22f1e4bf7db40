//! Async workers with values: cancelled work puts its value back (V3, W6).

use std::future::{pending, ready};
use std::sync::Mutex;

use super::{deliveries, lists, tracked};
use crate::common::counted::{Alive, Counted};
use crate::common::{Task, watchdog};
use keyqueue::worker::{Job, Outcome, Verdict, Workers};
use keyqueue::{Ended, State, WorkQueue, merge};

#[test] // V3 W6
fn cancelled_work_puts_its_value_back_under_newer_ones() {
    let queue = lists::<&str>();
    let receipt = tracked(&queue, "a", vec![1]);
    let workers = Workers::new(&queue).concurrency(2);
    let work = workers.run_async(async |mut job: Job<'_, &str, Vec<u32>>| {
        job.value_mut().push(2);
        pending::<()>().await;
    });
    let task = Task::waiting(Box::pin(work));
    assert_eq!(queue.state(&"a"), Some(State::Processing));
    queue.put("a", vec![3]);
    drop(task);
    assert_eq!(receipt.ended(), None);
    assert_eq!(deliveries(&queue), [("a", vec![1, 2, 3])]);
    assert_eq!(receipt.ended(), Some(Ended::Done));
}

/// A job whose value is changed when the work's future is dropped.
struct OnDrop<'j>(Job<'j, &'static str, Vec<u32>>);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.value_mut().push(9);
    }
}

#[test] // V3 W6
fn the_value_goes_back_after_the_cancelled_work_is_dropped() {
    let queue = lists::<&str>();
    queue.put("a", vec![1]);
    let workers = Workers::new(&queue).concurrency(1);
    let work = workers.run_async(async |job| {
        let _on_drop = OnDrop(job);
        pending::<()>().await;
    });
    drop(Task::waiting(Box::pin(work)));
    assert_eq!(deliveries(&queue), [("a", vec![1, 9])]);
}

#[test] // W6
fn cancelled_work_that_is_not_put_back_is_given_up_or_dropped() {
    for (requeue, shut_down, end) in [
        (false, false, Ended::GivenUp),
        (false, true, Ended::GivenUp),
        (true, true, Ended::Dropped),
    ] {
        let alive = Alive::default();
        let builder = WorkQueue::builder().merge(merge::append);
        let queue: WorkQueue<_, Vec<Counted<u32>>> = builder.build().unwrap();
        let receipt = tracked(&queue, 1, vec![alive.of(0)]);
        let workers = Workers::new(&queue)
            .concurrency(1)
            .requeue_cancelled(requeue);
        let work = async |_: Job<'_, u32, Vec<Counted<u32>>>| pending::<()>().await;
        let task = Task::waiting(Box::pin(workers.run_async(work)));
        if shut_down {
            queue.shut_down();
        }
        drop(task);
        assert_eq!(receipt.ended(), Some(end));
        // What is refused is left (S13).
        let left = queue.take_left();
        assert_eq!(left.len(), usize::from(end == Ended::Dropped));
        drop(left);
        assert_eq!(alive.count(), 0);
    }
}

#[test] // W6
fn a_report_that_is_cancelled_is_not_how_the_next_delivery_ends() {
    let queue = lists::<&str>();
    let receipt = tracked(&queue, "a", vec![1]);
    let workers = Workers::new(&queue)
        .concurrency(1)
        .on_give_up_async(|_, _| pending::<()>());
    let work = workers.run_async(async |mut job: Job<'_, &str, Vec<u32>>| {
        job.value_mut().push(2);
        Verdict::GiveUp("never")
    });
    drop(Task::waiting(Box::pin(work)));
    assert_eq!(receipt.ended(), None);
    assert_eq!(deliveries(&queue), [("a", vec![1, 2])]);
    assert_eq!(receipt.ended(), Some(Ended::Done));
}

#[test] // W2 W7
fn every_setting_goes_with_values() {
    let _watchdog = watchdog(60);
    let queue = lists::<&str>();
    let receipt = tracked(&queue, "a", vec![1]);
    let reports = Mutex::new(Vec::new());
    let report = |text: String| reports.lock().unwrap().push(text);
    let workers = Workers::new(&queue)
        .concurrency(1)
        .max_retries(1)
        .requeue_cancelled(false)
        .on_error(|key, failed| report(format!("{key}: {failed}")))
        .on_give_up_async(|key, given_up| {
            report(format!("{}: {given_up}", *key));
            queue.shut_down();
            ready(())
        });
    let work = async |mut job: Job<'_, &str, Vec<u32>>| {
        job.value_mut().push(0);
        Err::<(), _>(job.value().len())
    };
    pollster::block_on(workers.run_async(work)).unwrap();
    assert_eq!(
        reports.into_inner().unwrap(),
        [
            "a: 2 (attempt 1, the next immediately)",
            "a: 3 (attempt 2, given up)",
            "a: 3 (retries: 1)"
        ]
    );
    assert_eq!(receipt.ended(), Some(Ended::GivenUp));
}

#[test] // V3 W2
fn async_workers_retry_with_the_value_as_it_is_left() {
    let _watchdog = watchdog(60);
    let queue = lists::<&str>();
    queue.put("a", vec![1]);
    let work = async |mut job: Job<'_, &str, Vec<u32>>| {
        job.value_mut().push(0);
        match job.value().len() {
            2 => Verdict::Retry("fails"),
            3 => panic!("the work fails"),
            4 => Verdict::Ok(Outcome::Later(std::time::Duration::ZERO)),
            _ => {
                assert_eq!(*job.value(), [1, 0, 0, 0, 0]);
                queue.shut_down();
                Verdict::Ok(Outcome::Done)
            }
        }
    };
    pollster::block_on(Workers::new(&queue).concurrency(2).run_async(work)).unwrap();
    assert!(queue.get().is_none());
}

#[tokio::test(flavor = "multi_thread")] // W6
async fn async_workers_can_be_spawned() {
    let queue = lists::<u32>();
    let (done, mut results) = tokio::sync::mpsc::unbounded_channel();
    let workers = Workers::new(&queue).concurrency(2);
    let running = tokio::spawn(workers.run_async(async move |mut job| {
        tokio::task::yield_now().await;
        done.send((*job, job.take().unwrap())).unwrap();
    }));
    queue.put(1, vec![2]);
    assert_eq!(results.recv().await, Some((1, vec![2])));
    queue.shut_down();
    running.await.unwrap().unwrap();
}
