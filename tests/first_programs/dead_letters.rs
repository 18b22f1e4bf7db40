//! Keys that were given up are listed, and put back once the cause is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use keyqueue::worker::{DeadLetters, Job, Reason, Workers};
use keyqueue::{Added, WorkQueue, merge};

/// As if it were a server for mail.
#[derive(Default)]
struct Server {
    is_up: AtomicBool,
    sent: Mutex<BTreeMap<&'static str, Vec<u32>>>,
}

impl Server {
    fn send(&self, address: &'static str, messages: &[u32]) -> Result<(), String> {
        if !self.is_up.load(Ordering::Relaxed) {
            return Err("the server is down".to_owned());
        }
        let mut sent = self.sent.lock().unwrap();
        sent.entry(address).or_default().extend(messages);
        Ok(())
    }
}

#[test]
fn dead_letters_are_listed_and_put_back() -> Result<(), Box<dyn std::error::Error>> {
    let queue = WorkQueue::builder().merge(merge::append).build()?;
    let letters = DeadLetters::new(1000)?;
    let server = Arc::new(Server::default());
    let workers = Workers::new(&queue).max_retries(2);
    let running = workers.dead_letters(&letters).spawn({
        let server = Arc::clone(&server);
        move |job: Job<'_, &'static str, Vec<u32>>| server.send(*job, job.value())
    })?;
    queue.put("a@example.org", vec![1, 2]);
    queue.put("b@example.org", vec![3]);
    while letters.len() < 2 {
        thread::yield_now();
    }

    for letter in letters.list() {
        println!("{}: {:?}, {}", letter.key, letter.value, letter.error);
        assert_eq!((letter.attempts, letter.reason), (3, Reason::MaxRetries));
    }
    server.is_up.store(true, Ordering::Relaxed);
    for letter in letters.list() {
        let added = letters.put_back(letter.id);
        assert!(added.is_some_and(Added::is_accepted));
    }
    assert!(letters.is_empty());

    queue.shut_down_with_drain();
    running.join();
    let sent = server.sent.lock().unwrap();
    let all = [("a@example.org", vec![1, 2]), ("b@example.org", vec![3])];
    assert_eq!(*sent, BTreeMap::from(all));
    Ok(())
}
