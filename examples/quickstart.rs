//! The whole idea in one screen: producers add the key that changed, workers read its newest state.
//!
//! `cargo run --release -p keyqueue-examples --example quickstart`

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use keyqueue::WorkQueue;
use keyqueue::worker::Workers;

const FRUIT: [&str; 3] = ["apple", "banana", "cherry"];
const SALES: usize = 100_000;

fn main() -> anyhow::Result<()> {
    let program = clap::Command::new("quickstart");
    program
        .about("Adds each fruit thousands of times; workers read its newest state")
        .get_matches();

    // What the keys stand for. The queue carries the key alone; a worker reads the state itself.
    let sold = Mutex::new(HashMap::new());
    let shown = Mutex::new(HashMap::new());
    let delivered = AtomicUsize::new(0);
    let queue = WorkQueue::new();

    thread::scope(|scope| {
        // The workers end however this scope is left, also by an error or a panic.
        let _end = queue.shut_down_on_drop();
        // Four threads take keys until the queue is shut down and empty.
        let workers = Workers::new(&queue).concurrency(4);
        let workers = scope.spawn(|| {
            workers.run(|fruit| {
                // While this runs, no other worker gets the same fruit. If the fruit is added
                // meanwhile, it comes once more.
                let count: usize = sold.lock().unwrap()[&*fruit];
                shown.lock().unwrap().insert(*fruit, count);
                // Ordering: Relaxed; a count that is read after the threads are joined.
                delivered.fetch_add(1, Ordering::Relaxed);
            })
        });

        for sale in 0..SALES {
            let fruit = FRUIT[sale % FRUIT.len()];
            // Change the state, then add: a delivery that starts after the add sees the change.
            *sold.lock().unwrap().entry(fruit).or_default() += 1;
            queue.add(fruit);
        }

        // Refuses further adds, and returns when everything added before is done.
        queue.shut_down_with_drain();
        workers.join().expect("what a worker panics with is caught")
    })?;

    // Ordering: Relaxed; as above.
    let delivered = delivered.load(Ordering::Relaxed);
    let keys = FRUIT.len();
    writeln!(
        io::stdout(),
        "{SALES} adds of {keys} keys: {delivered} deliveries"
    )?;
    assert!(
        (FRUIT.len()..=SALES).contains(&delivered),
        "at least one a key, never more than adds"
    );
    let (sold, shown) = (sold.into_inner().unwrap(), shown.into_inner().unwrap());
    assert_eq!(sold, shown, "the last change of each key was seen");
    Ok(())
}
