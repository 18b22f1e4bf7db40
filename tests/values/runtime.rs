//! Workers that are tasks of a runtime: the value is lent to the task (V3, W2, W6).

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

use super::{deliveries, lists, tracked};
use crate::common::counted::Alive;
use keyqueue::worker::{self, Outcome, Verdict, Workers};
use keyqueue::{Ended, WorkQueue, merge};

type Job = worker::Job<'static, &'static str, Vec<u32>>;

#[tokio::test(flavor = "multi_thread")] // V3 W2
async fn what_the_task_leaves_goes_with_a_retry() {
    let queue = lists::<&str>();
    let receipt = tracked(&queue, "a", vec![1]);
    let work = |mut job: Job| {
        let len = job.value().len();
        job.value_mut().push(0);
        if len == 2 {
            // Not in the future.
            resume_unwind(Box::new("the work fails"));
        }
        async move {
            tokio::task::yield_now().await;
            match len {
                1 => Verdict::Retry("fails"),
                3 => resume_unwind(Box::new("the work fails")),
                4 => {
                    let key = job.handle();
                    drop(job);
                    key.put(vec![]);
                    Verdict::Retry("fails")
                }
                5 => Verdict::Ok(Outcome::Later(std::time::Duration::ZERO)),
                _ => {
                    assert_eq!(job.take().unwrap(), [1, 0, 0, 0, 0, 0, 0]);
                    Verdict::Ok(Outcome::Done)
                }
            }
        }
    };
    let workers = Workers::new(&queue).concurrency(2);
    let running = workers.spawn_on(&Handle::current(), work).unwrap();
    assert_eq!(receipt.await, Ended::Done);
    assert!(queue.drain_async().await.is_finished());
    running.join_async().await;
}

#[tokio::test(flavor = "multi_thread")] // V3 W6
async fn an_abort_puts_the_values_back() {
    let alive = Alive::default();
    let queue: WorkQueue<u32, Vec<_>> = WorkQueue::builder().merge(merge::append).build().unwrap();
    for key in 0..3 {
        queue.put(key, vec![alive.of(key)]);
    }
    let begun = Arc::new(AtomicUsize::new(0));
    let workers = Workers::new(&queue).concurrency(2);
    let work = {
        let (begun, alive) = (Arc::clone(&begun), alive.clone());
        move |mut job: worker::Job<'static, u32, Vec<_>>| {
            job.value_mut().push(alive.of(0));
            begun.fetch_add(1, Ordering::SeqCst);
            async move {
                let _job = job;
                std::future::pending::<()>().await;
            }
        }
    };
    let running = workers.spawn_on(&Handle::current(), work).unwrap();
    while begun.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    queue.put(0, vec![alive.of(0)]);
    running.abort();
    running.join_async().await;
    let mut left = deliveries(&queue);
    left.sort_by_key(|(key, _)| *key);
    let lens: Vec<_> = left
        .iter()
        .map(|(key, value)| (*key, value.len()))
        .collect();
    assert_eq!(lens, [(0, 3), (1, 2), (2, 1)]);
    drop(left);
    assert_eq!(alive.count(), 0);
}

#[tokio::test] // V3
async fn a_value_that_the_task_takes_is_not_retried() {
    let queue = lists::<&str>();
    let receipt = tracked(&queue, "a", vec![1]);
    let workers = Workers::new(&queue).concurrency(1);
    let work = |mut job: Job| async move {
        assert_eq!(job.take(), Some(vec![1]));
        Verdict::Retry("fails")
    };
    let running = workers.spawn_on(&Handle::current(), work).unwrap();
    assert_eq!(receipt.await, Ended::GivenUp);
    assert!(queue.drain_async().await.is_finished());
    running.join_async().await;
}
