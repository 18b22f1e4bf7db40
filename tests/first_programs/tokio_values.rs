//! Keys carry values from tasks to tasks, on tokio.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyqueue::worker::Workers;
use keyqueue::{WorkQueue, merge};
use tokio::runtime::Handle;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_go_from_tasks_to_tasks() -> Result<(), Box<dyn std::error::Error>> {
    let queue: WorkQueue<String, Vec<u64>> = WorkQueue::builder()
        .merge(merge::append)
        .capacity(10)
        .build()?;
    let queue = Arc::new(queue);
    let totals = Arc::new(Mutex::new(HashMap::<String, u64>::new()));

    let mut running = Workers::new(&queue)
        .concurrency(4)
        .spawn_on(&Handle::current(), {
            let totals = Arc::clone(&totals);
            move |job| {
                let totals = Arc::clone(&totals);
                async move {
                    tokio::time::sleep(Duration::from_millis(1)).await; // As if it were written to a server.
                    let sum: u64 = job.value().iter().sum();
                    *totals.lock().unwrap().entry(job.key().clone()).or_default() += sum;
                }
            }
        })?;

    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                for n in 0..100 {
                    let key = format!("account/{}", n % 20);
                    let added = queue.entry(key).put_async(vec![producer]).await; // waits for room
                    assert!(added.is_accepted());
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await?;
    }

    let drained = running.drain_within_async(Duration::from_secs(20)).await;
    assert!(drained.is_nothing(), "{drained}");
    running.join_async().await;
    let totals = totals.lock().unwrap();
    assert_eq!(totals.len(), 20);
    assert_eq!(totals.values().sum::<u64>(), 100 * (1 + 2 + 3));
    Ok(())
}
