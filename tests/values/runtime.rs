//! Workers that are tasks of a runtime: the value is lent to the task (V3, W2, W6).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

use super::deliveries;
use crate::common::counted::Alive;
use keyqueue::worker::{self, Workers};
use keyqueue::{WorkQueue, merge};

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
