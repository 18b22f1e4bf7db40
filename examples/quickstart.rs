//! The whole idea in one screen: producers say *which* key changed, workers look at its newest state.
//!
//! `cargo run --release --example quickstart`

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;

use keyqueue::WorkQueue;

const FRUIT: [&str; 3] = ["apple", "banana", "cherry"];
const SALES: usize = 100_000;

fn main() {
    // What the keys stand for. The queue carries the key alone; a worker reads the state itself.
    let sold = Mutex::new(HashMap::new());
    let shown = Mutex::new(HashMap::new());
    let queue = WorkQueue::new();

    let delivered: usize = thread::scope(|scope| {
        let worker = || {
            let mut delivered = 0;
            // `get` waits for a key. `None`: the queue is shut down, and empty.
            while let Some(fruit) = queue.get() {
                // While the item is held, no other worker gets the same fruit.
                let count: usize = sold.lock().unwrap()[*fruit];
                shown.lock().unwrap().insert(*fruit, count);
                delivered += 1;
            } // Dropping the item is "done". If the fruit was added meanwhile, it comes once more.
            delivered
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();

        for sale in 0..SALES {
            let fruit = FRUIT[sale % FRUIT.len()];
            // Change the state, then add: a delivery that starts after the add sees the change.
            *sold.lock().unwrap().entry(fruit).or_default() += 1;
            queue.add(fruit);
        }

        // Refuses further adds, and returns when everything added before is done.
        queue.shut_down_with_drain();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });

    println!(
        "{SALES} adds of {} keys: {delivered} deliveries",
        FRUIT.len()
    );
    assert!(
        (FRUIT.len()..=SALES).contains(&delivered),
        "at least one a key, never more than adds"
    );
    let (sold, shown) = (sold.into_inner().unwrap(), shown.into_inner().unwrap());
    assert_eq!(sold, shown, "the last change of each key was seen");
}
