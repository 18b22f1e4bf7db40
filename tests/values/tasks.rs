//! Async workers with values: cancelled work puts its value back (V3, W6).

use std::future::pending;

use super::{deliveries, lists, tracked};
use crate::common::Task;
use crate::common::counted::{Alive, Counted};
use keyqueue::worker::{Job, Verdict, Workers};
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
