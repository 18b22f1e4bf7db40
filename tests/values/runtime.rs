//! Workers that are tasks of a runtime: the value is lent to the task (V3, W2, W6).

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

use super::{deliveries, lists};
use crate::common::counted::Alive;
use keyqueue::worker::{Lent, Outcome, Verdict, Workers};
use keyqueue::{DrainEnd, Ended, KeyHandle, ValueQueue, Valued, WorkQueue, merge};

type Key = KeyHandle<Valued<&'static str, Vec<u32>>>;

#[tokio::test(flavor = "multi_thread")] // V3 W2
async fn what_the_task_leaves_goes_with_a_retry() {
    let queue = Arc::new(lists::<&str>());
    let (_, receipt) = queue.entry("a").tracked().put(vec![1]);
    let work = |key: Key, mut value: Lent<Vec<u32>>| {
        let len = value.len();
        value.push(0);
        if len == 2 {
            // Not in the future.
            resume_unwind(Box::new("the work fails"));
        }
        async move {
            tokio::task::yield_now().await;
            match len {
                1 => return Verdict::Retry("fails"),
                3 => resume_unwind(Box::new("the work fails")),
                4 => drop(value),
                5 => return Verdict::Ok(Outcome::Later(std::time::Duration::ZERO)),
                _ => {
                    assert_eq!(value.into_inner(), [1, 0, 0, 0, 0, 0, 0]);
                    return Verdict::Ok(Outcome::Done);
                }
            }
            key.put(vec![]);
            Verdict::Retry("fails")
        }
    };
    let workers = Workers::shared(Arc::clone(&queue)).tasks(2).values();
    let running = workers.spawn_on(&Handle::current(), work).unwrap();
    assert_eq!(receipt.await, Ended::Done);
    assert_eq!(queue.drain_async().await.end, DrainEnd::Finished);
    running.join().await;
}

#[tokio::test(flavor = "multi_thread")] // V3 W6
async fn an_abort_puts_the_values_back() {
    let alive = Alive::default();
    let queue: ValueQueue<u32, Vec<_>> = WorkQueue::builder().merge(merge::append).build().unwrap();
    let queue = Arc::new(queue);
    for key in 0..3 {
        queue.put(key, vec![alive.of(key)]);
    }
    let begun = Arc::new(AtomicUsize::new(0));
    let workers = Workers::shared(Arc::clone(&queue)).tasks(2).values();
    let work = {
        let (begun, alive) = (Arc::clone(&begun), alive.clone());
        move |_, mut value: Lent<Vec<_>>| {
            value.push(alive.of(0));
            begun.fetch_add(1, Ordering::SeqCst);
            async move {
                let _value = value;
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
    running.join().await;
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
    let queue = Arc::new(lists::<&str>());
    let (_, receipt) = queue.entry("a").tracked().put(vec![1]);
    let workers = Workers::shared(Arc::clone(&queue)).tasks(1).values();
    let work = |_: Key, value: Lent<Vec<u32>>| async move {
        assert_eq!(format!("{:?}", *value), "[1]");
        drop(value.into_inner());
        Verdict::Retry("fails")
    };
    let running = workers.spawn_on(&Handle::current(), work).unwrap();
    assert_eq!(receipt.await, Ended::GivenUp);
    assert_eq!(queue.drain_async().await.end, DrainEnd::Finished);
    running.join().await;
}
